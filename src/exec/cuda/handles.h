#pragma once
// CUDA's handles with an owner each, and the check of its calls.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace overtake {

// Throws an InternalError that names what was done, unless it is success.
void check_cuda_call(cudaError_t error, const char* what);

template <class Handle, auto destroy>
class CudaOwned {
 public:
  CudaOwned() = default;
  explicit CudaOwned(Handle handle) : handle_(handle) {}
  CudaOwned(CudaOwned&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  CudaOwned& operator=(CudaOwned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaOwned() {
    if (handle_ != Handle{}) destroy(handle_);
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Handle{}; }

 private:
  Handle handle_{};
};

using CudaStream = CudaOwned<cudaStream_t, cudaStreamDestroy>;
using CudaEvent = CudaOwned<cudaEvent_t, cudaEventDestroy>;
using CudaGraphExec = CudaOwned<cudaGraphExec_t, cudaGraphExecDestroy>;

CudaStream make_stream(int priority);
CudaEvent make_event(bool timed);
// Of timed ones that have happened.
std::int64_t nanoseconds_between(const CudaEvent& a, const CudaEvent& b);

inline void free_device_memory(std::byte* p) { cudaFree(p); }
inline void free_pinned_memory(std::byte* p) { cudaFreeHost(p); }

// Device memory; `what` is for the error when there is not enough.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::size_t bytes, const char* what);
  std::byte* data() const { return memory_.get(); }

 private:
  CudaOwned<std::byte*, free_device_memory> memory_;
};

// Host memory that the device can copy from, and write to, on its own.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::size_t bytes);
  std::byte* data() const { return memory_.get(); }

 private:
  CudaOwned<std::byte*, free_pinned_memory> memory_;
};

}  // namespace overtake
