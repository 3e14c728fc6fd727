#pragma once
// A bound on the memory of a fuzzing program, set for each input.

#include <cstddef>

namespace overtake::fuzz {

// While it lives, more than so many bytes beyond what was allocated before, whoever asks for them, end the program.
class AllocationBound {
 public:
  explicit AllocationBound(std::size_t bytes);
  ~AllocationBound();
  AllocationBound(const AllocationBound&) = delete;
  AllocationBound& operator=(const AllocationBound&) = delete;
};

}  // namespace overtake::fuzz
