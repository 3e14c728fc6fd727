// One recurrent layer, batch first, starting from zero state: PyTorch's LSTM (gates i, f, g, o) and GRU (gates r, z, n;
// the reset applies to W_hn h + b_hn)
// forward:     reads x [B, T, I], w_ih, w_hh, b_ih, b_hh
//              writes y [B, T, H], gates [B, T, 4 H] (GRU: r, z, n, W_hn h + b_hn), and for LSTM cells [B, T, H]
// input_grad:  reads w_ih, w_hh, gates, cells (GRU: y), dy   writes dgates [B, T, 4 H], dx?
// weight_grad: reads x, y, dgates                            writes dw_ih, dw_hh, db_ih, db_hh
// attributes:  hidden

#include <cmath>

#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

template <Op op>
OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const TensorType& x = inputs[0];
  expect_rank(x, 3, "the input");
  const std::int64_t hidden = attrs.integer("hidden"), rows = (op == Op::lstm ? 4 : 3) * hidden;
  if (hidden < 1) fail_shape("{} hidden units; at least one is needed", hidden);
  const Init init{Init::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(hidden))};
  OpForm f;
  f.parameters = {{"weight_ih", {rows, x.shape[2]}, Role::weight, init},
                  {"weight_hh", {rows, hidden}, Role::weight, init},
                  {"bias_ih", {rows}, Role::weight, init},
                  {"bias_hh", {rows}, Role::weight, init}};
  const Shape states = {x.shape[0], x.shape[1], hidden}, gates = {x.shape[0], x.shape[1], 4 * hidden};
  f.outputs = {{"", states, x.dtype}, {"gates", gates}};
  if (op == Op::lstm) f.outputs.push_back({"cells", states});
  return f;
}

void gradient(Gradient& g) {
  const bool is_lstm = g.forward().op == Op::lstm;
  const Shape gates = g.graph().buffers[g.out(1)].shape;
  const BufferId dgates = g.temporary("gates.grad", gates, g.graph().buffers[g.in(0)].dtype);
  g.emit(Kind::input_grad, {g.in(1), g.in(2), g.out(1), is_lstm ? g.out(2) : g.out(0), g.grad_out(0)},
         {dgates, g.grad_in(0)});
  if (!g.wants(1) && !g.wants(2) && !g.wants(3) && !g.wants(4)) return;
  // The kernel makes all four at once; one that nobody wants is a temporary.
  BufferId grads[4];
  for (std::size_t i = 0; i < 4; ++i) {
    const Shape shape = g.graph().buffers[g.in(i + 1)].shape;
    grads[i] = g.wants(i + 1) ? g.grad_in(i + 1) : g.temporary(fmt::format("unused{}", i), shape, DType::f32);
  }
  g.emit(Kind::weight_grad, {g.in(0), g.out(0), dgates}, {grads[0], grads[1], grads[2], grads[3]});
}

// All three are products of every position with both weights.
double flops(const Graph& g, const Task& t) {
  const auto elements = [&](BufferId b) { return static_cast<double>(g.buffers[b].shape.elements()); };
  const auto reads = g.reads(t), writes = g.writes(t);
  switch (t.kind) {
    case Kind::forward:
      return 2.0 * elements(reads[0]) / static_cast<double>(g.buffers[reads[0]].shape.back()) *
             (elements(reads[1]) + elements(reads[2]));
    case Kind::input_grad:
      return 2.0 * elements(reads[4]) / static_cast<double>(g.buffers[reads[4]].shape.back()) *
             (elements(reads[0]) + elements(reads[1]));
    default:
      return 2.0 * elements(reads[1]) / static_cast<double>(g.buffers[reads[1]].shape.back()) *
             (elements(writes[0]) + elements(writes[1]));
  }
}

// dx may be absent, and x is not read.
void check_input_grad(const TaskOperands& t) {
  const Shape &dy = t.read("dy")->shape, &w = t.read("w_ih")->shape;
  if (dy.rank != 3) t.fail("dy", t.read_id("dy"), "of three dimensions");
  if (w.rank != 2) t.fail("w_ih", t.read_id("w_ih"), "a matrix");
  t.expect_form({{{dy[0], dy[1], w[1]}, DType::f32, true}});
}

constexpr TaskRule kLstmTasks[] = {{kForward, "x, w_ih w_hh b_ih b_hh -> y gates! cells!"},
                                   {kInputGrad, "w_ih w_hh gates! cells! dy -> dgates dx?", check_input_grad},
                                   {kWeightGrad, "x y dgates -> dw_ih dw_hh db_ih db_hh"}};
constexpr TaskRule kGruTasks[] = {{kForward, "x, w_ih w_hh b_ih b_hh -> y gates!"},
                                  {kInputGrad, "w_ih w_hh gates! y dy -> dgates dx?", check_input_grad},
                                  {kWeightGrad, "x y dgates -> dw_ih dw_hh db_ih db_hh"}};

}  // namespace

OpTraits lstm_traits() {
  return {.op = Op::lstm, .form = form<Op::lstm>, .gradient = gradient, .flops = flops, .tasks = kLstmTasks};
}
OpTraits gru_traits() {
  return {.op = Op::gru, .form = form<Op::gru>, .gradient = gradient, .flops = flops, .tasks = kGruTasks};
}

}  // namespace overtake
