#pragma once
// What GPUs this build and this machine have. A build without CUDA links no_cuda.cpp.

#include <cstdint>
#include <string>
#include <vector>

namespace overtake {

struct GpuDescription {
  std::string model;
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::string capability;  // "9.0"
  // By number of virtual GPUs less one: the SMs of each; empty if the driver cannot split it.
  std::vector<unsigned> virtual_gpu_sms;
};

struct CudaDescription {
  bool is_built_in = false;
  std::string note;                    // why there are no GPUs, for people; empty if there are
  std::vector<std::string> libraries;  // "cuDNN 9.19.0"
  std::vector<GpuDescription> gpus;
};
CudaDescription describe_cuda();

}  // namespace overtake
