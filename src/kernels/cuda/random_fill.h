#pragma once
// Numbers to measure with: a GPU's clock, and so an algorithm's time, depends on the bits that flow.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/element_type.h"

namespace overtake::cuda {

// values [count] = uniform in [-1, 1), a function of seed and place.
void random_fill(cudaStream_t stream, ElementType type, void* values, std::int64_t count, std::uint32_t seed);

// Device memory of its own, for the time of a measurement. Not for the inside of a capture.
class TemporaryArray {
 public:
  // Filled with random values. A std::runtime_error where there is no memory left.
  TemporaryArray(ElementType type, std::int64_t count, std::uint32_t seed);
  // Not filled.
  explicit TemporaryArray(std::size_t bytes);
  ~TemporaryArray();
  TemporaryArray(TemporaryArray&& other) noexcept;
  TemporaryArray& operator=(TemporaryArray&&) = delete;

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace overtake::cuda
