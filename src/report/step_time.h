#pragma once
// What a step takes, beside a timeline of some steps.

#include <cstdint>
#include <string>

namespace overtake {

// By more than the steps that are shown: the statistic that the command printed which traced them.
struct StepTime {
  std::int64_t ns = 0;
  std::string what;  // for people: "median of 10 measured steps"
};

}  // namespace overtake
