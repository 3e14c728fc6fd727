// Activation, dropout, add, mul, chain, sum, softmax.

#include "exec/cpu/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/softmax.h"

namespace overtake {
namespace {

using kernels::blocks_of;

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

template <kernels::BinaryOp op>
BoundTask binary_forward(const TaskView& v) {
  const kernels::BinaryPlan plan = binary_plan(v);
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *a = v.in<T>(0), *b = v.in<T>(1);
    T* y = v.out<T>(0);
    return {over_units(parts_for(v, plan.units, 4), plan.units, [=](std::int64_t begin, std::int64_t end) {
      kernels::binary_forward(op, plan, a, b, y, begin, end);
    })};
  });
}

template <kernels::BinaryOp op>
BoundTask binary(const TaskView& v) {
  if (v.kind() == Kind::forward) return binary_forward<op>(v);
  const kernels::BinaryGradPlan plan = binary_grad_plan(v, op);
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
  return v.kind() == Kind::forward ? 0 : binary_grad_plan(v, op).partials * static_cast<std::int64_t>(sizeof(float));
}

BoundTask chain(const TaskView& v) {
  const std::int64_t count = v.write(0).shape.elements(), blocks = blocks_of(count);
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    std::vector<const T*> in;
    std::vector<T*> out;
    for (std::size_t i = 0; i < v.reads(); ++i) in.push_back(v.in<T>(i));
    for (std::size_t i = 0; i < v.writes(); ++i) out.push_back(v.out<T>(i));
    return {over_units(parts_for(v, blocks, kLeastBlocks), blocks,
                       [=, program = chain_program(v)](std::int64_t begin, std::int64_t end) {
                         kernels::chain<T>(program, in, out, count, begin, end);
                       })};
  });
}

BoundTask sum(const TaskView& v) {
  // Equal layouts, so the order of elements does not matter; padding adds up to padding.
  const std::int64_t count = padded_elements(v.write(0).layout, v.write(0).shape.span()), blocks = blocks_of(count);
  if (has_mixed_types(v)) {
    return with_type(v.read(0).dtype, [&]<class A>(A) {
      return with_type(v.write(0).dtype, [&]<class Out>(Out) -> BoundTask {
        const auto add = [=, a = v.in<A>(0), b = v.in<bf16>(1), out = v.out<Out>(0)](
                             std::int64_t begin, std::int64_t end) { kernels::add_bf16(a, b, out, count, begin, end); };
        return {over_units(parts_for(v, blocks, kLeastBlocks), blocks, add)};
      });
    });
  }
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    std::vector<const T*> in;
    for (std::size_t i = 0; i < v.reads(); ++i) in.push_back(v.in<T>(i));
    T* out = v.out<T>(0);
    return {over_units(parts_for(v, blocks, kLeastBlocks), blocks,
                       [=](std::int64_t begin, std::int64_t end) { kernels::sum_n<T>(in, out, count, begin, end); })};
  });
}

BoundTask softmax(const TaskView& v) {
  const AxisView y = along(v.write(0), v.attrs().integer("axis"));
  const std::int64_t axis = y.axis, inner = y.inner, units = kernels::softmax_units(y.outer, inner);
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

CpuBinding bind_activation() { return {activation, nullptr}; }
CpuBinding bind_dropout() { return {dropout, nullptr}; }
CpuBinding bind_add() { return {binary<kernels::BinaryOp::add>, binary_scratch<kernels::BinaryOp::add>}; }
CpuBinding bind_mul() { return {binary<kernels::BinaryOp::mul>, binary_scratch<kernels::BinaryOp::mul>}; }
CpuBinding bind_chain() { return {chain, nullptr}; }
CpuBinding bind_sum() { return {sum, nullptr}; }
CpuBinding bind_softmax() { return {softmax, nullptr}; }

}  // namespace overtake
