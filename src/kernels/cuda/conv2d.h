#pragma once
// 2-D convolution and its two gradients through cuDNN. Activations are [batch][h][w][channels], weights and their
// gradient [out_channels][kernel_h][kernel_w][in_channels / groups]. Sums are float32.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cpu/conv_shape.h"
#include "kernels/cuda/tuning.h"

namespace overtake::cuda {

enum class ConvTask : std::uint8_t { forward, input_grad, weight_grad };

struct ConvKind {
  kernels::ConvShape shape;  // shape.bf16: activations, weights and all gradients; shape.bias is not looked at
  ConvTask task = ConvTask::forward;
  bool bias = false;                      // forward: y = conv + bias
  std::int64_t x_pitch = 0, y_pitch = 0;  // elements from one pixel to the next, also of the gradients; 0: the channels
  bool tf32 = false;                      // float32 factors rounded to 10 bits of fraction for the matrix units
  bool operator==(const ConvKind&) const = default;
};

// A convolution made ready for one device. Any thread may run it.
class Conv {
 public:
  // A std::runtime_error where cuDNN has no plan for the kind within the workspace (and with sums of fixed order, if
  // the tuning's options want that).
  Conv(const ConvKind& kind, Tuning& tuning, std::size_t most_workspace);
  ~Conv();
  Conv(Conv&&) noexcept;
  Conv& operator=(Conv&&) noexcept;

  std::size_t workspace_bytes() const;
  const std::string& plan_name() const;   // cuDNN's, for reports
  double microseconds() const;            // as measured; 0 if the choice was kept from before or nothing is measured
  double measured(Tuning& tuning) const;  // the same, measured again where it was kept; std::runtime_error if it fails

  // Enqueues it. forward: a = x, b = w, out = y; input_grad: a = dy, b = w, out = dx; weight_grad: a = x, b = dy,
  // out = dw. bias: float [out_channels] or null. The workspace must not be used by anything that may run at the same
  // time.
  void run(cudaStream_t stream, const void* a, const void* b, const float* bias, void* out, void* workspace) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

// Whether cuDNN does a kind with pitches about as fast as the same with dense images: measured once and kept, as the
// choice of a plan is. Without measuring: whether it does it at all.
bool takes_pitches(const ConvKind& kind, Tuning& tuning, std::size_t most_workspace);

}  // namespace overtake::cuda
