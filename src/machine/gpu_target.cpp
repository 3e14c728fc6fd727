#include "machine/gpu_target.h"

#include "ops/conv2d.h"

namespace overtake {
namespace {

// [O][kh][kw][C], or [G][O / G][kh][kw][C / G]; channels-last padded to 8 channels, of images and filters alike.
Layout filter_layout(std::size_t rank) { return layout_from_string(rank == 4 ? "acdb" : "abdec"); }
Layout padded_layout() { return layout_from_string("acdB8b"); }

// An input in bfloat16: nobody wants its gradient.
bool is_cast_input(const Graph& g, BufferId b) {
  if (g.buffers[b].dtype != DType::bf16) return false;
  for (const Task& t : g.tasks)
    if (g.writes(t)[0] == b) return t.op == Op::reorder && g.buffers[g.reads(t)[0]].role == Role::input;
  return false;
}

std::optional<OperandFormat> conv_format(const Graph& g, const Task& task, std::size_t operand) {
  const bool is_weight_grad = task.kind == Kind::weight_grad;
  const DType activation = g.buffers[g.reads(task)[0]].dtype;
  const ConvOperands o = conv_operands(g, task);
  const bool is_own = o.weight != nullptr && is_depthwise(g, task);
  if (operand == (is_weight_grad ? 2u : 1u))
    return OperandFormat{is_weight_grad && is_own ? DType::f32 : activation, conv_filter_layout(*o.x, *o.weight)};
  if (is_weight_grad && operand == 3) return OperandFormat{is_own ? DType::f32 : activation, plain_layout(1)};
  return {};
}

}  // namespace

Layout conv_filter_layout(const Buffer& x, const Buffer& weight) {
  return x.layout.blocks != 0 ? padded_layout() : filter_layout(weight.shape.rank);
}

// cuBLASLt has one stride over its batch, and its good kernels want every row at 16 bytes; where that is not so a copy
// costs less. A product of dense factors is taken in any case.
bool GpuTarget::takes_product(const MatmulView& view) const {
  if (view.batch.empty()) return true;
  const auto is_aligned = [&](const MatmulView::Operand& x, std::int64_t dense) {
    return x.row_stride == dense || (x.row_stride % 8 == 0 && x.batch_strides[0] % 8 == 0);
  };
  return view.batch.size() == 1 && is_aligned(view.a, view.a.is_transposed ? view.m : view.k) &&
         is_aligned(view.b, view.b.is_transposed ? view.k : view.n) && is_aligned(view.c, view.n);
}

std::optional<Layout> GpuTarget::first_image_layout(const Graph& g, const Task& task) const {
  if (task.op != Op::conv2d || task.kind != Kind::forward || g.attrs_of(task).integer("groups") != 1) return {};
  const BufferId x = g.reads(task)[0];
  const bool is_narrow = g.buffers[x].shape[1] < 8;
  if (!is_narrow || !is_cast_input(g, x)) return {};
  return padded_layout();
}

std::optional<OperandFormat> GpuTarget::weight_format(const Graph& g, const Task& task, std::size_t operand) const {
  if (task.op == Op::conv2d) return conv_format(g, task, operand);
  const bool is_weight_grad = task.kind == Kind::weight_grad;
  if (task.op == Op::linear) {
    // forward (x, w, bias), input_grad (dz, w), weight_grad (x, dz; dw, dbias)
    const bool is_matrix = operand == (is_weight_grad ? 2u : 1u);
    const bool is_vector = operand == (is_weight_grad ? 3u : 2u) && task.kind != Kind::input_grad;
    if (!is_matrix && !is_vector) return {};
    return OperandFormat{g.buffers[g.reads(task)[0]].dtype, plain_layout(is_matrix ? 2 : 1)};
  }
  const bool is_recurrent = task.op == Op::lstm || task.op == Op::gru;
  if (!is_recurrent || is_weight_grad) return {};
  const bool is_forward = task.kind == Kind::forward;
  if (is_forward ? operand != 1 && operand != 2 : operand > 1) return {};
  return OperandFormat{g.buffers[is_forward ? g.reads(task)[0] : g.writes(task)[0]].dtype, plain_layout(2)};
}

bool GpuTarget::takes_pitch(const Graph& g, const Task& task, std::size_t operand, std::int64_t) const {
  const bool is_forward = task.kind == Kind::forward;
  switch (task.op) {
    case Op::concat:
      return g.attrs_of(task).integer("axis") == 1;
    case Op::conv2d:
      return g.attrs_of(task).integer("groups") == 1;
    case Op::max_pool:
    case Op::avg_pool:  // y, which forward tasks write after x, and dy
      return operand == (is_forward ? 1u : 0u);
    case Op::batch_norm:
      // forward (x, ...; y, ...), weight_grad (x, dy, ...), input_grad (x, dy, ..., add; dx)
      if (is_forward) return operand == 0 || (operand == task.reads && g.reads(task)[1] == kNone);
      return operand <= 1 || (task.kind == Kind::input_grad && operand >= 8);
    default:
      return false;
  }
}

}  // namespace overtake
