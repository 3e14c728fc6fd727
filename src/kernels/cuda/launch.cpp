#include "kernels/cuda/launch.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <limits>
#include <stdexcept>

namespace overtake::cuda {

void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw std::runtime_error(fmt::format("CUDA kernel {}: launch failed: {}", kernel, cudaGetErrorString(error)));
  }
}

unsigned grid_blocks(const char* kernel, std::int64_t blocks) {
  if (blocks < 1 || blocks > std::numeric_limits<std::int32_t>::max()) {
    throw std::runtime_error(fmt::format("CUDA kernel {}: {} blocks do not fit a grid", kernel, blocks));
  }
  return static_cast<unsigned>(blocks);
}

void require_aligned(const char* kernel, std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) {
      throw std::runtime_error(fmt::format("CUDA kernel {}: an array at {} is not 16-byte aligned", kernel, pointer));
    }
  }
}

}  // namespace overtake::cuda
