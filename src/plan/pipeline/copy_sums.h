#pragma once
// Two-way layouts have a chunk on several devices: its weight gradients must be brought together before the update.

#include <cstdint>
#include <span>
#include <vector>

#include "plan/pipeline/schedule.h"

namespace overtake {

class CopySums {
 public:
  CopySums(const PipelineProblem& problem, const PipelineLayout& layout);

  // Whether nothing has to be summed, or it takes no time.
  bool is_empty() const { return sums_.empty(); }
  // When the last sum is there. `done_ns` is by chunk: when all its weight gradients were computed, on all devices. A
  // sum begins then, beside what its devices compute; a device takes part in one at a time, as they come.
  std::int64_t end(std::span<const std::int64_t> done_ns);
  // Of the last call, the chunk whose gradients the last sum waited for, be it by way of others; kNone: there was none.
  std::uint32_t waited_for() const { return waited_for_; }

 private:
  struct Sum {
    std::uint32_t chunk = 0;
    std::vector<std::uint32_t> devices;
    std::int64_t ns = 0;
  };
  std::vector<Sum> sums_;
  std::uint32_t waited_for_ = kNone;
  // Scratch, by device: when its last sum ends, and the chunk which that one waited for.
  struct Busy {
    std::int64_t until_ns = 0;
    std::uint32_t chunk = kNone;
  };
  std::vector<Busy> busy_;
};

}  // namespace overtake
