#include "exec/cuda/description.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/format.h>

#include "exec/cuda/sm_partition.h"

namespace overtake {
namespace {

// "13.0" of 13000.
std::string cuda_version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

// "9.19.0" of 91900, "13.1.0" of 130100.
std::string library_version(std::size_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

}  // namespace

CudaDescription describe_cuda() {
  CudaDescription out{.is_built_in = true, .note = "", .libraries = {}, .gpus = {}};
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  out.libraries = {fmt::format("CUDA {}", cuda_version(runtime)),
                   driver == 0 ? "no driver" : fmt::format("driver for CUDA {}", cuda_version(driver)),
                   fmt::format("cuDNN {}", library_version(cudnnGetVersion())),
                   fmt::format("cuBLASLt {}", library_version(cublasLtGetVersion()))};
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
                        .capability = fmt::format("{}.{}", p.major, p.minor),
                        .virtual_gpu_sms = virtual_gpu_sizes(i)});
  }
  return out;
}

}  // namespace overtake
