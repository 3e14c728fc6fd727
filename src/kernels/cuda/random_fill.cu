#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/random_fill.h"

namespace overtake::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 132 * 8;

// A bijection of 32-bit words in which every bit of the result depends on every bit of the argument.
__device__ std::uint32_t scattered(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

template <class T>
__global__ void random_fill_kernel(T* values, std::int64_t count, std::uint32_t seed) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const auto place = static_cast<std::uint64_t>(i);
    const std::uint32_t word =
        scattered(static_cast<std::uint32_t>(place) ^ scattered(seed ^ static_cast<std::uint32_t>(place >> 32)));
    values[i] = access::narrow<T>(static_cast<float>(word >> 8) * 0x1p-23f - 1.0f);
  }
}

template <class T>
void fill(cudaStream_t stream, T* values, std::int64_t count, std::uint32_t seed) {
  const auto blocks = std::min(kMostBlocks, (count + kThreads - 1) / kThreads);
  random_fill_kernel<<<grid_blocks("random_fill", blocks), kThreads, 0, stream>>>(values, count, seed);
  check_launch("random_fill");
}

void check(cudaError_t error, const char* what, std::size_t bytes) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // no memory left is not an error of later calls
  throw std::runtime_error(std::string("CUDA: ") + what + " for a measurement, " + std::to_string(bytes) +
                           " bytes: " + cudaGetErrorString(error));
}

}  // namespace

void random_fill(cudaStream_t stream, ElementType type, void* values, std::int64_t count, std::uint32_t seed) {
  if (count == 0) return;
  if (type == ElementType::bf16) {
    fill(stream, static_cast<bf16*>(values), count, seed);
  } else {
    fill(stream, static_cast<float*>(values), count, seed);
  }
}

TemporaryArray::TemporaryArray(std::size_t bytes) {
  check(cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)), "memory", bytes);
}

TemporaryArray::TemporaryArray(ElementType type, std::int64_t count, std::uint32_t seed)
    : TemporaryArray(static_cast<std::size_t>(count) * bytes_of(type)) {
  random_fill(nullptr, type, data_, count, seed);
  check(cudaStreamSynchronize(nullptr), "random values", static_cast<std::size_t>(count) * bytes_of(type));
}

TemporaryArray::TemporaryArray(TemporaryArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

TemporaryArray::~TemporaryArray() { cudaFree(data_); }

}  // namespace overtake::cuda
