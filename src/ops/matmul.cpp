// c[..., m, n] = scale * op(a)[..., m, k] op(b)[..., k, n]; the leading dimensions are equal, or b has none.
// forward, input_grad: reads a, b   writes c      (gradients are products again, with other transposes)
// attributes: trans_a, trans_b (0 or 1), scale

#include <algorithm>
#include <cmath>

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const Shape &a = inputs[0].shape, &b = inputs[1].shape;
  if (a.rank < 2 || b.rank < 2)
    fail_shape("both factors need two dimensions, but are {} and {}", to_string(a), to_string(b));
  const bool trans_a = attrs.integer("trans_a", 0) != 0, trans_b = attrs.integer("trans_b", 0) != 0;
  const std::size_t ra = a.rank, rb = b.rank;
  const std::int64_t m = a[ra - (trans_a ? 1 : 2)], ka = a[ra - (trans_a ? 2 : 1)];
  const std::int64_t kb = b[rb - (trans_b ? 1 : 2)], n = b[rb - (trans_b ? 2 : 1)];
  const bool leading_equal =
      ra == rb && std::equal(a.dims.begin(), a.dims.begin() + static_cast<std::ptrdiff_t>(ra) - 2, b.dims.begin());
  if (ka != kb || !(leading_equal || (rb == 2 && !trans_a)))
    fail_shape("factors {} and {} do not fit (transposed: {}, {})", to_string(a), to_string(b), trans_a, trans_b);
  Shape c = a;
  c[ra - 2] = m;
  c[ra - 1] = n;
  return {.parameters = {}, .outputs = {{"", c, inputs[0].dtype}}};
}

// With x' for a transpose: c = a b gives da = dc b', db = a' dc; a transposed factor swaps and transposes these.
void gradient(Gradient& g) {
  const Attrs& attrs = g.graph().attrs_of(g.forward());
  const bool ta = attrs.integer("trans_a", 0) != 0, tb = attrs.integer("trans_b", 0) != 0;
  const double scale = attrs.real("scale", 1.0);
  const BufferId dc = g.grad_out(0), a = g.in(0), b = g.in(1);
  const auto product = [&](std::size_t i, BufferId x, bool tx, BufferId y, bool ty) {
    if (!g.wants(i)) return;
    const BufferId reads[] = {x, y}, out = g.grad_in(i);
    g.emit(Kind::input_grad, Op::matmul,
           Attrs{{"trans_a", std::int64_t{tx}}, {"trans_b", std::int64_t{ty}}, {"scale", scale}}, reads, {&out, 1});
  };
  if (ta)
    product(0, b, tb, dc, true);
  else
    product(0, dc, false, b, !tb);
  if (tb)
    product(1, dc, true, a, ta);
  else
    product(1, a, !ta, dc, false);
}

double flops(const Graph& g, const Task& t) {
  const Shape& a = g.buffers[g.reads(t)[0]].shape;
  const Shape& c = g.buffers[g.writes(t)[0]].shape;
  const Shape& b = g.buffers[g.reads(t)[1]].shape;
  const double k =
      std::sqrt(static_cast<double>(a[a.rank - 2u] * a.back()) * static_cast<double>(b[b.rank - 2u] * b.back()) /
                static_cast<double>(c[c.rank - 2u] * c.back()));
  const auto batches = static_cast<double>(a.elements() / (a[a.rank - 2u] * a.back()));
  return 2.0 * batches * static_cast<double>(c[c.rank - 2u] * c.back()) * k;
}

}  // namespace

OpTraits matmul_traits() { return {.op = Op::matmul, .form = form, .gradient = gradient, .flops = flops}; }

}  // namespace overtake
