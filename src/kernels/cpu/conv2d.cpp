#include "kernels/cpu/conv2d.h"

#include "base/bf16.h"
#include "base/error.h"
#include "kernels/cpu/depthwise_weight_grad.h"
#include "kernels/cpu/onednn.h"

namespace overtake::kernels {
namespace {

using dnnl::memory;

constexpr auto kDirect = dnnl::algorithm::convolution_direct;

// The descriptors the three directions share. weights and bias stay undecided ("any") or as given.
struct ConvDescriptors {
  memory::desc x, y, weight, dw, bias;
  memory::dims stride, dilation, pad_begin, pad_end;

  explicit ConvDescriptors(const ConvShape& s)
      : x({s.batch, s.in_channels, s.in_h, s.in_w}, onednn_type(s.bf16), memory::format_tag::nhwc),
        y({s.batch, s.out_channels, s.out_h, s.out_w}, onednn_type(s.bf16), memory::format_tag::nhwc),
        weight(weight_dims(s), onednn_type(s.bf16), memory::format_tag::any),
        dw(weight_dims(s), onednn_type(false), memory::format_tag::any),
        stride{s.stride_h, s.stride_w},
        dilation{s.dilation_h - 1, s.dilation_w - 1},  // oneDNN counts the zeros in between
        pad_begin{s.pad_top, s.pad_left},
        pad_end{s.pad_bottom, s.pad_right} {
    if (s.bias) bias = memory::desc({s.out_channels}, onednn_type(false), memory::format_tag::x);
  }
};

// Runs `make`, turning oneDNN's refusal into an error that names the shape.
template <class Make>
auto describe(const char* direction, const ConvShape& shape, Make make) {
  require_one_openmp_thread();
  try {
    return make();
  } catch (const dnnl::error& error) {
    throw InternalError(fmt::format("conv2d {}: oneDNN cannot do {}: {}", direction, to_string(shape), error.what()));
  }
}

dnnl::convolution_forward::primitive_desc forward_description(const ConvShape& shape) {
  return describe("forward", shape, [&] {
    const ConvDescriptors d(shape);
    const auto kind = dnnl::prop_kind::forward_training;
    const dnnl::convolution_forward::desc operation =
        shape.bias ? dnnl::convolution_forward::desc(kind, kDirect, d.x, d.weight, d.bias, d.y, d.stride, d.dilation,
                                                     d.pad_begin, d.pad_end)
                   : dnnl::convolution_forward::desc(kind, kDirect, d.x, d.weight, d.y, d.stride, d.dilation,
                                                     d.pad_begin, d.pad_end);
    return dnnl::convolution_forward::primitive_desc(operation, caller_scratch(), onednn_engine());
  });
}

dnnl::convolution_backward_data::primitive_desc input_grad_description(const ConvShape& shape) {
  const auto hint = forward_description(shape);
  return describe("input_grad", shape, [&] {
    const ConvDescriptors d(shape);
    const dnnl::convolution_backward_data::desc operation(kDirect, d.x, d.weight, d.y, d.stride, d.dilation,
                                                          d.pad_begin, d.pad_end);
    return dnnl::convolution_backward_data::primitive_desc(operation, caller_scratch(), onednn_engine(), hint);
  });
}

dnnl::convolution_backward_weights::primitive_desc weight_grad_description(const ConvShape& shape) {
  const auto hint = forward_description(shape);
  return describe("weight_grad", shape, [&] {
    const ConvDescriptors d(shape);
    using Operation = dnnl::convolution_backward_weights::desc;
    const Operation operation =
        shape.bias ? Operation(kDirect, d.x, d.dw, d.bias, d.y, d.stride, d.dilation, d.pad_begin, d.pad_end)
                   : Operation(kDirect, d.x, d.dw, d.y, d.stride, d.dilation, d.pad_begin, d.pad_end);
    return dnnl::convolution_backward_weights::primitive_desc(operation, caller_scratch(), onednn_engine(), hint);
  });
}

}  // namespace

bool has_fast_bf16() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & wanted) == wanted;
}

struct ConvForward::Impl {
  ConvDescriptors descriptors;
  memory::desc weight;
  Layout layout;
  OneDnnPrimitive primitive;

  Impl(const ConvShape& shape, const dnnl::convolution_forward::primitive_desc& description)
      : descriptors(shape),
        weight(description.weights_desc()),
        layout(from_onednn(weight)),
        primitive(OneDnnPrimitive::make<dnnl::convolution_forward>(description)) {}
};

ConvForward::ConvForward(const ConvShape& shape)
    : impl_(std::make_unique<const Impl>(shape, forward_description(shape))) {}
ConvForward::~ConvForward() = default;
ConvForward::ConvForward(ConvForward&&) noexcept = default;
ConvForward& ConvForward::operator=(ConvForward&&) noexcept = default;
const Layout& ConvForward::weight_layout() const { return impl_->layout; }
std::size_t ConvForward::scratch_bytes() const { return impl_->primitive.scratch_bytes(); }
const std::string& ConvForward::implementation() const { return impl_->primitive.implementation(); }

void ConvForward::run(const void* x, const void* weight, const float* bias, void* y, void* scratch) const {
  const ConvDescriptors& d = impl_->descriptors;
  // Without a bias its descriptor is empty, which oneDNN reads as an argument not given.
  impl_->primitive.run({{DNNL_ARG_SRC, d.x, x},
                        {DNNL_ARG_WEIGHTS, impl_->weight, weight},
                        {DNNL_ARG_BIAS, d.bias, bias},
                        {DNNL_ARG_DST, d.y, y}},
                       scratch);
}

struct ConvInputGrad::Impl {
  ConvDescriptors descriptors;
  memory::desc weight;
  Layout layout;
  OneDnnPrimitive primitive;

  Impl(const ConvShape& shape, const dnnl::convolution_backward_data::primitive_desc& description)
      : descriptors(shape),
        weight(description.weights_desc()),
        layout(from_onednn(weight)),
        primitive(OneDnnPrimitive::make<dnnl::convolution_backward_data>(description)) {}
};

ConvInputGrad::ConvInputGrad(const ConvShape& shape)
    : impl_(std::make_unique<const Impl>(shape, input_grad_description(shape))) {}
ConvInputGrad::~ConvInputGrad() = default;
ConvInputGrad::ConvInputGrad(ConvInputGrad&&) noexcept = default;
ConvInputGrad& ConvInputGrad::operator=(ConvInputGrad&&) noexcept = default;
const Layout& ConvInputGrad::weight_layout() const { return impl_->layout; }
std::size_t ConvInputGrad::scratch_bytes() const { return impl_->primitive.scratch_bytes(); }
const std::string& ConvInputGrad::implementation() const { return impl_->primitive.implementation(); }

void ConvInputGrad::run(const void* dy, const void* weight, void* dx, void* scratch) const {
  const ConvDescriptors& d = impl_->descriptors;
  impl_->primitive.run(
      {{DNNL_ARG_DIFF_DST, d.y, dy}, {DNNL_ARG_WEIGHTS, impl_->weight, weight}, {DNNL_ARG_DIFF_SRC, d.x, dx}}, scratch);
}

struct ConvWeightGrad::Impl {
  ConvShape shape;
  ConvDescriptors descriptors;
  memory::desc weight;
  Layout layout;
  OneDnnPrimitive primitive;
  bool own_depthwise;  // oneDNN has no depthwise kernel for this shape and would run 16 x 16 channels for one
  std::string implementation;

  Impl(const ConvShape& conv, const dnnl::convolution_backward_weights::primitive_desc& description)
      : shape(conv),
        descriptors(conv),
        weight(description.diff_weights_desc()),
        layout(from_onednn(weight)),
        primitive(OneDnnPrimitive::make<dnnl::convolution_backward_weights>(description)),
        own_depthwise(depthwise_weight_grad_handles(conv) && !primitive.implementation().starts_with("jit_dw")),
        implementation(own_depthwise ? "overtake:depthwise" : primitive.implementation()) {
    if (own_depthwise) layout = canonical_layout(depthwise_weight_grad_layout(), weight_dims(conv));
  }
};

ConvWeightGrad::ConvWeightGrad(const ConvShape& shape)
    : impl_(std::make_unique<const Impl>(shape, weight_grad_description(shape))) {}
ConvWeightGrad::~ConvWeightGrad() = default;
ConvWeightGrad::ConvWeightGrad(ConvWeightGrad&&) noexcept = default;
ConvWeightGrad& ConvWeightGrad::operator=(ConvWeightGrad&&) noexcept = default;
const Layout& ConvWeightGrad::weight_layout() const { return impl_->layout; }
const std::string& ConvWeightGrad::implementation() const { return impl_->implementation; }

std::size_t ConvWeightGrad::scratch_bytes() const {
  return impl_->own_depthwise ? depthwise_weight_grad_scratch_bytes(impl_->shape) : impl_->primitive.scratch_bytes();
}

void ConvWeightGrad::run(const void* x, const void* dy, float* dw, float* dbias, void* scratch) const {
  const ConvShape& shape = impl_->shape;
  if (impl_->own_depthwise && shape.bf16) {
    depthwise_weight_grad(shape, static_cast<const bf16*>(x), static_cast<const bf16*>(dy), dw, dbias, scratch);
    return;
  }
  if (impl_->own_depthwise) {
    depthwise_weight_grad(shape, static_cast<const float*>(x), static_cast<const float*>(dy), dw, dbias, scratch);
    return;
  }
  const ConvDescriptors& d = impl_->descriptors;
  impl_->primitive.run({{DNNL_ARG_SRC, d.x, x},
                        {DNNL_ARG_DIFF_DST, d.y, dy},
                        {DNNL_ARG_DIFF_WEIGHTS, impl_->weight, dw},
                        {DNNL_ARG_DIFF_BIAS, d.bias, dbias}},
                       scratch);
}

}  // namespace overtake::kernels
