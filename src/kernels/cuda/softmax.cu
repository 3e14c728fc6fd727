#include "kernels/cuda/softmax.h"

#include <cfloat>

#include "kernels/cuda/exponential.cuh"
#include "kernels/cuda/group_reduce.cuh"
#include "kernels/cuda/held_row.cuh"
#include "kernels/cuda/launch.h"

namespace overtake::cuda {

namespace {

constexpr int kThreads = 128;  // of a block where a thread has a column
constexpr int kAhead = 8;      // elements of its column it has on their way at a time

// inner == 1. x, y: [rows][width].
template <class T, class Plan>
__global__ void __launch_bounds__(Plan::threads) softmax_rows_kernel(const T* x, T* y, std::int64_t rows, int width) {
  constexpr int V = Plan::V;
  const std::int64_t row = Plan::row();
  if (row >= rows) return;
  const HeldRow<T, Plan> held(x + row * width, width);
  float largest = -INFINITY;
  Plan::for_each_pack(width, [&](int s, int column) {
    float values[V];
    held.get(s, column, values);
#pragma unroll
    for (int i = 0; i < V; ++i) largest = fmaxf(largest, values[i]);
  });
  largest = group_reduce<Plan::G>(largest, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  Plan::for_each_pack(width, [&](int s, int column) {
    float values[V];
    held.get(s, column, values);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += exp_fast(values[i] - largest);
  });
  const float scale = 1.0f / group_sum<Plan::G>(sum);
  T* y_row = y + row * width;
  Plan::for_each_pack(width, [&](int s, int column) {
    float values[V];
    held.get(s, column, values);
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] = exp_fast(values[i] - largest) * scale;
    store_values(y_row + column, values);
  });
}

template <class T, class Plan>
__global__ void __launch_bounds__(Plan::threads)
    softmax_rows_backward_kernel(const T* y, const T* dy, T* dx, std::int64_t rows, int width) {
  constexpr int V = Plan::V;
  const std::int64_t row = Plan::row();
  if (row >= rows) return;
  const std::int64_t first = row * width;
  const HeldRow<T, Plan> held_y(y + first, width), held_dy(dy + first, width);
  float dot = 0;
  Plan::for_each_pack(width, [&](int s, int column) {
    float values[V], grads[V];
    held_y.get(s, column, values);
    held_dy.get(s, column, grads);
#pragma unroll
    for (int i = 0; i < V; ++i) dot += values[i] * grads[i];
  });
  dot = group_sum<Plan::G>(dot);
  Plan::for_each_pack(width, [&](int s, int column) {
    float values[V], grads[V];
    held_y.get(s, column, values);
    held_dy.get(s, column, grads);
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] *= grads[i] - dot;
    store_values(dx + first + column, values);
  });
}

// values [kAhead] = elements i, i + 1, ... of a column; what is past its end is `missing`.
template <class T>
__device__ void load_ahead(const T* column, int i, int axis, std::int64_t inner, float missing,
                           float (&values)[kAhead]) {
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    float value[1] = {missing};
    if (i + k < axis) unpack(load_packed<1>(column + (i + k) * inner), value);
    values[k] = value[0];
  }
}

template <class T>
__device__ void store_ahead(T* column, int i, int axis, std::int64_t inner, const float (&values)[kAhead]) {
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const float value[1] = {values[k]};
    if (i + k < axis) store_values(column + (i + k) * inner, value);
  }
}

// The offset of this thread's column in [outer, axis, inner], or -1 if there is none.
__device__ std::int64_t column_offset(std::int64_t columns, int axis, std::int64_t inner) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  return column < columns ? column / inner * axis * inner + column % inner : -1;
}

// One pass for the largest and the sum, which is scaled anew when a larger element comes; one to write.
template <class T>
__global__ void __launch_bounds__(kThreads)
    softmax_columns_kernel(const T* x, T* y, std::int64_t columns, int axis, std::int64_t inner) {
  const std::int64_t offset = column_offset(columns, axis, inner);
  if (offset < 0) return;
  const T* in = x + offset;
  T* out = y + offset;
  float largest = -FLT_MAX, sum = 0;  // not -inf: elements of -inf then add 0 and not NaN
  for (int i = 0; i < axis; i += kAhead) {
    float values[kAhead];
    load_ahead(in, i, axis, inner, -INFINITY, values);
    float new_largest = largest;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) new_largest = fmaxf(new_largest, values[k]);
    sum *= exp_fast(largest - new_largest);
    largest = new_largest;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) sum += exp_fast(values[k] - largest);
  }
  const float scale = 1.0f / sum;
  for (int i = 0; i < axis; i += kAhead) {
    float values[kAhead];
    load_ahead(in, i, axis, inner, 0.0f, values);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) values[k] = exp_fast(values[k] - largest) * scale;
    store_ahead(out, i, axis, inner, values);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    softmax_columns_backward_kernel(const T* y, const T* dy, T* dx, std::int64_t columns, int axis,
                                    std::int64_t inner) {
  const std::int64_t offset = column_offset(columns, axis, inner);
  if (offset < 0) return;
  const T *values = y + offset, *grads = dy + offset;
  T* out = dx + offset;
  float dot = 0;
  for (int i = 0; i < axis; i += kAhead) {
    float y_values[kAhead], dy_values[kAhead];
    load_ahead(values, i, axis, inner, 0.0f, y_values);
    load_ahead(grads, i, axis, inner, 0.0f, dy_values);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) dot += y_values[k] * dy_values[k];
  }
  for (int i = 0; i < axis; i += kAhead) {
    float y_values[kAhead], dy_values[kAhead];
    load_ahead(values, i, axis, inner, 0.0f, y_values);
    load_ahead(grads, i, axis, inner, 0.0f, dy_values);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) y_values[k] *= dy_values[k] - dot;
    store_ahead(out, i, axis, inner, y_values);
  }
}

unsigned column_blocks(const char* name, std::int64_t columns) {
  return grid_blocks(name, (columns + kThreads - 1) / kThreads);
}

}  // namespace

template <class T>
void softmax_forward(cudaStream_t stream, const T* x, T* y, std::int64_t axis, std::int64_t inner, std::int64_t outer) {
  constexpr const char* name = "softmax_forward";
  if (outer * inner * axis == 0) return;
  require_aligned(name, {x, y});
  const int width = static_cast<int>(axis);
  if (inner == 1) {
    with_row_plan<T>(axis, [&]<class Plan>(Plan) {
      const unsigned grid = grid_blocks(name, (outer + Plan::rows_per_block - 1) / Plan::rows_per_block);
      softmax_rows_kernel<T, Plan><<<grid, Plan::threads, 0, stream>>>(x, y, outer, width);
    });
  } else {
    softmax_columns_kernel<<<column_blocks(name, outer * inner), kThreads, 0, stream>>>(x, y, outer * inner, width,
                                                                                        inner);
  }
  check_launch(name);
}

template <class T>
void softmax_backward(cudaStream_t stream, const T* y, const T* dy, T* dx, std::int64_t axis, std::int64_t inner,
                      std::int64_t outer) {
  constexpr const char* name = "softmax_backward";
  if (outer * inner * axis == 0) return;
  require_aligned(name, {y, dy, dx});
  const int width = static_cast<int>(axis);
  if (inner == 1) {
    with_row_plan<T>(axis, [&]<class Plan>(Plan) {
      const unsigned grid = grid_blocks(name, (outer + Plan::rows_per_block - 1) / Plan::rows_per_block);
      softmax_rows_backward_kernel<T, Plan><<<grid, Plan::threads, 0, stream>>>(y, dy, dx, outer, width);
    });
  } else {
    softmax_columns_backward_kernel<<<column_blocks(name, outer * inner), kThreads, 0, stream>>>(
        y, dy, dx, outer * inner, width, inner);
  }
  check_launch(name);
}

template void softmax_forward(cudaStream_t, const float*, float*, std::int64_t, std::int64_t, std::int64_t);
template void softmax_forward(cudaStream_t, const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t);
template void softmax_backward(cudaStream_t, const float*, const float*, float*, std::int64_t, std::int64_t,
                               std::int64_t);
template void softmax_backward(cudaStream_t, const bf16*, const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t);

}  // namespace overtake::cuda
