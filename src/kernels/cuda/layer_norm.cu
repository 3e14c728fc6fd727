#include "kernels/cuda/layer_norm.h"

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/group_reduce.cuh"
#include "kernels/cuda/held_row.cuh"

namespace overtake::cuda {
namespace {

// x + residual, rounded to T and stored; both packs: V elements.
template <int V, class T>
__device__ inline Packed<T, V> store_sum(const Packed<T, V>& x, const Packed<T, V>& residual, T* to) {
  float values[V], added[V];
  unpack(x, values);
  unpack(residual, added);
#pragma unroll
  for (int i = 0; i < V; ++i) values[i] += added[i];
  Packed<T, V> sum;
  store_values(reinterpret_cast<T*>(&sum.word), values);
  *reinterpret_cast<typename Packed<T, V>::Word*>(to) = sum.word;
  return sum;
}

// A row of x + residual, written to `sum` and then as HeldRow. A row too long to be held is read again from `sum`, each
// thread what it wrote itself.
template <class T, class Plan, int steps = Plan::Steps>
class SummedRow {
 public:
  __device__ SummedRow(const T* x, const T* residual, int width, T* sum) {
    Packed<T, Plan::V> added[steps];
    Plan::for_each_pack(width, [&](int s, int column) {
      packs_[s] = load_packed<Plan::V>(x + column);
      added[s] = load_packed<Plan::V>(residual + column);
    });
    Plan::for_each_pack(width, [&](int s, int column) { packs_[s] = store_sum(packs_[s], added[s], sum + column); });
  }
  __device__ void get(int step, int, float (&values)[Plan::V]) const { unpack(packs_[step], values); }

 private:
  Packed<T, Plan::V> packs_[steps];
};

template <class T, class Plan>
class SummedRow<T, Plan, 0> {
 public:
  __device__ SummedRow(const T* x, const T* residual, int width, T* sum) : row_(sum) {
    Plan::for_each_pack(width, [&](int, int column) {
      store_sum(load_packed<Plan::V>(x + column), load_packed<Plan::V>(residual + column), sum + column);
    });
  }
  __device__ void get(int, int column, float (&values)[Plan::V]) const {
    unpack(load_packed<Plan::V>(row_ + column), values);
  }

 private:
  const T* row_;
};

// Deviations are from the true mean, so nothing cancels.
template <class T, class Plan, bool adds>
__global__ void __launch_bounds__(Plan::threads)
    layer_norm_forward_kernel(const T* x, const T* residual, const float* gamma, const float* beta, std::int64_t rows,
                              int width, float epsilon, T* y, T* x_sum, float* mean, float* rstd) {
  constexpr int V = Plan::V;
  const std::int64_t row = Plan::row();
  if (row >= rows) return;
  const auto held = [&] {
    const std::int64_t first = row * width;
    if constexpr (adds) {
      return SummedRow<T, Plan>(x + first, residual + first, width, x_sum + first);
    } else {
      return HeldRow<T, Plan>(x + first, width);
    }
  }();
  float sum = 0;
  Plan::for_each_pack(width, [&](int s, int column) {
    float values[V];
    held.get(s, column, values);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += values[i];
  });
  const float row_mean = group_sum<Plan::G>(sum) / static_cast<float>(width);
  float squared = 0;
  Plan::for_each_pack(width, [&](int s, int column) {
    float values[V];
    held.get(s, column, values);
#pragma unroll
    for (int i = 0; i < V; ++i) squared += (values[i] - row_mean) * (values[i] - row_mean);
  });
  const float row_rstd = 1.0f / sqrtf(group_sum<Plan::G>(squared) / static_cast<float>(width) + epsilon);
  if (Plan::lane() == 0) {
    mean[row] = row_mean;
    rstd[row] = row_rstd;
  }
  T* y_row = y + row * width;
  Plan::for_each_pack(width, [&](int s, int column) {
    float values[V], weights[V], shifts[V];
    held.get(s, column, values);
    load_columns(gamma + column, weights);
    fill(shifts, 0.0f);
    if (beta != nullptr) load_columns(beta + column, shifts);
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] = (values[i] - row_mean) * row_rstd * weights[i] + shifts[i];
    store_values(y_row + column, values);
  });
}

// dx = rstd * (g - mean of g - (x - mean) * rstd^2 * mean of g * (x - mean)), g = dy * gamma
template <class T, class Plan>
__global__ void __launch_bounds__(Plan::threads)
    layer_norm_input_grad_kernel(const T* x, const T* dy, const T* add, const float* gamma, const float* mean,
                                 const float* rstd, std::int64_t rows, int width, T* dx) {
  constexpr int V = Plan::V;
  const std::int64_t row = Plan::row();
  if (row >= rows) return;
  const std::int64_t first = row * width;
  const HeldRow<T, Plan> held_x(x + first, width), held_dy(dy + first, width);
  const float row_mean = __ldg(mean + row), row_rstd = __ldg(rstd + row);
  float2 sums = {0, 0};  // of g, and of g * (x - mean)
  Plan::for_each_pack(width, [&](int s, int column) {
    float values[V], grads[V], weights[V];
    held_x.get(s, column, values);
    held_dy.get(s, column, grads);
    load_columns(gamma + column, weights);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float g = grads[i] * weights[i];
      sums.x += g;
      sums.y += g * (values[i] - row_mean);
    }
  });
  sums = group_sum<Plan::G>(sums);
  const float per_column = 1.0f / static_cast<float>(width);
  const float offset = sums.x * per_column, slope = sums.y * per_column * row_rstd * row_rstd;
  Plan::for_each_pack(width, [&](int s, int column) {
    float values[V], grads[V], weights[V], added[V];
    held_x.get(s, column, values);
    held_dy.get(s, column, grads);
    load_columns(gamma + column, weights);
    fill(added, 0.0f);
    if (add != nullptr) unpack(load_packed<V>(add + first + column), added);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float centered = grads[i] * weights[i] - offset;
      values[i] = row_rstd * (centered - (values[i] - row_mean) * slope) + added[i];
    }
    store_values(dx + first + column, values);
  });
}

// Sums of dy * (x - mean) * rstd and of dy; mean, rstd: [rows].
template <class T, int V>
struct LayerNormWeightSums {
  const T *x, *dy;
  const float *mean, *rstd;

  struct Columns {};
  struct Loaded {
    Packed<T, V> x, dy;
    float mean, rstd;
  };

  __device__ Columns columns(int, int) const { return {}; }
  __device__ Loaded load(std::int64_t row, std::int64_t at) const {
    return {load_packed<V>(x + at), load_packed<V>(dy + at), __ldg(mean + row), __ldg(rstd + row)};
  }
  __device__ void add(const Columns&, const Loaded& loaded, std::int64_t, float (&products)[V], float (&sum)[V]) const {
    float values[V], grads[V];
    unpack(loaded.x, values);
    unpack(loaded.dy, grads);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      products[i] += grads[i] * ((values[i] - loaded.mean) * loaded.rstd);
      sum[i] += grads[i];
    }
  }
};

}  // namespace

template <class T>
void layer_norm_forward(cudaStream_t stream, const T* x, const T* residual, const float* gamma, const float* beta,
                        std::int64_t rows, std::int64_t width, float epsilon, T* y, T* sum, float* mean, float* rstd) {
  constexpr const char* name = "layer_norm_forward";
  if (rows == 0) return;
  require_aligned(name, {x, residual, gamma, beta, y, sum});
  with_row_plan<T>(width, [&]<class Plan>(Plan) {
    const unsigned grid = grid_blocks(name, (rows + Plan::rows_per_block - 1) / Plan::rows_per_block);
    const auto kernel =
        residual != nullptr ? layer_norm_forward_kernel<T, Plan, true> : layer_norm_forward_kernel<T, Plan, false>;
    kernel<<<grid, Plan::threads, 0, stream>>>(x, residual, gamma, beta, rows, static_cast<int>(width), epsilon, y, sum,
                                               mean, rstd);
  });
  check_launch(name);
}

template <class T>
void layer_norm_input_grad(cudaStream_t stream, const T* x, const T* dy, const T* add, const float* gamma,
                           const float* mean, const float* rstd, std::int64_t rows, std::int64_t width, T* dx) {
  constexpr const char* name = "layer_norm_input_grad";
  if (rows == 0) return;
  require_aligned(name, {x, dy, add, gamma, dx});
  with_row_plan<T>(width, [&]<class Plan>(Plan) {
    const unsigned grid = grid_blocks(name, (rows + Plan::rows_per_block - 1) / Plan::rows_per_block);
    layer_norm_input_grad_kernel<T, Plan>
        <<<grid, Plan::threads, 0, stream>>>(x, dy, add, gamma, mean, rstd, rows, static_cast<int>(width), dx);
  });
  check_launch(name);
}

std::int64_t layer_norm_partials(std::int64_t rows, std::int64_t width) { return column_partials(1, rows, width); }

template <class T>
void layer_norm_weight_grad_reduce(cudaStream_t stream, const T* x, const T* dy, const float* mean, const float* rstd,
                                   std::int64_t rows, std::int64_t width, float* partials) {
  constexpr const char* name = "layer_norm_weight_grad_reduce";
  require_aligned(name, {x, dy});
  with_vector_width<T>(width, [&](auto vector) {
    column_sums<vector>(stream, name, LayerNormWeightSums<T, vector>{x, dy, mean, rstd}, 1, rows, width, partials);
  });
}

void layer_norm_weight_grad(cudaStream_t stream, const float* partials, std::int64_t rows, std::int64_t width,
                            float* dgamma, float* dbeta) {
  combine_columns(stream, "layer_norm_weight_grad", partials, column_chunks(1, rows, width), width,
                  StoreTotals{dgamma, dbeta});
}

template void layer_norm_forward(cudaStream_t, const float*, const float*, const float*, const float*, std::int64_t,
                                 std::int64_t, float, float*, float*, float*, float*);
template void layer_norm_forward(cudaStream_t, const bf16*, const bf16*, const float*, const float*, std::int64_t,
                                 std::int64_t, float, bf16*, bf16*, float*, float*);
template void layer_norm_input_grad(cudaStream_t, const float*, const float*, const float*, const float*, const float*,
                                    const float*, std::int64_t, std::int64_t, float*);
template void layer_norm_input_grad(cudaStream_t, const bf16*, const bf16*, const bf16*, const float*, const float*,
                                    const float*, std::int64_t, std::int64_t, bf16*);
template void layer_norm_weight_grad_reduce(cudaStream_t, const float*, const float*, const float*, const float*,
                                            std::int64_t, std::int64_t, float*);
template void layer_norm_weight_grad_reduce(cudaStream_t, const bf16*, const bf16*, const float*, const float*,
                                            std::int64_t, std::int64_t, float*);

}  // namespace overtake::cuda
