#include "plan/divide/transfer_turns.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"

namespace overtake {
namespace {

bool is_message(const Task& t) { return t.kind == Kind::send || t.kind == Kind::recv; }

// Runs a plan over all devices in thought. A transfer is one thing that all who take part do at once.
class Rehearsal {
 public:
  explicit Rehearsal(const Plan& plan)
      : plan_(plan),
        deps_(dependencies(plan)),
        lane_of_(plan.graph.tasks.size(), kNone),
        place_of_(lane_of_),
        meeting_of_(lane_of_),
        done_(plan.graph.tasks.size(), 0),
        head_(plan.lanes.size(), 0) {
    for (std::uint32_t l = 0; l < plan.lanes.size(); ++l)
      for (std::uint32_t i = 0; i < plan.lanes[l].tasks.size(); ++i) {
        lane_of_[plan.lanes[l].tasks[i]] = l;
        place_of_[plan.lanes[l].tasks[i]] = i;
      }
    find_meetings();
  }

  // The transfers, those that belong together side by side.
  std::vector<std::vector<TaskId>> run() {
    while (pass([&](TaskId t) { return plan_.graph.tasks[t].is_delayed && meeting_of_[t] != kNone; })) {
    }
    while (pass([](TaskId) { return true; })) {
    }
    for (std::size_t l = 0; l < head_.size(); ++l)
      OVERTAKE_CHECK(head_[l] == plan_.lanes[l].tasks.size(),
                     "device {} waits for ever at {}: transfers cannot be put into one order", plan_.lanes[l].device,
                     plan_.graph.task_name(plan_.lanes[l].tasks[head_[l]]));
    check_delayed_first();
    return std::move(order_);
  }

 private:
  void find_meetings() {
    const Graph& g = plan_.graph;
    std::map<std::tuple<bool, Kind, std::int64_t>, std::uint32_t> known;
    for (TaskId t = 0; t < g.tasks.size(); ++t) {
      const Task& task = g.tasks[t];
      if (task.op != Op::transfer || lane_of_[t] == kNone) continue;
      const Attrs& attrs = g.attrs_of(task);
      const std::int64_t number = attrs.integer(is_message(task) ? "message" : "collective");
      const auto key = std::tuple(is_message(task), is_message(task) ? Kind::send : task.kind, number);
      const auto [it, is_new] = known.try_emplace(key, static_cast<std::uint32_t>(meetings_.size()));
      if (is_new) meetings_.emplace_back();
      meetings_[it->second].push_back(t);
      meeting_of_[t] = it->second;
    }
    for (const std::vector<TaskId>& m : meetings_) {
      const Task& task = g.tasks[m[0]];
      const std::size_t members = is_message(task) ? 2 : g.attrs_of(task).integers("members").size();
      OVERTAKE_CHECK(m.size() == members, "{} has {} ends instead of {}", g.task_name(m[0]), m.size(), members);
    }
  }

  // Each lane goes on by one task at most, so that all come along as they would if all tasks took as long.
  template <class May>
  bool pass(const May& may) {
    bool has_moved = false;
    for (std::size_t l = 0; l < head_.size(); ++l) {
      if (head_[l] == plan_.lanes[l].tasks.size()) continue;
      const TaskId t = plan_.lanes[l].tasks[head_[l]];
      if (!may(t)) continue;
      const bool can = meeting_of_[t] == kNone ? can_run(t) : can_meet(meetings_[meeting_of_[t]]);
      if (!can) continue;
      has_moved = true;
      if (meeting_of_[t] == kNone) {
        end(t);
        continue;
      }
      order_.push_back(meetings_[meeting_of_[t]]);
      for (const TaskId member : order_.back()) end(member);
    }
    return has_moved;
  }
  bool can_meet(const std::vector<TaskId>& members) const {
    return std::ranges::all_of(members, [&](TaskId t) { return can_run(t); });
  }
  bool can_run(TaskId t) const {
    if (head_[lane_of_[t]] != place_of_[t]) return false;
    return std::ranges::all_of(deps_.of(t), [&](TaskId before) {
      const bool is_at_once = meeting_of_[t] != kNone && meeting_of_[t] == meeting_of_[before];
      return done_[before] != 0 || is_at_once || lane_of_[before] == kNone;
    });
  }
  void end(TaskId t) {
    done_[t] = 1;
    ++head_[lane_of_[t]];
  }

  void check_delayed_first() const {
    const Graph& g = plan_.graph;
    std::set<Channel> has_others;
    for (const std::vector<TaskId>& m : order_) {
      const Task& task = g.tasks[m[0]];
      const Channel channel = channel_of(g, task, task.device);
      if (!task.is_delayed) has_others.insert(channel);
      OVERTAKE_CHECK(!task.is_delayed || !has_others.contains(channel), "{} is delayed, but comes after others of {}",
                     g.task_name(m[0]), to_string(channel));
    }
  }

  const Plan& plan_;
  Dependencies deps_;
  std::vector<std::uint32_t> lane_of_, place_of_;  // per task
  std::vector<std::uint32_t> meeting_of_;          // per task; kNone: no transfer
  std::vector<std::vector<TaskId>> meetings_;
  std::vector<char> done_;
  std::vector<std::size_t> head_;  // per lane
  std::vector<std::vector<TaskId>> order_;
};

}  // namespace

std::string to_string(const Channel& channel) {
  return fmt::format("{}", fmt::join(channel.devices, channel.use == Channel::Use::messages ? ">" : "+"));
}

Channel channel_of(const Graph& graph, const Task& transfer, std::int64_t device) {
  OVERTAKE_CHECK(transfer.op == Op::transfer, "{} is no transfer", to_string(transfer.op));
  const Attrs& attrs = graph.attrs_of(transfer);
  if (!is_message(transfer)) return {Channel::Use::collectives, attrs.integers("members")};
  const std::int64_t peer = attrs.integer("peer");
  const bool is_sender = transfer.kind == Kind::send;
  return {Channel::Use::messages, {is_sender ? device : peer, is_sender ? peer : device}};
}

std::vector<Channel> channels_of(const Plan& whole) {
  std::set<Channel> all;
  for (const Task& t : whole.graph.tasks)
    if (t.op == Op::transfer) all.insert(channel_of(whole.graph, t, t.device));
  return {all.begin(), all.end()};
}

Plan with_transfer_turns(Plan whole) {
  std::int64_t turn = 0;
  for (const std::vector<TaskId>& together : Rehearsal(whole).run()) {
    for (const TaskId t : together) {
      Attrs attrs = whole.graph.attrs_of(whole.graph.tasks[t]);
      attrs.set("turn", turn);
      whole.graph.tasks[t].attrs = whole.graph.add_attrs(attrs);
    }
    ++turn;
  }
  return whole;
}

}  // namespace overtake
