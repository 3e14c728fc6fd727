#include "exec/cuda/description.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace overtake {

CudaDescription describe_cuda() {
  CudaDescription out{.is_built_in = true, .note = "", .gpus = {}};
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    out.note = fmt::format("no GPU: {}", cudaGetErrorString(error));
    return out;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) continue;
    out.gpus.push_back({.model = p.name,
                        .multiprocessors = p.multiProcessorCount,
                        .memory_bytes = static_cast<std::int64_t>(p.totalGlobalMem),
                        .capability = fmt::format("{}.{}", p.major, p.minor)});
  }
  return out;
}

}  // namespace overtake
