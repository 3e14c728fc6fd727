#pragma once
// 2-D convolution and its two gradients on oneDNN. Activations are channels-last. Each class is built for one shape, on
// a thread whose OpenMP thread count is 1, and run on any such thread, many at once. The three directions want the
// weights in three layouts; reorder.h converts. InternalError naming the shape if oneDNN has no implementation.

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/cpu/conv_shape.h"
#include "overtake/layout.h"

namespace overtake::kernels {

// Whether bf16 convolutions run on bf16 instructions of this CPU rather than being emulated.
bool has_fast_bf16();

// Pointers below are float or bf16 as ConvShape says, bias and gradients of parameters always float. Weights have
// padded_elements(weight_layout(), weight_dims(shape)) elements, the padding zero. scratch: scratch_bytes() bytes
// aligned to 64, not shared between concurrent runs, null allowed if 0.

class ConvForward {
 public:
  explicit ConvForward(const ConvShape& shape);
  ~ConvForward();
  ConvForward(ConvForward&&) noexcept;
  ConvForward& operator=(ConvForward&&) noexcept;

  const Layout& weight_layout() const;
  std::size_t scratch_bytes() const;
  const std::string& implementation() const;  // oneDNN's name for it, for reports

  // x: [batch][in_h][in_w][in_channels], bias: [out_channels] or null without bias,
  // y: [batch][out_h][out_w][out_channels].
  void run(const void* x, const void* weight, const float* bias, void* y, void* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

class ConvInputGrad {
 public:
  explicit ConvInputGrad(const ConvShape& shape);
  ~ConvInputGrad();
  ConvInputGrad(ConvInputGrad&&) noexcept;
  ConvInputGrad& operator=(ConvInputGrad&&) noexcept;

  const Layout& weight_layout() const;
  std::size_t scratch_bytes() const;
  const std::string& implementation() const;

  // dy: [batch][out_h][out_w][out_channels], dx: [batch][in_h][in_w][in_channels], overwritten.
  void run(const void* dy, const void* weight, void* dx, void* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

class ConvWeightGrad {
 public:
  explicit ConvWeightGrad(const ConvShape& shape);
  ~ConvWeightGrad();
  ConvWeightGrad(ConvWeightGrad&&) noexcept;
  ConvWeightGrad& operator=(ConvWeightGrad&&) noexcept;

  const Layout& weight_layout() const;
  std::size_t scratch_bytes() const;
  const std::string& implementation() const;  // "overtake:depthwise" where our own kernel is used

  // dw: float in weight_layout(), padding written as zero; dbias: float [out_channels], null without bias. Both are
  // the sums over this part of the batch, overwritten.
  void run(const void* x, const void* dy, float* dw, float* dbias, void* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace overtake::kernels
