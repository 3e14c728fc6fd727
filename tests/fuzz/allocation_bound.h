#pragma once
// A bound on the memory of a fuzzing program, set for each input.

#include <cstddef>

namespace overtake::fuzz {

// No allocation may be larger than ten times the input.
inline constexpr std::size_t kMostPerByte = 10;
// All that are alive together: a value of JSON takes 16 to 90 bytes, and two of text.
inline constexpr std::size_t kMostPerByteTogether = 64;

// While it lives, an allocation beyond the bounds, whoever asks for it, ends the program. `room` comes on top of both:
// what does not depend on the input. When the program ends it says on stderr which was the largest.
class AllocationBound {
 public:
  AllocationBound(std::size_t input_bytes, std::size_t room);
  ~AllocationBound();
  AllocationBound(const AllocationBound&) = delete;
  AllocationBound& operator=(const AllocationBound&) = delete;

 private:
  std::size_t input_bytes_;
};

}  // namespace overtake::fuzz
