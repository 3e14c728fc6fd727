#pragma once
// Arrays on the GPU for tests of CUDA kernels.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace overtake {

inline bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

#define OVERTAKE_NEEDS_GPU() \
  if (!has_gpu()) GTEST_SKIP() << "no GPU here"

inline void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}

// n elements in GPU memory of their own, so that a sanitizer sees each access past the end.
template <class T>
class DeviceArray {
 public:
  // All bytes 0xFF: every float and bf16 is NaN until a kernel writes it.
  explicit DeviceArray(std::size_t n) : size_(n) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), bytes() > 0 ? bytes() : 1), "cudaMalloc");
    check_cuda(cudaMemset(data_, 0xFF, bytes()), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaMemset");
  }

  DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    check_cuda(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), "upload");
  }

  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }

  // Waits for the device; what a kernel did wrong is raised here.
  std::vector<T> download() const {
    check_cuda(cudaDeviceSynchronize(), "kernel");
    std::vector<T> values(size_);
    check_cuda(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), "download");
    return values;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }

  T* data_ = nullptr;
  std::size_t size_;
};

}  // namespace overtake
