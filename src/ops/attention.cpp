// o = softmax(scale q k^T + masks) v per head; q [B, Sq, E], k, v [B, Sk, E], or all three packed in q [B, S, 3 E]
// forward:    reads q, k?, v?, mask? (uint8 [B, Sk], 0 = hidden)   writes o [B, Sq, E], lse [B, heads, Sq]
// input_grad: reads q, k?, v?, mask?, o, lse, do                   writes dq, dk?, dv?
// attributes: heads, causal (0 or 1: query i sees keys j <= i + Sk - Sq, so the last query sees all), scale (absent: 1
// / sqrt
//             of the width of a head)

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const TensorType &q = inputs[0], &k = inputs[1], &v = inputs[2], &mask = inputs[3];
  expect_rank(q, 3, "the query");
  const bool is_packed = !k.is_present;
  const std::int64_t heads = attrs.integer("heads"), width = is_packed ? q.shape[2] / 3 : q.shape[2];
  if (heads < 1 || width % heads != 0 || (is_packed && q.shape[2] % 3 != 0))
    fail_shape("width {} does not divide into {} heads{}", q.shape[2], heads,
               is_packed ? " of query, key and value" : "");
  if (!is_packed && (k.shape != v.shape || k.shape.rank != 3 || k.shape[0] != q.shape[0] || k.shape[2] != width))
    fail_shape("query {}, key {} and value {} do not fit", to_string(q.shape), to_string(k.shape), to_string(v.shape));
  const std::int64_t keys = is_packed ? q.shape[1] : k.shape[1];
  if (mask.is_present && (mask.shape != Shape{q.shape[0], keys} || mask.dtype != DType::u8))
    fail_shape("the mask must be uint8 [{}, {}], but is {}", q.shape[0], keys, to_string(mask.shape));
  const Shape o = {q.shape[0], q.shape[1], width};
  return {.parameters = {}, .outputs = {{"", o, q.dtype}, {"lse", {q.shape[0], heads, q.shape[1]}}}};
}

void gradient(Gradient& g) {
  if (g.in(1) == kNone) {
    g.emit(Kind::input_grad, {g.in(0), kNone, kNone, g.in(3), g.out(0), g.out(1), g.grad_out(0)},
           {g.grad_in(0), kNone, kNone});
    return;
  }
  // The kernel makes all three at once; one that nobody wants is a temporary.
  BufferId grads[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const Buffer& x = g.graph().buffers[g.in(i)];
    grads[i] = g.wants(i) ? g.grad_in(i) : g.temporary(fmt::format("unused{}", i), Shape(x.shape), x.dtype);
  }
  g.emit(Kind::input_grad, {g.in(0), g.in(1), g.in(2), g.in(3), g.out(0), g.out(1), g.grad_out(0)},
         {grads[0], grads[1], grads[2]});
}

double flops(const Graph& g, const Task& t) {
  const Attrs& attrs = g.attrs_of(t);
  const Shape& q = g.buffers[g.reads(t)[0]].shape;
  const bool is_packed = g.reads(t)[1] == kNone;
  const std::int64_t keys = is_packed ? q[1] : g.buffers[g.reads(t)[1]].shape[1];
  const double width = static_cast<double>(is_packed ? q[2] / 3 : q[2]);
  const double product =
      2.0 * static_cast<double>(q[0] * q[1] * keys) * width * (attrs.integer("causal", 0) != 0 ? 0.5 : 1.0);
  return product * (t.kind == Kind::forward ? 2.0 : 5.0);  // q k, p v; the backward has five products
}

constexpr TaskRule kTasks[] = {{kForward, "q k? v? mask#? -> o lse!"},
                               {kGradient, "q k? v? mask#? o lse! do -> dq dk? dv?"}};

}  // namespace

OpTraits attention_traits() {
  return {.op = Op::attention, .form = form, .gradient = gradient, .flops = flops, .tasks = kTasks};
}

}  // namespace overtake
