// c[..., m, n] = scale * op(a)[..., m, k] op(b)[..., k, n]; the leading dimensions are equal, or b has none.
// forward, input_grad: reads a, b   writes c      (gradients are products again, with other transposes)
// attributes: trans_a, trans_b (0 or 1), scale
//             order_a, order_b, order_c: the buffer has the dimensions in another order, the last one last: dimension i
//             of a, b or c above is its dimension order[i]. Then all three have the same number of dimensions.

#include "ops/matmul.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

using Order = std::vector<std::int64_t>;

// The attribute, or what leaves everything in its place.
Order order_of(const Attrs& attrs, const char* name, const Shape& shape) {
  if (attrs.has(name)) return integers_of(attrs, name, shape.rank);
  Order same(shape.rank);
  std::iota(same.begin(), same.end(), 0);
  return same;
}

Shape ordered(const Shape& buffer, const Order& order) {
  Shape shape = buffer;
  for (std::size_t i = 0; i < order.size(); ++i) shape[i] = buffer[static_cast<std::size_t>(order[i])];
  return shape;
}

bool has_orders(const Attrs& attrs) { return attrs.has("order_a") || attrs.has("order_b") || attrs.has("order_c"); }

void check_order(const Attrs& attrs, const char* name, const Shape& shape) {
  const Order order = order_of(attrs, name, shape);
  Order sorted = order;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<std::int64_t>(i))
      fail_shape("{} {} is no permutation of the dimensions of {}", name, fmt::join(order, ","), to_string(shape));
  if (order.back() + 1 != shape.rank) fail_shape("{} {} moves the last dimension", name, fmt::join(order, ","));
}

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  if (inputs[0].shape.rank < 2 || inputs[1].shape.rank < 2)
    fail_shape("both factors need two dimensions, but are {} and {}", to_string(inputs[0].shape),
               to_string(inputs[1].shape));
  check_order(attrs, "order_a", inputs[0].shape);
  check_order(attrs, "order_b", inputs[1].shape);
  const Shape a = ordered(inputs[0].shape, order_of(attrs, "order_a", inputs[0].shape));
  const Shape b = ordered(inputs[1].shape, order_of(attrs, "order_b", inputs[1].shape));
  const bool trans_a = attrs.integer("trans_a", 0) != 0, trans_b = attrs.integer("trans_b", 0) != 0;
  const std::size_t ra = a.rank, rb = b.rank;
  const std::int64_t m = a[ra - (trans_a ? 1 : 2)], ka = a[ra - (trans_a ? 2 : 1)];
  const std::int64_t kb = b[rb - (trans_b ? 1 : 2)], n = b[rb - (trans_b ? 2 : 1)];
  const bool leading_equal =
      ra == rb && std::equal(a.dims.begin(), a.dims.begin() + static_cast<std::ptrdiff_t>(ra) - 2, b.dims.begin());
  const bool is_wide = rb == 2 && !trans_a && !has_orders(attrs);
  if (ka != kb || !(leading_equal || is_wide))
    fail_shape("factors {} and {} do not fit (transposed: {}, {})", to_string(a), to_string(b), trans_a, trans_b);
  Shape c = a;
  c[ra - 2] = m;
  c[ra - 1] = n;
  check_order(attrs, "order_c", c);
  const Order order = order_of(attrs, "order_c", c);
  Shape buffer = c;
  for (std::size_t i = 0; i < order.size(); ++i) buffer[static_cast<std::size_t>(order[i])] = c[i];
  return {.parameters = {}, .outputs = {{"", buffer, inputs[0].dtype}}};
}

// With x' for a transpose: c = a b gives da = dc b', db = a' dc; a transposed factor swaps and transposes these.
void gradient(Gradient& g) {
  const Attrs attrs = g.graph().attrs_of(g.forward());
  const bool ta = attrs.integer("trans_a", 0) != 0, tb = attrs.integer("trans_b", 0) != 0;
  const double scale = attrs.real("scale", 1.0);
  const BufferId dc = g.grad_out(0), a = g.in(0), b = g.in(1);
  struct Factor {
    BufferId buffer;
    const char* order;  // its name in the forward task
    bool is_transposed;
  };
  const auto product = [&](std::size_t i, const Factor& x, const Factor& y) {
    if (!g.wants(i)) return;
    Attrs own{{"trans_a", std::int64_t{x.is_transposed}}, {"trans_b", std::int64_t{y.is_transposed}}, {"scale", scale}};
    const auto keep_order = [&](const char* from, const char* to) {
      if (attrs.has(from)) own.set(to, attrs.integers(from));
    };
    keep_order(x.order, "order_a");
    keep_order(y.order, "order_b");
    keep_order(i == 0 ? "order_a" : "order_b", "order_c");
    const BufferId reads[] = {x.buffer, y.buffer}, out = g.grad_in(i);
    g.emit(Kind::input_grad, Op::matmul, own, reads, {&out, 1});
  };
  if (ta)
    product(0, {b, "order_b", tb}, {dc, "order_c", true});
  else
    product(0, {dc, "order_c", false}, {b, "order_b", !tb});
  if (tb)
    product(1, {dc, "order_c", true}, {a, "order_a", ta});
  else
    product(1, {a, "order_a", !ta}, {dc, "order_c", false});
}

double flops(const Graph& g, const Task& t) {
  const MatmulView v = matmul_view(g.attrs_of(t), g.buffers[g.reads(t)[0]].shape, g.buffers[g.reads(t)[1]].shape,
                                   g.buffers[g.writes(t)[0]].shape);
  double products = 1;
  for (const std::int64_t extent : v.batch) products *= static_cast<double>(extent);
  return 2.0 * products * static_cast<double>(v.m) * static_cast<double>(v.n) * static_cast<double>(v.k);
}

// Elements between neighbours along each dimension of what the product sees of a row-major buffer.
std::vector<std::int64_t> strides_of(const Shape& buffer, const Order& order) {
  std::array<std::int64_t, Shape::kMaxRank> all{};
  std::int64_t stride = 1;
  for (std::size_t i = buffer.rank; i-- > 0; stride *= buffer[i]) all[i] = stride;
  std::vector<std::int64_t> seen;
  for (const std::int64_t i : order) seen.push_back(all[static_cast<std::size_t>(i)]);
  return seen;
}

// Adds a dimension inside those that are there, as part of the innermost one where all operands go on evenly.
void add_batch(MatmulView& v, std::int64_t extent, const std::array<std::int64_t, 3>& strides) {
  if (extent == 1) return;
  const std::array<MatmulView::Operand*, 3> operands = {&v.a, &v.b, &v.c};
  bool joins = !v.batch.empty();
  for (std::size_t i = 0; joins && i < 3; ++i) joins = operands[i]->batch_strides.back() == extent * strides[i];
  for (std::size_t i = 0; i < 3; ++i) {
    if (joins)
      operands[i]->batch_strides.back() = strides[i];
    else
      operands[i]->batch_strides.push_back(strides[i]);
  }
  if (joins)
    v.batch.back() *= extent;
  else
    v.batch.push_back(extent);
}

// The gradient of a factor without leading dimensions is summed over all rows of the two it is the product of.
void check_gradient(const TaskOperands& t) {
  const Shape &a = t.read("a")->shape, &b = t.read("b")->shape, &c = t.written("c")->shape;
  if (c.rank != 2 || a.rank == 2 || b.rank == 2) return t.expect_form();
  for (const char* name : {"a", "b", "c"}) t.expect_float(name);
  if (t.attrs().integer("trans_a", 0) == 0 || t.attrs().integer("trans_b", 0) != 0)
    t.fail("c", t.write_id("c"), fmt::format("with the leading dimensions of a, which is {}", to_string(a)));
  Shape rows = a;
  rows[rows.rank - 1u] = b.back();
  t.expect_shape("b", rows);
  t.expect_shape("c", {a.back(), b.back()});
}

constexpr TaskRule kTasks[] = {{kForward, "a b -> c"}, {kGradient, "a b -> c", check_gradient}};

}  // namespace

MatmulView matmul_view(const Attrs& attrs, const Shape& a, const Shape& b, const Shape& c) {
  MatmulView v;
  v.a.is_transposed = attrs.integer("trans_a", 0) != 0;
  v.b.is_transposed = attrs.integer("trans_b", 0) != 0;
  v.n = c.back();
  if (b.rank == 2 || c.rank == 2) {
    // A factor without leading dimensions meets all rows of the other at once; its gradient sums over all of them.
    v.m = c.elements() / v.n;
    v.k = v.a.is_transposed ? a.elements() / a.back() : a.back();
    v.a.row_stride = a.back();
    v.b.row_stride = b.back();
    v.c.row_stride = v.n;
    return v;
  }
  const Order order_a = order_of(attrs, "order_a", a), order_b = order_of(attrs, "order_b", b),
              order_c = order_of(attrs, "order_c", c);
  const std::vector<std::int64_t> in_a = strides_of(a, order_a), in_b = strides_of(b, order_b),
                                  in_c = strides_of(c, order_c);
  const Shape left = ordered(a, order_a), product = ordered(c, order_c);
  const std::size_t rows = product.rank - 2u;
  v.m = product[rows];
  v.k = left[v.a.is_transposed ? rows : rows + 1];
  v.a.row_stride = in_a[rows];
  v.b.row_stride = in_b[rows];
  v.c.row_stride = in_c[rows];
  for (std::size_t i = 0; i < rows; ++i) add_batch(v, product[i], {in_a[i], in_b[i], in_c[i]});
  return v;
}

OpTraits matmul_traits() {
  return {.op = Op::matmul, .form = form, .gradient = gradient, .flops = flops, .tasks = kTasks};
}

}  // namespace overtake
