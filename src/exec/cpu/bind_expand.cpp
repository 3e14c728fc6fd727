// Expand and reduce. Which way numbers go is said by the op alone: each is the gradient of the other.

#include "exec/cpu/bindings.h"
#include "exec/task_shapes.h"

namespace overtake {
namespace {

BoundTask expand(const TaskView& v) {
  const kernels::BinaryPlan plan = expand_plan(v);
  const auto scale = static_cast<float>(v.attrs().real("scale", 1.0));
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* from = v.in<T>(0);
    T* to = v.out<T>(0);
    return {over_units(parts_for(v, plan.units, 4), plan.units, [=](std::int64_t begin, std::int64_t end) {
      kernels::expand(plan, scale, from, to, begin, end);
    })};
  });
}

BoundTask reduce(const TaskView& v) {
  const kernels::BinaryGradPlan plan = reduce_plan(v);
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* x = v.in<T>(0);
    T* y = v.out<T>(0);
    auto* partials = reinterpret_cast<float*>(v.scratch());
    BoundTask task = {over_units(parts_for(v, plan.units), plan.units, [=](std::int64_t begin, std::int64_t end) {
      kernels::binary_backward<T>(plan, x, nullptr, y, partials, begin, end);
    })};
    if (plan.chunks > 1)
      task.push_back(over_units(parts_for(v, plan.combine_units, 8), plan.combine_units,
                                [=](std::int64_t begin, std::int64_t end) {
                                  kernels::binary_backward_combine(plan, partials, y, begin, end);
                                }));
    return task;
  });
}

std::int64_t reduce_scratch(const TaskView& v) {
  return reduce_plan(v).partials * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

CpuBinding bind_expand() { return {expand, nullptr}; }
CpuBinding bind_reduce() { return {reduce, reduce_scratch}; }

}  // namespace overtake
