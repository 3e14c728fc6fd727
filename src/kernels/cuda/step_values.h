#pragma once
// What changes from step to step, in device memory: a captured graph keeps the address, not the numbers.

#include <cstdint>

namespace overtake::cuda {

struct StepValues {
  std::uint64_t step = 0;  // 0 for the first
  std::uint64_t seed = 0;
  std::uint64_t report = 0;  // where report_words() writes
  float learning_rate = 0;
};

}  // namespace overtake::cuda
