#pragma once
// The transfers of one device as calls of communicators, and whether those of all devices fit together.

#include <cstdint>
#include <vector>

#include "exec/lane_order.h"
#include "plan/divide/transfer_turns.h"

namespace overtake {

// A buffer that is moved whole, or summed, or put together.
struct MovedBuffer {
  BufferId buffer = kNone;
  std::int64_t count = 0;
  DType dtype = DType::u8;
};

struct TransferCall {
  Channel channel;
  Kind kind = Kind::send;
  std::int64_t number = 0;  // of the message or the collective
  std::vector<MovedBuffer> moved;
};

// `device` is whose transfer it is.
TransferCall transfer_call(const Graph& graph, const Task& transfer, std::int64_t device);

// What the device's part of a plan calls, in the order in which an executor enqueues it.
std::vector<TransferCall> transfer_calls(const Plan& part, std::int64_t device, Portion portion);

// Checks the calls of all devices. On every channel all who are in it make the same ones, of the same sizes, in the
// same order; and if every device made its calls one by one, each until the others have come to it, none would wait for
// ever. Throws an InternalError that names devices and transfers.
void check_calls(const std::vector<std::vector<TransferCall>>& by_device);

}  // namespace overtake
