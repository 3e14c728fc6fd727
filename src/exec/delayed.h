#pragma once
// What executors share about tasks that run a step late.

#include <cstdint>

#include "base/error.h"

namespace overtake {

// A gradient that is not finite shows in the loss of the step after; this is for when there is none.
[[noreturn]] inline void fail_delayed_gradient(std::uint64_t step) {
  fail_user("step {}: a gradient is not finite, so its weight was not updated; lower `lr` or set `clip_norm`",
            step + 1);
}

}  // namespace overtake
