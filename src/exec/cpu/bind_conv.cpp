// Convolution: the batch is cut into the graph's parts, each with a single-threaded primitive of its own, so that no
// sum depends on the number of threads.

#include <map>
#include <memory>

#include "exec/cpu/bindings.h"
#include "exec/cpu/conv_plan.h"
#include "exec/task_shapes.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/linear.h"

namespace overtake {
namespace {

// One kernel per number of images that occurs.
template <class Kernel>
std::vector<std::shared_ptr<const Kernel>> kernels_per_part(const TaskView& v) {
  const std::uint32_t parts = conv_parts(v.graph(), v.task());
  const std::int64_t batch = conv_operands(v.graph(), v.task()).x->shape[0];
  std::map<std::int64_t, std::shared_ptr<const Kernel>> by_images;
  std::vector<std::shared_ptr<const Kernel>> all;
  for (std::uint32_t part = 0; part < parts; ++part) {
    const UnitRange r = part_range(batch, part, parts);
    auto& kernel = by_images[r.end - r.begin];
    if (!kernel) kernel = std::make_shared<const Kernel>(conv_shape(v.graph(), v.task(), r.end - r.begin));
    OVERTAKE_CHECK(kernel->weight_layout() == conv_operands(v.graph(), v.task()).weight->layout,
                   "convolution {}: a part of {} images wants its weight laid out as {}, not {}",
                   v.graph().layer_name(v.task().layer), r.end - r.begin, to_string(kernel->weight_layout()),
                   to_string(conv_operands(v.graph(), v.task()).weight->layout));
    all.push_back(kernel);
  }
  return all;
}

template <class Kernel>
std::int64_t scratch_per_part(const TaskView& v) {
  std::int64_t most = 0;
  for (const auto& kernel : kernels_per_part<Kernel>(v))
    most = std::max(most, scratch_piece(static_cast<std::int64_t>(kernel->scratch_bytes())));
  return most;
}

// Bytes of the images before a part's first.
std::int64_t image_offset(const Buffer& b, std::int64_t image) {
  return image * b.shape.elements() / b.shape[0] * bytes_of(b.dtype);
}

// Partial results of a weight gradient: part 0 writes to its place, the others to scratch, all are added in order.
struct Partials {
  std::int64_t weights, bias;  // elements
  std::int64_t weights_piece() const { return scratch_piece(weights * 4); }
  std::int64_t bias_piece() const { return scratch_piece(bias * 4); }
  std::int64_t bytes(std::uint32_t parts) const { return (parts - 1) * (weights_piece() + bias_piece()); }
};
Partials partials_of(const TaskView& v) {
  const ConvOperands o = conv_operands(v.graph(), v.task());
  return {padded_elements(o.weight->layout, o.weight->shape.span()), o.bias ? o.y->shape[1] : 0};
}

BoundTask conv_forward(const TaskView& v) {
  const auto all = kernels_per_part<kernels::ConvForward>(v);
  const auto parts = static_cast<std::uint32_t>(all.size());
  const std::int64_t piece = scratch_per_part<kernels::ConvForward>(v);
  const Buffer x = v.read(0), y = v.write(0);
  const std::byte *src = v.in<std::byte>(0), *weight = v.in<std::byte>(1);
  const float* bias = v.in<float>(2);
  std::byte *dst = v.out<std::byte>(0), *scratch = v.scratch();
  return {{parts, [=](std::uint32_t part, const StepArgs&) {
             const std::int64_t image = part_range(x.shape[0], part, parts).begin;
             all[part]->run(src + image_offset(x, image), weight, bias, dst + image_offset(y, image),
                            scratch + part * piece);
           }}};
}

BoundTask conv_input_grad(const TaskView& v) {
  const auto all = kernels_per_part<kernels::ConvInputGrad>(v);
  const auto parts = static_cast<std::uint32_t>(all.size());
  const std::int64_t piece = scratch_per_part<kernels::ConvInputGrad>(v);
  const Buffer dy = v.read(0), dx = v.write(0);
  const std::byte *src = v.in<std::byte>(0), *weight = v.in<std::byte>(1);
  std::byte *dst = v.out<std::byte>(0), *scratch = v.scratch();
  return {{parts, [=](std::uint32_t part, const StepArgs&) {
             const std::int64_t image = part_range(dx.shape[0], part, parts).begin;
             all[part]->run(src + image_offset(dy, image), weight, dst + image_offset(dx, image),
                            scratch + part * piece);
           }}};
}

// out += the partial results, in order; in blocks.
Phase add_partials(const TaskView& v, float* out, const std::byte* scratch, std::int64_t piece, std::uint32_t others,
                   std::int64_t count) {
  const std::int64_t blocks = kernels::blocks_of(count);
  std::vector<const float*> in = {out};
  for (std::uint32_t i = 0; i < others; ++i) in.push_back(reinterpret_cast<const float*>(scratch + i * piece));
  return over_units(parts_for(v, blocks, 8), blocks,
                    [=](std::int64_t begin, std::int64_t end) { kernels::sum_n<float>(in, out, count, begin, end); });
}

BoundTask conv_weight_grad(const TaskView& v) {
  const auto all = kernels_per_part<kernels::ConvWeightGrad>(v);
  const auto parts = static_cast<std::uint32_t>(all.size());
  const std::int64_t piece = scratch_per_part<kernels::ConvWeightGrad>(v);
  const Partials sums = partials_of(v);
  const Buffer x = v.read(0), dy = v.read(1);
  const std::byte *src = v.in<std::byte>(0), *grad = v.in<std::byte>(1);
  float *dw = v.out<float>(0), *dbias = v.out<float>(1);
  std::byte* weight_parts = v.scratch();
  std::byte* bias_parts = weight_parts + (parts - 1) * sums.weights_piece();
  std::byte* scratch = bias_parts + (parts - 1) * sums.bias_piece();
  BoundTask task = {
      {parts, [=](std::uint32_t part, const StepArgs&) {
         const std::int64_t image = part_range(x.shape[0], part, parts).begin;
         float* w = part == 0 ? dw : reinterpret_cast<float*>(weight_parts + (part - 1) * sums.weights_piece());
         float* b = dbias == nullptr || part == 0
                        ? dbias
                        : reinterpret_cast<float*>(bias_parts + (part - 1) * sums.bias_piece());
         all[part]->run(src + image_offset(x, image), grad + image_offset(dy, image), w, b, scratch + part * piece);
       }}};
  if (parts == 1) return task;
  task.push_back(add_partials(v, dw, weight_parts, sums.weights_piece(), parts - 1, sums.weights));
  if (dbias != nullptr) task.push_back(add_partials(v, dbias, bias_parts, sums.bias_piece(), parts - 1, sums.bias));
  return task;
}

// Where the weight is not trained: every pixel is a row of channels.
BoundTask conv_bias_grad(const TaskView& v) {
  const std::int64_t out = v.read(1).shape[1], rows = v.read(1).shape.elements() / out;
  return with_type(v.read(1).dtype, [&]<class T>(T) -> BoundTask {
    const T* dy = v.in<T>(1);
    float* dbias = v.out<float>(1);
    return {over_units(parts_for(v, out, 64), out, [=](std::int64_t begin, std::int64_t end) {
      kernels::linear_bias_grad(dy, dbias, rows, out, begin, end);
    })};
  });
}

bool is_bias_alone(const TaskView& v) { return v.kind() == Kind::weight_grad && !v.has_write(0); }

BoundTask conv2d(const TaskView& v) {
  if (v.kind() == Kind::forward) return conv_forward(v);
  if (is_bias_alone(v)) return conv_bias_grad(v);
  return v.kind() == Kind::input_grad ? conv_input_grad(v) : conv_weight_grad(v);
}

std::int64_t conv_scratch(const TaskView& v) {
  if (is_bias_alone(v)) return 0;
  const std::uint32_t parts = conv_parts(v.graph(), v.task());
  if (v.kind() == Kind::forward) return parts * scratch_per_part<kernels::ConvForward>(v);
  if (v.kind() == Kind::input_grad) return parts * scratch_per_part<kernels::ConvInputGrad>(v);
  return partials_of(v).bytes(parts) + parts * scratch_per_part<kernels::ConvWeightGrad>(v);
}

}  // namespace

std::uint32_t conv_parts(const Graph& g, const Task& t) {
  return static_cast<std::uint32_t>(std::min<std::int64_t>(g.parts, conv_operands(g, t).x->shape[0]));
}

Layout conv_weight_layout(const Graph& g, const Task& t) {
  // All parts take one weight, so it is laid out for the larger ones; the binding checks that the others agree.
  const std::uint32_t parts = conv_parts(g, t);
  const std::int64_t images = (conv_operands(g, t).x->shape[0] + parts - 1) / parts;
  const kernels::ConvShape shape = conv_shape(g, t, images);
  if (t.kind == Kind::forward) return kernels::ConvForward(shape).weight_layout();
  if (t.kind == Kind::input_grad) return kernels::ConvInputGrad(shape).weight_layout();
  return kernels::ConvWeightGrad(shape).weight_layout();
}

CpuBinding bind_conv2d() { return {conv2d, conv_scratch}; }

}  // namespace overtake
