// Max, average, global and adaptive pooling.

#include "exec/cpu/bindings.h"
#include "kernels/cpu/adaptive_pool.h"
#include "kernels/cpu/pool.h"

namespace overtake {
namespace {

kernels::PoolShape pool_shape(const TaskView& v) {
  const bool is_forward = v.kind() == Kind::forward;
  const Shape &x = (is_forward ? v.read(0) : v.write(0)).shape, &y = (is_forward ? v.write(0) : v.read(0)).shape;
  const auto &kernel = v.attrs().integers("kernel"), &stride = v.attrs().integers("stride"),
             &padding = v.attrs().integers("padding");
  kernels::PoolShape s;
  s.batch = x[0];
  s.channels = x[1];
  s.in_h = x[2];
  s.in_w = x[3];
  s.out_h = y[2];
  s.out_w = y[3];
  s.kernel_h = kernel[0];
  s.kernel_w = kernel[1];
  s.stride_h = stride[0];
  s.stride_w = stride[1];
  s.pad_top = padding[0];
  s.pad_left = padding[1];
  s.pad_bottom = padding[2];
  s.pad_right = padding[3];
  kernels::check_pool(s);
  return s;
}

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
  const Shape &x = (is_forward ? v.read(0) : v.write(0)).shape, &y = (is_forward ? v.write(0) : v.read(0)).shape;
  const kernels::AdaptivePoolShape s{.channels = x[1], .in_h = x[2], .in_w = x[3], .out_h = y[2], .out_w = y[3]};
  const std::int64_t batch = x[0];
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
