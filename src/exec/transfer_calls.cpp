#include "exec/transfer_calls.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"

namespace overtake {
namespace {

bool is_message(Kind kind) { return kind == Kind::send || kind == Kind::recv; }

std::string describe(const TransferCall& call) {
  std::int64_t elements = 0;
  for (const MovedBuffer& m : call.moved) elements += m.count;
  return fmt::format("{} {} ({} buffers, {} elements)", to_string(call.kind), call.number, call.moved.size(), elements);
}

bool belong_together(const TransferCall& a, const TransferCall& b) {
  const bool are_alike = is_message(a.kind) ? is_message(b.kind) && a.kind != b.kind : a.kind == b.kind;
  return are_alike && a.number == b.number && std::ranges::equal(a.moved, b.moved, [](const auto& x, const auto& y) {
           return x.count == y.count && x.dtype == y.dtype;
         });
}

// By channel and device: the calls of that device there, as places among all of its calls.
using Places = std::map<Channel, std::map<std::int64_t, std::vector<std::size_t>>>;

void check_channels(const std::vector<std::vector<TransferCall>>& by_device, const Places& places) {
  for (const auto& [channel, members] : places) {
    const std::int64_t first = channel.devices.front();
    for (const std::int64_t device : channel.devices)
      OVERTAKE_CHECK(members.contains(device), "channel {}: device {} calls nothing there", to_string(channel), device);
    OVERTAKE_CHECK(members.size() == channel.devices.size(), "channel {}: a device that is not in it calls there",
                   to_string(channel));
    const auto call = [&](std::int64_t device, std::size_t i) -> const TransferCall& {
      return by_device[static_cast<std::size_t>(device)][members.at(device)[i]];
    };
    for (const auto& [device, theirs] : members) {
      if (device == first) continue;
      const std::size_t count = members.at(first).size();
      OVERTAKE_CHECK(theirs.size() == count, "channel {}: device {} makes {} calls, device {} {}", to_string(channel),
                     first, count, device, theirs.size());
      for (std::size_t i = 0; i < count; ++i)
        OVERTAKE_CHECK(belong_together(call(first, i), call(device, i)),
                       "channel {}, call {}: device {} has {}, device {} {}", to_string(channel), i, first,
                       describe(call(first, i)), device, describe(call(device, i)));
    }
  }
}

}  // namespace

TransferCall transfer_call(const Graph& g, const Task& task, std::int64_t device) {
  const Kind kind = task.kind;
  const bool is_whole_read = kind == Kind::send || kind == Kind::reduce_scatter;
  TransferCall call{.channel = channel_of(g, task, device),
                    .kind = kind,
                    .number = g.attrs_of(task).integer(is_message(kind) ? "message" : "collective"),
                    .moved = {}};
  for (const BufferId b : is_whole_read ? g.reads(task) : g.writes(task)) {
    // What is moved is moved as it lies in memory, from the first byte to the last.
    OVERTAKE_CHECK(g.buffers[b].layout.pitch == 0, "buffer {} has gaps and cannot be moved", g.buffer_name(b));
    const DType dtype = is_message(kind) ? DType::u8 : g.buffers[b].dtype;
    call.moved.push_back({b, g.bytes(b) / bytes_of(dtype), dtype});
  }
  return call;
}

std::vector<TransferCall> transfer_calls(const Plan& part, std::int64_t device, Portion portion) {
  std::vector<TransferCall> calls;
  for (const TaskId t : one_order(part, portion))
    if (part.graph.tasks[t].op == Op::transfer) calls.push_back(transfer_call(part.graph, part.graph.tasks[t], device));
  return calls;
}

void check_calls(const std::vector<std::vector<TransferCall>>& by_device) {
  Places places;
  for (std::size_t d = 0; d < by_device.size(); ++d)
    for (std::size_t i = 0; i < by_device[d].size(); ++i)
      places[by_device[d][i].channel][static_cast<std::int64_t>(d)].push_back(i);
  check_channels(by_device, places);

  // The n-th calls of a channel's members belong together; one is done when all are the next of their devices.
  std::vector<std::size_t> next(by_device.size(), 0);
  const auto is_at = [&](std::int64_t device, const Channel& channel) {
    const auto d = static_cast<std::size_t>(device);
    return next[d] < by_device[d].size() && by_device[d][next[d]].channel == channel;
  };
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (std::size_t d = 0; d < by_device.size(); ++d)
      while (next[d] < by_device[d].size()) {
        const Channel& channel = by_device[d][next[d]].channel;
        if (!std::ranges::all_of(channel.devices, [&](std::int64_t m) { return is_at(m, channel); })) break;
        for (const std::int64_t m : channel.devices) ++next[static_cast<std::size_t>(m)];
        has_moved = true;
      }
  }
  std::string stuck;
  for (std::size_t d = 0; d < by_device.size(); ++d)
    if (next[d] < by_device[d].size())
      stuck += fmt::format("; device {} at {} of channel {}", d, describe(by_device[d][next[d]]),
                           to_string(by_device[d][next[d]].channel));
  OVERTAKE_CHECK(stuck.empty(), "devices wait for each other{}", stuck);
}

}  // namespace overtake
