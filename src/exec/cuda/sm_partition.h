#pragma once
// Some of a GPU's SMs, set apart as a green context. What is enqueued on its streams runs on them and on no others; a
// graph captured from its streams keeps that for each of its kernels, whatever stream the graph is launched on.

#include <cuda.h>

#include <optional>
#include <vector>

#include "exec/cuda/handles.h"

namespace overtake {

class SmPartition {
 public:
  CudaStream make_stream(int priority) const;
  unsigned sms() const { return sms_; }

 private:
  friend class SmSplitter;
  static void destroy(CUgreenCtx context);
  SmPartition(CUgreenCtx context, unsigned sms) : context_(context), sms_(sms) {}

  CudaOwned<CUgreenCtx, destroy> context_;
  unsigned sms_;
};

// Of the current GPU, rounded up to what the hardware can set apart. User errors, which name `side_sms`: too many, or a
// driver without green contexts.
SmPartition make_side_partition(unsigned sms);

// The current GPU as several equal ones, as large as the hardware allows. What is left over, if anything, is for the
// copies between them. User errors, which name `virtual_gpus`: more than it can be split into, or a driver without
// green contexts.
struct VirtualGpus {
  std::vector<SmPartition> gpus;
  std::optional<SmPartition> rest;
};
VirtualGpus split_gpu(unsigned count);

// By number of virtual GPUs less one: the SMs that each would have. Empty where the driver cannot do it.
std::vector<unsigned> virtual_gpu_sizes(int gpu);

}  // namespace overtake
