#pragma once
// One GPU made ready: its precision, what was measured of libraries' kernels, and those kernels, one per shape, shared
// by all plans that run on it.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "exec/backend.h"
#include "exec/cuda/ranks.h"
#include "exec/cuda/sm_partition.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/conv2d.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/tuning.h"

namespace overtake {

class CudaDevice {
 public:
  CudaDevice(int gpu, const BackendOptions& options);
  ~CudaDevice();

  Precision precision() const { return precision_; }
  bool uses_graph() const { return uses_graph_; }
  // Null: side lanes may use the whole GPU.
  const SmPartition* side_partition() const { return side_partition_ ? &*side_partition_ : nullptr; }
  // Null: the devices of plans share the whole GPU.
  const VirtualGpus* virtual_gpus() const { return virtual_gpus_ ? &*virtual_gpus_ : nullptr; }
  const VirtualLink& virtual_link() const { return virtual_link_; }
  // The other processes that plans are parts for, if there are any.
  GpuRanks& ranks() { return ranks_; }
  // That a kernel of the first lane of a device can count on.
  int multiprocessors() const;
  bool has_tf32() const { return precision_ != Precision::f32; }

  // Made at the first call of a shape; they stay where they are.
  const cuda::Conv& conv(const cuda::ConvKind& kind);
  bool takes_pitches(const cuda::ConvKind& kind);  // whether it is worth having, where its images have pitches
  const cuda::Product& product(const cuda::ProductShape& shape);
  const cuda::AttentionForward& attention_forward(const cuda::AttentionKind& kind);
  const cuda::AttentionBackward& attention_backward(const cuda::AttentionKind& kind);

  // Keeps what was measured for the next run.
  void save_tuning();

 private:
  template <class Shape, class Kernel>
  using Made = std::vector<std::pair<Shape, std::unique_ptr<const Kernel>>>;

  Precision precision_;
  bool uses_graph_;
  std::optional<SmPartition> side_partition_;
  std::optional<VirtualGpus> virtual_gpus_;
  VirtualLink virtual_link_;
  GpuRanks ranks_;
  std::vector<CudaStream> part_streams_;  // one of each part of the GPU that lanes have for themselves
  std::unique_ptr<cuda::Tuning> tuning_;
  Made<cuda::ConvKind, cuda::Conv> convs_;
  std::vector<std::pair<cuda::ConvKind, bool>> pitched_convs_;  // whether they are worth having
  Made<cuda::ProductShape, cuda::Product> products_;
  Made<cuda::AttentionKind, cuda::AttentionForward> attention_forwards_;
  Made<cuda::AttentionKind, cuda::AttentionBackward> attention_backwards_;
};

}  // namespace overtake
