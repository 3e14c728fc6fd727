#include "exec/cuda/handles.h"

#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace overtake {

void check_cuda_call(cudaError_t error, const char* what) {
  OVERTAKE_CHECK(error == cudaSuccess, "CUDA: {}: {}", what, cudaGetErrorString(error));
}

CudaStream make_stream(int priority) {
  cudaStream_t stream = nullptr;
  check_cuda_call(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "making a stream");
  return CudaStream(stream);
}

CudaEvent make_event(bool timed) {
  cudaEvent_t event = nullptr;
  check_cuda_call(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
                  "making an event");
  return CudaEvent(event);
}

std::int64_t nanoseconds_between(const CudaEvent& a, const CudaEvent& b) {
  float ms = 0;
  check_cuda_call(cudaEventElapsedTime(&ms, a.get(), b.get()), "reading the time between events");
  return std::llround(static_cast<double>(ms) * 1e6);
}

DeviceMemory::DeviceMemory(std::size_t bytes, const char* what) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is told below, not again at the next call
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    fail_user("`device cuda`: the GPU has no {} of memory left for {}, {} of its {} are free; lower `batch`",
              format_bytes(static_cast<std::int64_t>(bytes)), what, format_bytes(static_cast<std::int64_t>(free)),
              format_bytes(static_cast<std::int64_t>(total)));
  }
  check_cuda_call(error, "taking device memory");
  memory_ = decltype(memory_)(static_cast<std::byte*>(memory));
}

PinnedMemory::PinnedMemory(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda_call(cudaHostAlloc(&memory, bytes == 0 ? 1 : bytes, cudaHostAllocMapped), "taking pinned host memory");
  memory_ = decltype(memory_)(static_cast<std::byte*>(memory));
}

}  // namespace overtake
