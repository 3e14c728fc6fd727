// Max, average, global and adaptive pooling.

#include "exec/cpu/bindings.h"
#include "exec/task_shapes.h"

namespace overtake {
namespace {

BoundTask max_pool(const TaskView& v) {
  const kernels::PoolShape s = pool_shape(v);
  const bool is_forward = v.kind() == Kind::forward;
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* first = v.in<T>(0);
    T* out = v.out<T>(0);
    std::uint8_t* index_out = v.out<std::uint8_t>(1);
    const std::uint8_t* index_in = v.in<std::uint8_t>(1);
    return {over_units(parts_for(v, s.batch), s.batch, [=](std::int64_t begin, std::int64_t end) {
      if (is_forward)
        kernels::max_pool_forward(s, first, out, index_out, begin, end);
      else
        kernels::max_pool_input_grad(s, first, index_in, out, begin, end);
    })};
  });
}

BoundTask avg_pool(const TaskView& v) {
  const kernels::PoolShape s = pool_shape(v);
  const bool is_forward = v.kind() == Kind::forward, counts_padding = v.attrs().integer("count_include_pad") != 0;
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* first = v.in<T>(0);
    T* out = v.out<T>(0);
    return {over_units(parts_for(v, s.batch), s.batch, [=](std::int64_t begin, std::int64_t end) {
      if (is_forward)
        kernels::average_pool_forward(s, counts_padding, first, out, begin, end);
      else
        kernels::average_pool_input_grad(s, counts_padding, first, out, begin, end);
    })};
  });
}

BoundTask global_pool(const TaskView& v) {
  const bool is_forward = v.kind() == Kind::forward;
  const Shape& x = (is_forward ? v.read(0) : v.write(0)).shape;
  const std::int64_t batch = x[0], channels = x[1], pixels = x[2] * x[3];
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* first = v.in<T>(0);
    T* out = v.out<T>(0);
    return {over_units(parts_for(v, batch), batch, [=](std::int64_t begin, std::int64_t end) {
      if (is_forward)
        kernels::global_average_pool_forward(first, pixels, channels, out, begin, end);
      else
        kernels::global_average_pool_input_grad(first, pixels, channels, out, begin, end);
    })};
  });
}

BoundTask adaptive_pool(const TaskView& v) {
  const bool is_forward = v.kind() == Kind::forward;
  const kernels::AdaptivePoolShape s = adaptive_pool_shape(v);
  const std::int64_t batch = v.read(0).shape[0];
  return with_type(v.write(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* first = v.in<T>(0);
    T* out = v.out<T>(0);
    return {over_units(parts_for(v, batch), batch, [=](std::int64_t begin, std::int64_t end) {
      if (is_forward)
        kernels::adaptive_pool_forward(s, first, out, begin, end);
      else
        kernels::adaptive_pool_input_grad(s, first, out, begin, end);
    })};
  });
}

}  // namespace

CpuBinding bind_max_pool() { return {max_pool, nullptr}; }
CpuBinding bind_avg_pool() { return {avg_pool, nullptr}; }
CpuBinding bind_global_pool() { return {global_pool, nullptr}; }
CpuBinding bind_adaptive_pool() { return {adaptive_pool, nullptr}; }

}  // namespace overtake
