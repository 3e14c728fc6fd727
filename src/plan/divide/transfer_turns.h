#pragma once
// The order of transfers for devices that cannot start them in any order they like, as those that call NCCL: all who
// take part in one must come to it in the same order, or they wait for each other for ever.

#include <cstdint>
#include <string>
#include <vector>

#include "overtake/plan.h"

namespace overtake {

// What goes one after the other, for all who take part: messages from one device to another, or whatever a set of
// devices does together. Each has a communicator and a stream of its own, so different channels do not hold up one
// another.
struct Channel {
  enum class Use : std::uint8_t { messages, collectives };
  Use use = Use::messages;
  std::vector<std::int64_t> devices;  // of messages: from, to; of collectives: ascending
  auto operator<=>(const Channel&) const = default;
};
std::string to_string(const Channel& channel);  // "0>1", "0+2"

// Of a transfer. `device` is whose it is, which the part of a plan that one process has does not say.
Channel channel_of(const Graph& graph, const Task& transfer, std::int64_t device);
// Of a plan over all devices, each once, in ascending order.
std::vector<Channel> channels_of(const Plan& whole);

// The same plan, task by task and over all devices, with a turn for every transfer, as an attribute: the members of a
// collective, and both ends of a message, have the same, and nothing else has. A plan in which every device came to its
// transfers in the order of turns, and did nothing else while it waits for the others, would still run to its end. So
// whatever makes a transfer wait for one with an earlier turn (a stream, a communicator, a queue of the GPU) does no
// harm. Delayed transfers have the first turns: whether they are done with a step or before it, each channel sees the
// same order. An InternalError names the task at which there is no such order.
Plan with_transfer_turns(Plan whole);

}  // namespace overtake
