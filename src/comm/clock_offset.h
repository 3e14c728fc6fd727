#pragma once
// How far apart the clocks of two ranks are, from messages between them.

#include <cstdint>
#include <functional>
#include <span>

#include "comm/group.h"

namespace overtake {

// A question to rank 0 and its answer. The first and the last time are of this rank's clock, the other one of rank 0's.
struct PingPong {
  std::int64_t asked_ns = 0, answered_ns = 0, heard_ns = 0;
};

// This rank's time plus the offset is rank 0's, within the error on either side: rank 0 answered between question and
// answer, whatever each of them took on its way.
struct ClockOffset {
  std::int64_t offset_ns = 0;
  std::int64_t error_ns = 0;
};

// By the shortest round trip; at least one.
ClockOffset offset_from(std::span<const PingPong> rounds);

struct ClockOptions {
  int rounds = 32;
  std::uint64_t tag = 0;  // no other message between these ranks may have it
  int priority = 0;
  std::function<std::int64_t()> now_ns = {};  // the steady clock, where there is none
};

// All ranks call it at once; rank 0 answers one after the other. Throws CommError.
ClockOffset measure_clock_offset(Group& group, const ClockOptions& options);

}  // namespace overtake
