// Expand and reduce. Which way numbers go is said by the op alone: each is the gradient of the other.

#include <algorithm>

#include "exec/cpu/bindings.h"
#include "kernels/cpu/binary.h"
#include "ops/broadcast.h"

namespace overtake {
namespace {

// Strides, in the physical order of `whole`, of a part that lacks these axes or has 1 there; 0 along them.
std::vector<std::int64_t> strides_of_part(const Buffer& part, const Buffer& whole,
                                          const std::vector<std::int64_t>& axes) {
  std::vector<std::int64_t> logical(whole.shape.rank, 0), physical;
  std::int64_t stride = 1;
  for (std::size_t i = whole.shape.rank; i-- > 0;) {
    // A part of fewer dimensions is plain: target.cpp sees to it.
    const std::size_t dim = part.shape.rank == whole.shape.rank ? part.layout.order[i] : i;
    if (std::ranges::find(axes, static_cast<std::int64_t>(dim)) != axes.end()) continue;
    logical[dim] = stride;
    stride *= whole.shape[dim];
  }
  for (std::size_t i = 0; i < whole.shape.rank; ++i) physical.push_back(logical[whole.layout.order[i]]);
  return physical;
}

BoundTask expand(const TaskView& v) {
  const Buffer &x = v.read(0), &y = v.write(0);
  const auto strides = strides_of_part(x, y, stretched_axes(v.attrs(), x.shape, y.shape));
  const kernels::BinaryPlan plan = kernels::make_binary_plan(physical_dims(y), strides, strides);
  const auto scale = static_cast<float>(v.attrs().real("scale", 1.0));
  return with_type(y.dtype, [&]<class T>(T) -> BoundTask {
    const T* from = v.in<T>(0);
    T* to = v.out<T>(0);
    return {over_units(parts_for(v, plan.units, 4), plan.units, [=](std::int64_t begin, std::int64_t end) {
      kernels::expand(plan, scale, from, to, begin, end);
    })};
  });
}

kernels::BinaryGradPlan reduce_plan(const TaskView& v) {
  const Buffer& x = v.read(0);
  kernels::BinaryGradPlan plan = kernels::make_binary_grad_plan(
      kernels::BinaryOp::add, physical_dims(x), strides_of_part(v.write(0), x, v.attrs().integers("axes")), {});
  plan.scale = static_cast<float>(v.attrs().real("scale", 1.0));
  return plan;
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
