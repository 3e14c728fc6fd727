#include "exec/task_shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ops/broadcast.h"
#include "ops/chain.h"
#include "ops/matmul.h"

namespace overtake {
namespace {

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

// Strides, in the physical order of `whole`, of a part that lacks these axes or has 1 there; 0 along them.
std::vector<std::int64_t> strides_of_part(const Buffer& part, const Buffer& whole,
                                          const std::vector<std::int64_t>& axes) {
  std::vector<std::int64_t> logical(whole.shape.rank, 0), physical;
  std::int64_t stride = 1;
  for (std::size_t i = whole.shape.rank; i-- > 0;) {
    // A part of fewer dimensions is plain: target.cpp sees to it.
    const std::size_t dim = part.shape.rank == whole.shape.rank ? part.layout.order[i] : i;
    if (std::ranges::find(axes, static_cast<std::int64_t>(dim)) != axes.end()) continue;
    logical[dim] = stride;
    stride *= whole.shape[dim];
  }
  for (std::size_t i = 0; i < whole.shape.rank; ++i) physical.push_back(logical[whole.layout.order[i]]);
  return physical;
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
                                                                {"maximum", Activation::maximum},
                                                                {"clip", Activation::clip}};
  for (const auto& [known, value] : kNames)
    if (known == name) return value;
  OVERTAKE_CHECK(false, "no kernel for the function {}", name);
}

kernels::ActivationFunction activation_function(const Attrs& attrs) {
  using kernels::Activation;
  const Activation kind = activation_from_name(attrs.text("function"));
  if (kind == Activation::leaky_relu || kind == Activation::elu || kind == Activation::maximum)
    return {kind, static_cast<float>(attrs.real("alpha"))};
  if (kind != Activation::clip) return {kind};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {kind, static_cast<float>(attrs.real("min", -kInfinity)), static_cast<float>(attrs.real("max", kInfinity))};
}

kernels::ChainProgram chain_program(const TaskView& v) {
  const Chain chain = chain_of(v.attrs(), v.reads());
  const ChainSlots slots = slots_of(chain);
  const Buffer& y = v.write(0);
  kernels::ChainProgram p;
  p.operands = static_cast<int>(chain.operands);
  p.steps = static_cast<int>(chain.steps.size());
  p.results = static_cast<int>(chain.results.size());
  p.slots = static_cast<int>(slots.count);
  for (std::size_t i = 0; i < chain.operands; ++i) {
    if (v.read(i).shape == y.shape) continue;
    const auto repeats = repeated(v.read(i).shape, y.shape, y.layout.order);
    OVERTAKE_CHECK(repeats, "layer {}: operand {} of a chain, {}, does not repeat in {}",
                   v.graph().layer_name(v.task().layer), i, to_string(v.read(i).shape), to_string(y.shape));
    p.operand[i] = {repeats->inner, repeats->extent};
  }
  for (std::size_t i = 0; i < chain.steps.size(); ++i) {
    const ChainStep& s = chain.steps[i];
    const bool has_function = s.kind == ChainStep::Kind::function || s.kind == ChainStep::Kind::slope;
    p.step[i] = {static_cast<kernels::ChainOp>(s.kind), slots.of_register[s.a], slots.of_register[s.b],
                 slots.of_register[chain.operands + i],
                 has_function ? activation_function(s.function) : kernels::ActivationFunction{}};
  }
  for (std::size_t j = 0; j < chain.results.size(); ++j) p.result[j] = slots.of_register[chain.results[j]];
  return p;
}

kernels::BinaryPlan binary_plan(const TaskView& v) {
  return kernels::make_binary_plan(physical_dims(v.write(0)), broadcast_strides(v.read(0), v.write(0)),
                                   broadcast_strides(v.read(1), v.write(0)));
}

kernels::BinaryGradPlan binary_grad_plan(const TaskView& v, kernels::BinaryOp op) {
  const Buffer& dy = v.read(0);
  const std::vector<std::int64_t> other =
      v.has_read(1) ? broadcast_strides(v.read(1), dy) : std::vector<std::int64_t>{};
  return kernels::make_binary_grad_plan(op, physical_dims(dy), broadcast_strides(v.write(0), dy), other);
}

kernels::BinaryPlan expand_plan(const TaskView& v) {
  const Buffer &x = v.read(0), &y = v.write(0);
  const auto strides = strides_of_part(x, y, stretched_axes(v.attrs(), x.shape, y.shape));
  return kernels::make_binary_plan(physical_dims(y), strides, strides);
}

kernels::BinaryGradPlan reduce_plan(const TaskView& v) {
  const Buffer& x = v.read(0);
  kernels::BinaryGradPlan plan = kernels::make_binary_grad_plan(
      kernels::BinaryOp::add, physical_dims(x), strides_of_part(v.write(0), x, v.attrs().integers("axes")), {});
  plan.scale = static_cast<float>(v.attrs().real("scale", 1.0));
  return plan;
}

kernels::BinaryGradPlan column_sum_plan(std::int64_t rows, std::int64_t columns) {
  const std::array<std::int64_t, 2> dims = {rows, columns}, strides = {0, 1};
  return kernels::make_binary_grad_plan(kernels::BinaryOp::add, dims, strides, {});
}

AxisView along(const Buffer& b, std::int64_t axis) {
  const std::vector<std::int64_t> dims = physical_dims(b);
  const std::size_t at = physical_axis(b, axis);
  AxisView view{.axis = dims[at]};
  for (std::size_t i = 0; i < at; ++i) view.outer *= dims[i];
  for (std::size_t i = at + 1; i < dims.size(); ++i) view.inner *= dims[i];
  return view;
}

kernels::PermutePlan transpose_plan(const TaskView& v) {
  std::vector<int> order;
  for (const std::int64_t d : v.attrs().integers("order")) order.push_back(static_cast<int>(d));
  return kernels::make_permute_plan(v.read(0).shape.span(), order);
}

std::int64_t rows_of(const Buffer& b) { return b.shape.elements() / b.shape.back(); }
std::int64_t pixels_of(const Buffer& image) { return image.shape.elements() / image.shape[1]; }

kernels::MatmulShape matmul_shape(const TaskView& v) {
  const MatmulView view = matmul_view(v.attrs(), v.read(0).shape, v.read(1).shape, v.write(0).shape);
  OVERTAKE_CHECK(view.batch.size() <= 2, "layer {}: a product over {} dimensions", v.graph().layer_name(v.task().layer),
                 view.batch.size());
  kernels::MatmulShape shape;
  shape.m = view.m, shape.n = view.n, shape.k = view.k;
  shape.alpha = static_cast<float>(v.attrs().real("scale", 1.0));
  const auto operand = [&](const MatmulView::Operand& from) {
    kernels::MatmulOperand to{from.is_transposed, from.row_stride, {0, 0}};
    std::ranges::copy_backward(from.batch_strides, std::end(to.batch_stride));
    return to;
  };
  shape.a = operand(view.a);
  shape.b = operand(view.b);
  shape.c = operand(view.c);
  std::ranges::copy_backward(view.batch, std::end(shape.batch));
  return shape;
}

kernels::AttentionShape attention_shape(const TaskView& v) {
  const Shape& q = v.read(0).shape;
  const bool is_packed = !v.has_read(1);
  const std::int64_t width = is_packed ? q[2] / 3 : q[2];
  kernels::AttentionShape s;
  s.batch = q[0];
  s.heads = v.attrs().integer("heads");
  s.head_dim = width / s.heads;
  s.queries = q[1];
  s.keys = is_packed ? q[1] : v.read(1).shape[1];
  s.q_stride = s.k_stride = s.v_stride = q[2];
  s.o_stride = width;
  s.causal = v.attrs().integer("causal", 0) != 0;
  s.scale = static_cast<float>(v.attrs().real("scale", 1.0 / std::sqrt(static_cast<double>(s.head_dim))));
  return s;
}

kernels::RnnShape rnn_shape(const TaskView& v) {
  kernels::RnnShape s;
  s.hidden = v.attrs().integer("hidden");
  const Shape& x = v.kind() == Kind::input_grad ? v.write(0).shape : v.read(0).shape;
  s.batch = x[0];
  s.steps = x[1];
  s.inputs = v.kind() == Kind::input_grad ? v.read(0).shape[1] : x[2];
  return s;
}

kernels::PoolShape pool_shape(const TaskView& v) {
  const bool is_forward = v.kind() == Kind::forward;
  const Shape &x = (is_forward ? v.read(0) : v.write(0)).shape, &y = (is_forward ? v.write(0) : v.read(0)).shape;
  const auto &kernel = v.attrs().integers("kernel"), &stride = v.attrs().integers("stride"),
             &padding = v.attrs().integers("padding");
  kernels::PoolShape s;
  s.batch = x[0];
  s.channels = x[1];
  s.in_h = x[2];
  s.in_w = x[3];
  s.out_h = y[2];
  s.out_w = y[3];
  s.kernel_h = kernel[0];
  s.kernel_w = kernel[1];
  s.stride_h = stride[0];
  s.stride_w = stride[1];
  s.pad_top = padding[0];
  s.pad_left = padding[1];
  s.pad_bottom = padding[2];
  s.pad_right = padding[3];
  kernels::check_pool(s);
  return s;
}

kernels::AdaptivePoolShape adaptive_pool_shape(const TaskView& v) {
  const bool is_forward = v.kind() == Kind::forward;
  const Shape &x = (is_forward ? v.read(0) : v.write(0)).shape, &y = (is_forward ? v.write(0) : v.read(0)).shape;
  return {.channels = x[1], .in_h = x[2], .in_w = x[3], .out_h = y[2], .out_w = y[3]};
}

kernels::GroupNormShape group_norm_shape(const TaskView& v) {
  const Shape& x = v.read(0).shape;
  return {x[0], x[2] * x[3], x[1], v.attrs().integer("groups")};
}

std::int64_t members_of_moments(const TaskView& v) {
  return v.read(kMoments).shape[0] / (2 * v.read(0).shape[1] * std::int64_t{sizeof(double)});
}

std::int32_t padding_row(const TaskView& v) { return static_cast<std::int32_t>(v.attrs().integer("padding", -1)); }

kernels::CrossEntropy cross_entropy_of(const TaskView& v) {
  const std::int64_t width = v.read(0).shape.back();
  return {v.attrs().integer("classes", width), width, static_cast<float>(v.attrs().real("smoothing", 0.0)),
          static_cast<std::int32_t>(v.attrs().integer("ignore_index", -100))};
}

kernels::ConvShape conv_shape(const Graph& g, const Task& t, std::int64_t images) {
  const ConvOperands o = conv_operands(g, t);
  const Attrs& a = g.attrs_of(t);
  const auto &kernel = a.integers("kernel"), &stride = a.integers("stride"), &padding = a.integers("padding"),
             &dilation = a.integers("dilation");
  kernels::ConvShape s;
  s.batch = images;
  s.in_channels = o.x->shape[1];
  s.in_h = o.x->shape[2];
  s.in_w = o.x->shape[3];
  s.out_channels = o.y->shape[1];
  s.out_h = o.y->shape[2];
  s.out_w = o.y->shape[3];
  s.kernel_h = kernel[0];
  s.kernel_w = kernel[1];
  s.stride_h = stride[0];
  s.stride_w = stride[1];
  s.pad_top = padding[0];
  s.pad_left = padding[1];
  s.pad_bottom = padding[2];
  s.pad_right = padding[3];
  s.dilation_h = dilation[0];
  s.dilation_w = dilation[1];
  s.groups = a.integer("groups");
  s.bias = o.bias;
  s.bf16 = o.x->dtype == DType::bf16;
  return s;
}

}  // namespace overtake
