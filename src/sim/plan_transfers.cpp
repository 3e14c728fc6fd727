#include "sim/plan_transfers.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"

namespace overtake {
namespace {

Operation operation_of(const Graph& g, TaskId t) {
  switch (g.tasks[t].kind) {
    case Kind::send:
    case Kind::recv:
      return Operation::send_recv;
    case Kind::all_reduce:
      return Operation::all_reduce;
    case Kind::reduce_scatter:
      return Operation::reduce_scatter;
    case Kind::all_gather:
      return Operation::all_gather;
    case Kind::all_to_all:
      return Operation::all_to_all;
    default:
      OVERTAKE_CHECK(false, "task {} is a transfer of no known kind", g.task_name(t));
      return Operation::send_recv;
  }
}

BufferId operand(const Graph& g, std::span<const BufferId> operands, TaskId t) {
  OVERTAKE_CHECK(!operands.empty() && operands[0] != kNone, "transfer {} lacks an operand", g.task_name(t));
  return operands[0];
}

std::uint8_t priority_of(const Graph& g, TaskId t) {
  const std::int64_t priority = g.attrs_of(g.tasks[t]).integer("priority", 0);
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(priority, 0, 255));
}

class Matcher {
 public:
  Matcher(const Plan& plan, std::span<const std::uint32_t> devices) : g_(plan.graph), devices_(devices) {
    out_.transfer.assign(g_.tasks.size(), kNone);
    out_.rank.assign(g_.tasks.size(), 0);
    for (const Lane& lane : plan.lanes)
      for (const TaskId t : lane.tasks)
        if (g_.tasks[t].op == Op::transfer) transfers_.push_back(t);
    std::ranges::sort(transfers_);
  }

  PlanTransfers match() {
    match_messages();
    match_collectives();
    return std::move(out_);
  }

 private:
  std::uint32_t device(TaskId t) const { return devices_[g_.tasks[t].device]; }

  void add(PlanTransfer transfer, std::span<const TaskId> members) {
    transfer.first = static_cast<std::uint32_t>(out_.tasks.size());
    transfer.members = static_cast<std::uint32_t>(members.size());
    for (std::uint32_t r = 0; r < members.size(); ++r) {
      out_.transfer[members[r]] = static_cast<std::uint32_t>(out_.list.size());
      out_.rank[members[r]] = r;
      out_.tasks.push_back(members[r]);
      out_.device.push_back(device(members[r]));
    }
    out_.list.push_back(transfer);
  }

  void match_messages() {
    std::vector<TaskId> receiver(g_.buffers.size(), kNone);
    std::size_t open = 0;
    for (const TaskId t : transfers_) {
      if (g_.tasks[t].kind != Kind::recv) continue;
      TaskId& place = receiver[operand(g_, g_.reads(t), t)];
      OVERTAKE_CHECK(place == kNone, "{} and {} receive the same message", g_.task_name(place), g_.task_name(t));
      place = t;
      ++open;
    }
    for (const TaskId t : transfers_) {
      if (g_.tasks[t].kind != Kind::send) continue;
      const TaskId recv = receiver[operand(g_, g_.writes(t), t)];
      OVERTAKE_CHECK(recv != kNone, "nobody receives what {} sends", g_.task_name(t));
      add({.priority = priority_of(g_, t), .bytes = g_.bytes(operand(g_, g_.reads(t), t))}, std::array{t, recv});
      --open;
    }
    for (const TaskId t : open > 0 ? transfers_ : std::vector<TaskId>{})
      OVERTAKE_CHECK(g_.tasks[t].kind != Kind::recv || out_.transfer[t] != kNone, "nobody sends what {} receives",
                     g_.task_name(t));
  }

  void match_collectives() {
    std::map<std::pair<Kind, std::int64_t>, std::vector<TaskId>> members;
    for (const TaskId t : transfers_)
      if (operation_of(g_, t) != Operation::send_recv)
        members[{g_.tasks[t].kind, g_.attrs_of(g_.tasks[t]).integer("collective")}].push_back(t);
    for (auto& [key, tasks] : members) {
      std::ranges::sort(tasks, {}, [&](TaskId t) { return std::pair(device(t), t); });
      PlanTransfer transfer{.operation = operation_of(g_, tasks[0])};
      for (const TaskId t : tasks) {
        const std::int64_t bytes = whole_bytes(t);
        OVERTAKE_CHECK(t == tasks[0] || bytes == transfer.bytes, "{} bytes of {}, but {} of {}: one collective", bytes,
                       g_.task_name(t), transfer.bytes, g_.task_name(tasks[0]));
        transfer.bytes = bytes;
        transfer.priority = std::max(transfer.priority, priority_of(g_, t));
      }
      for (std::size_t i = 1; i < tasks.size(); ++i)
        OVERTAKE_CHECK(device(tasks[i - 1]) != device(tasks[i]),
                       "{} and {} are members of one collective on one device", g_.task_name(tasks[i - 1]),
                       g_.task_name(tasks[i]));
      add(transfer, tasks);
    }
  }

  std::int64_t whole_bytes(TaskId t) const {
    std::int64_t bytes = 0;
    for (const BufferId b : g_.tasks[t].kind == Kind::all_gather ? g_.writes(t) : g_.reads(t))
      if (b != kNone) bytes += g_.bytes(b);
    return bytes;
  }

  const Graph& g_;
  std::span<const std::uint32_t> devices_;
  std::vector<TaskId> transfers_;  // those that run, by id
  PlanTransfers out_;
};

}  // namespace

PlanTransfers transfers_of(const Plan& plan, std::span<const std::uint32_t> devices) {
  return Matcher(plan, devices).match();
}

}  // namespace overtake
