#pragma once

#include "exec/cuda/device.h"
#include "machine/gpu_target.h"

namespace overtake {

// What depends on the GPU and its libraries.
class CudaTarget final : public GpuTarget {
 public:
  explicit CudaTarget(CudaDevice& device) : device_(device) {}
  bool takes_pitch(const Graph& graph, const Task& task, std::size_t operand, std::int64_t pitch) const override;
  std::int64_t scratch_bytes(const Graph& graph, const Task& task) const override;

 private:
  CudaDevice& device_;
};

}  // namespace overtake
