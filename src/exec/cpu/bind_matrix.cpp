// Linear, matmul, attention.

#include <optional>

#include "exec/cpu/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cpu/linear.h"

namespace overtake {
namespace {

BoundTask linear_forward(const TaskView& v) {
  const std::int64_t in = v.read(1).shape[1], out = v.read(1).shape[0], rows = rows_of(v.read(0));
  std::optional<kernels::Activation> function;
  if (v.attrs().has("function")) function = activation_from_name(v.attrs().text("function"));
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *x = v.in<T>(0), *w = v.in<T>(1);
    const float* bias = v.in<float>(2);
    T *y = v.out<T>(0), *pre = v.out<T>(1);
    return {over_units(parts_for(v, rows, 4), rows, [=](std::int64_t begin, std::int64_t end) {
      kernels::linear_forward(x, w, bias, function, y, pre, in, out, begin, end);
    })};
  });
}

BoundTask linear_input_grad(const TaskView& v) {
  const std::int64_t in = v.read(1).shape[1], out = v.read(1).shape[0], rows = rows_of(v.read(0));
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *dy = v.in<T>(0), *w = v.in<T>(1);
    T* dx = v.out<T>(0);
    return {over_units(parts_for(v, rows, 4), rows, [=](std::int64_t begin, std::int64_t end) {
      kernels::linear_input_grad(dy, w, dx, in, out, begin, end);
    })};
  });
}

BoundTask linear_weight_grad(const TaskView& v) {
  const std::int64_t in = v.read(0).shape.back(), out = v.read(1).shape.back(), rows = rows_of(v.read(0));
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *x = v.in<T>(0), *dy = v.in<T>(1);
    float *dw = v.out<float>(0), *dbias = v.out<float>(1);
    return {over_units(parts_for(v, out, 4), out, [=](std::int64_t begin, std::int64_t end) {
      if (dw != nullptr) kernels::linear_weight_grad(dy, x, dw, rows, in, out, begin, end);
      if (dbias != nullptr) kernels::linear_bias_grad(dy, dbias, rows, out, begin, end);
    })};
  });
}

BoundTask linear(const TaskView& v) {
  if (v.kind() == Kind::forward) return linear_forward(v);
  return v.kind() == Kind::input_grad ? linear_input_grad(v) : linear_weight_grad(v);
}

BoundTask matmul(const TaskView& v) {
  const kernels::MatmulShape shape = matmul_shape(v);
  const std::int64_t units = kernels::matmul_units(shape);
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *x = v.in<T>(0), *y = v.in<T>(1);
    T* z = v.out<T>(0);
    return {over_units(parts_for(v, units), units, [=](std::int64_t begin, std::int64_t end) {
      kernels::matmul<T, T>(shape, x, y, z, begin, end);
    })};
  });
}

template <class T>
std::int64_t attention_piece(const TaskView& v, const kernels::AttentionShape& s) {
  return scratch_piece(v.kind() == Kind::forward ? kernels::attention_scratch_bytes<T>(s)
                                                 : kernels::attention_grad_scratch_bytes<T>(s));
}

BoundTask attention(const TaskView& v) {
  const kernels::AttentionShape s = attention_shape(v);
  const std::int64_t units = s.batch * s.heads;
  const std::uint32_t parts = parts_for(v, units);
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const kernels::AttentionInputs<T> in = attention_inputs<T>(v);
    std::byte* scratch = v.scratch();
    const std::int64_t piece = attention_piece<T>(v, s);
    if (v.kind() == Kind::forward) {
      T* o = v.out<T>(0);
      float* lse = v.out<float>(1);
      return {{parts, [=](std::uint32_t part, const StepArgs&) {
                 const UnitRange r = part_range(units, part, parts);
                 kernels::attention_forward(s, in, o, lse, scratch + part * piece, r.begin, r.end);
               }}};
    }
    const T *o = v.in<T>(4), *o_grad = v.in<T>(6);
    const float* lse = v.in<float>(5);
    const kernels::AttentionGrads<T> grads = attention_grads<T>(v, s);
    return {{parts, [=](std::uint32_t part, const StepArgs&) {
               const UnitRange r = part_range(units, part, parts);
               kernels::attention_input_grad(s, in, o, lse, o_grad, grads, scratch + part * piece, r.begin, r.end);
             }}};
  });
}

std::int64_t attention_scratch(const TaskView& v) {
  const kernels::AttentionShape s = attention_shape(v);
  const std::int64_t parts = parts_for(v, s.batch * s.heads);
  return with_type(v.read(0).dtype, [&]<class T>(T) { return parts * attention_piece<T>(v, s); });
}

}  // namespace

CpuBinding bind_linear() { return {linear, nullptr}; }
CpuBinding bind_matmul() { return {matmul, nullptr}; }
CpuBinding bind_attention() { return {attention, attention_scratch}; }

}  // namespace overtake
