// One LSTM layer, batch first, PyTorch's gates (i, f, g, o), starting from zero state
// forward:     reads x [B, T, I], w_ih, w_hh, b_ih, b_hh   writes y [B, T, H], gates [B, T, 4 H], cells [B, T, H]
// input_grad:  reads w_ih, w_hh, gates, cells, dy          writes dgates [B, T, 4 H], dx?
// weight_grad: reads x, y, dgates                          writes dw_ih, dw_hh, db_ih, db_hh
// attributes:  hidden

#include <cmath>

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const TensorType& x = inputs[0];
  expect_rank(x, 3, "the input");
  const std::int64_t hidden = attrs.integer("hidden"), rows = 4 * hidden;
  if (hidden < 1) fail_shape("{} hidden units; at least one is needed", hidden);
  const Init init{Init::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(hidden))};
  OpForm f;
  f.parameters = {{"weight_ih", {rows, x.shape[2]}, Role::weight, init},
                  {"weight_hh", {rows, hidden}, Role::weight, init},
                  {"bias_ih", {rows}, Role::weight, init},
                  {"bias_hh", {rows}, Role::weight, init}};
  f.outputs = {{"", {x.shape[0], x.shape[1], hidden}, x.dtype},
               {"gates", {x.shape[0], x.shape[1], 4 * hidden}},
               {"cells", {x.shape[0], x.shape[1], hidden}}};
  return f;
}

void gradient(Gradient& g) {
  const Shape gates = g.graph().buffers[g.out(1)].shape;
  const BufferId dgates = g.temporary("gates.grad", gates, g.graph().buffers[g.in(0)].dtype);
  g.emit(Kind::input_grad, {g.in(1), g.in(2), g.out(1), g.out(2), g.grad_out(0)}, {dgates, g.grad_in(0)});
  g.emit(Kind::weight_grad, {g.in(0), g.out(0), dgates}, {g.grad_in(1), g.grad_in(2), g.grad_in(3), g.grad_in(4)});
}

double flops(const Graph& g, const Task& t) {
  const Shape& y =
      g.buffers[t.kind == Kind::forward ? g.writes(t)[0] : g.reads(t)[t.kind == Kind::input_grad ? 4 : 1]].shape;
  const bool is_weight_grad = t.kind == Kind::weight_grad;
  const double weights = static_cast<double>(
      is_weight_grad ? g.buffers[g.writes(t)[0]].shape.elements() + g.buffers[g.writes(t)[1]].shape.elements()
                     : g.buffers[g.reads(t)[t.kind == Kind::forward ? 1 : 0]].shape.elements() +
                           g.buffers[g.reads(t)[t.kind == Kind::forward ? 2 : 1]].shape.elements());
  return 2.0 * static_cast<double>(y[0] * y[1]) * weights;
}

}  // namespace

OpTraits lstm_traits() { return {.op = Op::lstm, .form = form, .gradient = gradient, .flops = flops}; }

}  // namespace overtake
