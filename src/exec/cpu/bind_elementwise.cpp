// Activation, dropout, add, mul, sum, softmax.

#include <limits>

#include "exec/cpu/activation_name.h"
#include "exec/cpu/bindings.h"
#include "kernels/cpu/binary.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/softmax.h"

namespace overtake {
namespace {

using kernels::blocks_of;

// Blocks of 1024 elements below which a part is not worth the hand-over to another thread.
constexpr std::int64_t kLeastBlocks = 8;

BoundTask activation(const TaskView& v) {
  const kernels::ActivationFunction function = activation_function(v.attrs());
  const bool is_forward = v.kind() == Kind::forward;
  OVERTAKE_CHECK(is_forward || v.has_read(kernels::backward_needs_input(function.kind) ? 0 : 1),
                 "layer {}: the derivative of {} gets the wrong operand", v.graph().layer_name(v.task().layer),
                 v.attrs().text("function"));
  const std::int64_t count = v.write(0).shape.elements(), blocks = blocks_of(count);
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *x = v.in<T>(0), *y = v.in<T>(1), *dy = v.in<T>(2);
    T* out = v.out<T>(0);
    return {over_units(parts_for(v, blocks, kLeastBlocks), blocks, [=](std::int64_t begin, std::int64_t end) {
      if (is_forward)
        kernels::activation_forward(function, x, out, count, begin, end);
      else
        kernels::activation_backward(function, x, y, dy, out, count, begin, end);
    })};
  });
}

BoundTask dropout(const TaskView& v) {
  const std::int64_t count = v.write(0).shape.elements(), blocks = blocks_of(count);
  const bool is_training = v.attrs().integer("training") != 0;
  const auto p = static_cast<float>(is_training ? v.attrs().real("p") : 0.0);
  const auto salt = static_cast<std::uint32_t>(v.attrs().integer("salt"));
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* x = v.in<T>(0);
    T* y = v.out<T>(0);
    return {over_units(parts_for(v, blocks, kLeastBlocks), blocks,
                       [=](std::int64_t begin, std::int64_t end, const StepArgs& args) {
                         const PhiloxKey key{static_cast<std::uint32_t>(args.seed),
                                             static_cast<std::uint32_t>(args.seed >> 32) ^ (salt * 0x9E3779B9u)};
                         kernels::dropout(key, args.step, p, x, y, count, begin, end);
                       })};
  });
}

// Strides, in the output's physical order of dimensions, of an operand broadcast to it; 0 where it stretches.
std::vector<std::int64_t> broadcast_strides(const Buffer& operand, const Buffer& out) {
  const std::size_t missing = static_cast<std::size_t>(out.shape.rank) - operand.shape.rank;
  std::vector<std::int64_t> logical(out.shape.rank, 0);
  std::int64_t stride = 1;
  for (std::size_t i = operand.shape.rank; i-- > 0;) {
    const std::size_t dim = operand.layout.order[i];
    if (operand.shape[dim] != 1) logical[missing + dim] = stride;
    stride *= operand.shape[dim];
  }
  std::vector<std::int64_t> physical;
  for (std::size_t i = 0; i < out.shape.rank; ++i) physical.push_back(logical[out.layout.order[i]]);
  return physical;
}

template <kernels::BinaryOp op>
BoundTask binary_forward(const TaskView& v) {
  const kernels::BinaryPlan plan = kernels::make_binary_plan(
      physical_dims(v.write(0)), broadcast_strides(v.read(0), v.write(0)), broadcast_strides(v.read(1), v.write(0)));
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *a = v.in<T>(0), *b = v.in<T>(1);
    T* y = v.out<T>(0);
    return {over_units(parts_for(v, plan.units, 4), plan.units, [=](std::int64_t begin, std::int64_t end) {
      kernels::binary_forward(op, plan, a, b, y, begin, end);
    })};
  });
}

// reads dy, other?; writes the gradient of an operand, whose shape says what is summed.
template <kernels::BinaryOp op>
kernels::BinaryGradPlan grad_plan(const TaskView& v) {
  const Buffer& dy = v.read(0);
  const std::vector<std::int64_t> other =
      v.has_read(1) ? broadcast_strides(v.read(1), dy) : std::vector<std::int64_t>{};
  return kernels::make_binary_grad_plan(op, physical_dims(dy), broadcast_strides(v.write(0), dy), other);
}

template <kernels::BinaryOp op>
BoundTask binary(const TaskView& v) {
  if (v.kind() == Kind::forward) return binary_forward<op>(v);
  const kernels::BinaryGradPlan plan = grad_plan<op>(v);
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *dy = v.in<T>(0), *other = v.in<T>(1);
    T* grad = v.out<T>(0);
    auto* partials = reinterpret_cast<float*>(v.scratch());
    BoundTask task = {over_units(parts_for(v, plan.units), plan.units, [=](std::int64_t begin, std::int64_t end) {
      kernels::binary_backward(plan, dy, other, grad, partials, begin, end);
    })};
    if (plan.chunks > 1)
      task.push_back(over_units(parts_for(v, plan.combine_units, kLeastBlocks), plan.combine_units,
                                [=](std::int64_t begin, std::int64_t end) {
                                  kernels::binary_backward_combine(plan, partials, grad, begin, end);
                                }));
    return task;
  });
}

template <kernels::BinaryOp op>
std::int64_t binary_scratch(const TaskView& v) {
  return v.kind() == Kind::forward ? 0 : grad_plan<op>(v).partials * static_cast<std::int64_t>(sizeof(float));
}

BoundTask sum(const TaskView& v) {
  // Equal layouts, so the order of elements does not matter; padding adds up to padding.
  const std::int64_t count = padded_elements(v.write(0).layout, v.write(0).shape.span()), blocks = blocks_of(count);
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    std::vector<const T*> in;
    for (std::size_t i = 0; i < v.reads(); ++i) in.push_back(v.in<T>(i));
    T* out = v.out<T>(0);
    return {over_units(parts_for(v, blocks, kLeastBlocks), blocks,
                       [=](std::int64_t begin, std::int64_t end) { kernels::sum_n<T>(in, out, count, begin, end); })};
  });
}

BoundTask softmax(const TaskView& v) {
  const std::vector<std::int64_t> dims = physical_dims(v.write(0));
  const std::size_t at = physical_axis(v.write(0), v.attrs().integer("axis"));
  std::int64_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < at; ++i) outer *= dims[i];
  for (std::size_t i = at + 1; i < dims.size(); ++i) inner *= dims[i];
  const std::int64_t axis = dims[at], units = kernels::softmax_units(outer, inner);
  const bool is_forward = v.kind() == Kind::forward;
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *first = v.in<T>(0), *dy = v.in<T>(1);
    T* out = v.out<T>(0);
    return {over_units(parts_for(v, units), units, [=](std::int64_t begin, std::int64_t end) {
      if (is_forward)
        kernels::softmax_forward(first, out, axis, inner, begin, end);
      else
        kernels::softmax_backward(first, dy, out, axis, inner, begin, end);
    })};
  });
}

}  // namespace

kernels::Activation activation_from_name(std::string_view name) {
  using kernels::Activation;
  constexpr std::pair<std::string_view, Activation> kNames[] = {{"relu", Activation::relu},
                                                                {"gelu", Activation::gelu},
                                                                {"gelu_tanh", Activation::gelu_tanh},
                                                                {"silu", Activation::silu},
                                                                {"sigmoid", Activation::sigmoid},
                                                                {"tanh", Activation::tanh},
                                                                {"hard_swish", Activation::hard_swish},
                                                                {"hard_sigmoid", Activation::hard_sigmoid},
                                                                {"exp", Activation::exp},
                                                                {"log", Activation::log},
                                                                {"sqrt", Activation::sqrt},
                                                                {"reciprocal", Activation::reciprocal},
                                                                {"erf", Activation::erf},
                                                                {"abs", Activation::abs},
                                                                {"softplus", Activation::softplus},
                                                                {"mish", Activation::mish},
                                                                {"leaky_relu", Activation::leaky_relu},
                                                                {"elu", Activation::elu},
                                                                {"clip", Activation::clip}};
  for (const auto& [known, value] : kNames)
    if (known == name) return value;
  OVERTAKE_CHECK(false, "no kernel for the function {}", name);
}

kernels::ActivationFunction activation_function(const Attrs& attrs) {
  using kernels::Activation;
  const Activation kind = activation_from_name(attrs.text("function"));
  if (kind == Activation::leaky_relu || kind == Activation::elu) return {kind, static_cast<float>(attrs.real("alpha"))};
  if (kind != Activation::clip) return {kind};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {kind, static_cast<float>(attrs.real("min", -kInfinity)), static_cast<float>(attrs.real("max", kInfinity))};
}

CpuBinding bind_activation() { return {activation, nullptr}; }
CpuBinding bind_dropout() { return {dropout, nullptr}; }
CpuBinding bind_add() { return {binary<kernels::BinaryOp::add>, binary_scratch<kernels::BinaryOp::add>}; }
CpuBinding bind_mul() { return {binary<kernels::BinaryOp::mul>, binary_scratch<kernels::BinaryOp::mul>}; }
CpuBinding bind_sum() { return {sum, nullptr}; }
CpuBinding bind_softmax() { return {softmax, nullptr}; }

}  // namespace overtake
