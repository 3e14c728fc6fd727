// Max, average, global and adaptive pooling.

#include "exec/cuda/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cuda/adaptive_pool.h"
#include "kernels/cuda/pool.h"

namespace overtake::cuda_bindings {
namespace {

// Of y, or of its gradient.
std::int64_t window_pitch(const TaskView& v) {
  return (v.kind() == Kind::forward ? v.write(0) : v.read(0)).layout.pitch;
}

Launch bind_max_pool(const TaskView& v, BoundPlanData&) {
  const kernels::PoolShape shape = pool_shape(v);
  const bool is_forward = v.kind() == Kind::forward;
  const std::int64_t pitch = window_pitch(v);
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T* first = v.in<T>(0);
    T* out = v.out<T>(0);
    std::uint8_t* index_out = v.out<std::uint8_t>(1);
    const std::uint8_t* index_in = v.in<std::uint8_t>(1);
    if (is_forward) return [=](cudaStream_t s) { cuda::max_pool_forward(s, shape, first, out, index_out, pitch); };
    return [=](cudaStream_t s) { cuda::max_pool_input_grad(s, shape, first, index_in, out, pitch); };
  });
}

Launch bind_avg_pool(const TaskView& v, BoundPlanData&) {
  const kernels::PoolShape shape = pool_shape(v);
  const bool is_forward = v.kind() == Kind::forward, counts = v.attrs().integer("count_include_pad") != 0;
  const std::int64_t pitch = window_pitch(v);
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T* first = v.in<T>(0);
    T* out = v.out<T>(0);
    if (is_forward) return [=](cudaStream_t s) { cuda::average_pool_forward(s, shape, counts, first, out, pitch); };
    return [=](cudaStream_t s) { cuda::average_pool_input_grad(s, shape, counts, first, out, pitch); };
  });
}

Launch bind_global_pool(const TaskView& v, BoundPlanData&) {
  const bool is_forward = v.kind() == Kind::forward;
  const Shape& x = (is_forward ? v.read(0) : v.write(0)).shape;
  const std::int64_t batch = x[0], channels = x[1], pixels = x[2] * x[3];
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T* first = v.in<T>(0);
    T* out = v.out<T>(0);
    if (is_forward)
      return [=](cudaStream_t s) { cuda::global_average_pool_forward(s, first, pixels, channels, out, batch); };
    return [=](cudaStream_t s) { cuda::global_average_pool_input_grad(s, first, pixels, channels, out, batch); };
  });
}

Launch bind_adaptive_pool(const TaskView& v, BoundPlanData&) {
  const kernels::AdaptivePoolShape shape = adaptive_pool_shape(v);
  const bool is_forward = v.kind() == Kind::forward;
  const std::int64_t batch = v.read(0).shape[0];
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T* first = v.in<T>(0);
    T* out = v.out<T>(0);
    if (is_forward) return [=](cudaStream_t s) { cuda::adaptive_pool_forward(s, shape, first, out, batch); };
    return [=](cudaStream_t s) { cuda::adaptive_pool_input_grad(s, shape, first, out, batch); };
  });
}

}  // namespace

CudaBinding max_pool() { return {bind_max_pool, nullptr}; }
CudaBinding avg_pool() { return {bind_avg_pool, nullptr}; }
CudaBinding global_pool() { return {bind_global_pool, nullptr}; }
CudaBinding adaptive_pool() { return {bind_adaptive_pool, nullptr}; }

}  // namespace overtake::cuda_bindings
