#include "plan/divide/detail_transfers.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {

// Who belongs together: both ends of messages, and the members of each collective by device.
DetailTransfers::DetailTransfers(const Graph& step, const Outline& cluster, DetailStep& to)
    : step_(step), in_(cluster.plan.graph), to_(to) {
  for (TaskId t = 0; t < in_.tasks.size(); ++t) {
    if (in_.tasks[t].op != Op::transfer) continue;
    if (in_.tasks[t].kind == Kind::send) messages_[in_.writes(t)[0]].send = t;
    if (in_.tasks[t].kind == Kind::recv) messages_[in_.reads(t)[0]].recv = t;
    const Attrs& attrs = in_.attrs_of(in_.tasks[t]);
    if (!attrs.has("collective")) continue;
    collectives_[{in_.tasks[t].kind, attrs.integer("collective")}].push_back(t);
  }
  for (auto& [id, tasks] : collectives_) std::ranges::sort(tasks, {}, [&](TaskId t) { return in_.tasks[t].device; });
}

BufferId DetailTransfers::add_flat(std::string_view name, std::uint32_t device, std::int64_t elements, DType dtype,
                                   Role role) {
  const BufferId b = to_.graph().add_buffer(name, {elements}, dtype, role);
  to_.graph().buffers[b].device = static_cast<std::uint16_t>(device);
  return b;
}

const std::vector<TaskId>& DetailTransfers::members_of(TaskId collective) const {
  const Task& task = in_.tasks[collective];
  return collectives_.at({task.kind, in_.attrs_of(task).integer("collective")});
}

std::vector<BufferId> DetailTransfers::instances(std::span<const BufferId> of_cluster) {
  std::vector<BufferId> all;
  for (const BufferId c : of_cluster)
    for (const BufferId b : to_.members(c)) {
      if (!to_.is_tied(c)) {
        all.push_back(to_.instance(c, b));
        continue;
      }
      const std::vector<BufferId> each = to_.groups(c, b);
      all.insert(all.end(), each.begin(), each.end());
    }
  return all;
}

void DetailTransfers::add_collective(TaskId t) {
  const Task& task = in_.tasks[t];
  const std::vector<TaskId>& all = members_of(t);
  std::vector<BufferId> reads;
  std::vector<std::int64_t> devices;
  for (const TaskId member : all) {
    devices.push_back(in_.tasks[member].device);
    const std::vector<BufferId> theirs =
        task.kind == Kind::all_gather ? parts_of(member, in_.reads(member)) : instances(in_.reads(member));
    reads.insert(reads.end(), theirs.begin(), theirs.end());
  }
  const std::vector<BufferId> writes =
      task.kind == Kind::reduce_scatter ? parts_of(t, in_.writes(t)) : instances(in_.writes(t));
  Attrs attrs = in_.attrs_of(task);
  attrs.set("members", devices);
  attrs.set("index", static_cast<std::int64_t>(std::ranges::find(all, t) - all.begin()));
  to_.add_task(t, task.kind, Op::transfer, to_.graph().add_layer(in_.layer_name(task.layer)),
               to_.graph().add_attrs(attrs), reads, writes);
}

// This member's parts of the sums, each a vector.
std::vector<BufferId> DetailTransfers::parts_of(TaskId member, std::span<const BufferId> of_cluster) {
  const std::vector<TaskId>& all = members_of(member);
  const std::int64_t n = std::ssize(all), index = std::ranges::find(all, member) - all.begin();
  std::vector<BufferId> parts;
  for (const BufferId c : of_cluster)
    for (const BufferId b : to_.members(c)) {
      BufferId& known = parts_[{c, b}];
      const std::int64_t count = step_.bytes(b) / bytes_of(step_.buffers[b].dtype);
      if (known == 0)
        known = 1 + add_flat(step_.buffer_name(b), in_.tasks[member].device, count / n + (index < count % n ? 1 : 0),
                             step_.buffers[b].dtype, Role::weight_gradient);
      parts.push_back(known - 1);
    }
  return parts;
}

void DetailTransfers::add_send(TaskId t) {
  const std::vector<BufferId> reads = instances(in_.reads(t));
  Message& message = messages_.at(in_.writes(t)[0]);
  OVERTAKE_CHECK(message.recv != kNone, "nobody receives {}", in_.task_name(t));
  message.token = add_flat("message", in_.tasks[t].device, 0, DType::u8, Role::activation);
  to_.add_task(t, Kind::send, Op::transfer, to_.graph().add_layer(in_.layer_name(in_.tasks[t].layer)),
               message_attrs(t, in_.tasks[message.recv].device), reads, {&message.token, 1});
}

void DetailTransfers::add_recv(TaskId t) {
  const Message& message = messages_.at(in_.reads(t)[0]);
  std::vector<BufferId> reads = {message.token};
  const std::vector<BufferId> sources = instances(in_.reads(message.send));
  reads.insert(reads.end(), sources.begin(), sources.end());
  to_.add_task(t, Kind::recv, Op::transfer, to_.graph().add_layer(in_.layer_name(in_.tasks[t].layer)),
               message_attrs(message.send, in_.tasks[message.send].device), reads, instances(in_.writes(t)));
}

AttrsId DetailTransfers::message_attrs(TaskId sender, std::uint32_t peer) {
  const auto is_of_forward = [&](BufferId b) {
    return is_persistent(step_.buffers[b].role) || step_.tasks[to_.writer_of(b)].kind == Kind::forward;
  };
  const bool is_forward = std::ranges::all_of(to_.members(in_.reads(sender)[0]), is_of_forward);
  return to_.graph().add_attrs({{"message", std::int64_t{sender}},
                                {"peer", std::int64_t{peer}},
                                {"forward", std::int64_t{is_forward && !in_.tasks[sender].is_delayed}}});
}

}  // namespace overtake
