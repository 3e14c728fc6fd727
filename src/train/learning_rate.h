#pragma once
// The learning rate as a pure function of the step.

#include <cstdint>
#include <string_view>

namespace overtake {

struct LearningRateSchedule {
  enum class Kind : std::uint8_t { constant, step, cosine };

  Kind kind = Kind::constant;
  double base = 0.0;          // the rate at the end of the warm-up
  std::uint64_t warmup = 0;   // steps of linear growth to `base`; the cosine begins behind them
  std::uint64_t total = 0;    // cosine: the step at which the end is reached; it stays there
  std::uint64_t every = 0;    // step: `base` is multiplied by gamma every so many steps, counted from step 0
  double gamma = 1.0;         // step
  double end_fraction = 0.0;  // cosine: ends at base * end_fraction

  // The rate for the update of step `step`, counted from 0.
  float at(std::uint64_t step) const;
};

// spec: "constant", "step:EVERY:GAMMA" (EVERY in steps), "cosine" or "cosine:END_FRACTION". `total` is the number of
// steps of the whole run. User errors are about `lr_schedule`, `lr` or `warmup`.
LearningRateSchedule parse_schedule(std::string_view spec, double base, std::uint64_t warmup, std::uint64_t total);

}  // namespace overtake
