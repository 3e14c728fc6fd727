#include "kernels/cuda/batch_norm.h"

#include <stdexcept>

#include "kernels/cuda/columns.cuh"

namespace overtake::cuda {
namespace {

// The value before the activation. Forward and mask recomputation share it, so that they agree to the last bit.
__device__ inline float normalised(float x, float mean, float scale, float beta) { return fmaf(x - mean, scale, beta); }

// What a thread knows of its V channels.
template <int V>
struct NormColumns {
  float mean[V], scale[V], beta[V];
};

// scale = gamma * rstd. norm: pointers to [channels].
template <int V>
__device__ inline void load_norm(const BatchNormChannels& norm, int channel, NormColumns<V>& known) {
  float rstd[V];
  load_columns(norm.mean + channel, known.mean);
  load_columns(norm.gamma + channel, known.scale);
  load_columns(norm.beta + channel, known.beta);
  load_columns(norm.rstd + channel, rstd);
#pragma unroll
  for (int i = 0; i < V; ++i) known.scale[i] *= rstd[i];
}

// Sums of deviations from the first row and of their squares.
template <class T, int V>
struct DeviationSums {
  const T* x;     // [rows][channels]
  float* origin;  // [channels]

  struct Columns {
    float origin[V];
  };
  using Loaded = Packed<T, V>;

  // One thread a column, in the first chunk, also writes the origin down.
  __device__ Columns columns(int, int channel) const {
    Columns known;
    unpack(load_packed<V>(x + channel), known.origin);
    if (blockIdx.x == 0 && threadIdx.y == 0) store_columns(origin + channel, known.origin);
    return known;
  }
  __device__ Loaded load(std::int64_t, std::int64_t at) const { return load_packed<V>(x + at); }
  __device__ void add(const Columns& known, const Loaded& loaded, std::int64_t, float (&sum)[V],
                      float (&squares)[V]) const {
    float values[V];
    unpack(loaded, values);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float d = values[i] - known.origin[i];
      sum[i] += d;
      squares[i] += d * d;
    }
  }
};

// finish of the statistics; all arrays [channels].
struct StoreStatistics {
  const float* origin;
  double rows;
  float epsilon, momentum;
  float *mean, *rstd, *running_mean, *running_var;

  __device__ void operator()(int c, double sum, double squares) const {
    const double deviation = sum / rows;
    const double squared = fmax(squares - sum * deviation, 0.0);
    const auto average = static_cast<float>(static_cast<double>(origin[c]) + deviation);
    mean[c] = average;
    rstd[c] = static_cast<float>(1.0 / sqrt(squared / rows + static_cast<double>(epsilon)));
    if (running_mean != nullptr) running_mean[c] += momentum * (average - running_mean[c]);
    if (running_var != nullptr) {
      const auto unbiased = static_cast<float>(squared / fmax(rows - 1.0, 1.0));
      running_var[c] += momentum * (unbiased - running_var[c]);
    }
  }
};

__global__ void running_rstd_kernel(const float* running_var, float epsilon, int channels, float* rstd) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= channels) return;
  rstd[c] = static_cast<float>(1.0 / sqrt(static_cast<double>(running_var[c]) + static_cast<double>(epsilon)));
}

template <class T, int V, bool has_residual, bool relu>
struct Apply {
  const T *x, *residual;  // [rows][channels]
  BatchNormChannels norm;
  T* y;

  using Columns = NormColumns<V>;
  struct Loaded {
    Packed<T, V> x, residual;
  };

  __device__ Columns columns(int, int channel) const {
    Columns known;
    load_norm(norm, channel, known);
    return known;
  }
  __device__ Loaded load(std::int64_t, std::int64_t at) const {
    Loaded loaded;
    loaded.x = load_packed<V>(x + at);
    if constexpr (has_residual) loaded.residual = load_packed<V>(residual + at);
    return loaded;
  }
  __device__ void store(const Columns& known, const Loaded& loaded, std::int64_t at) const {
    float values[V], residuals[V];
    unpack(loaded.x, values);
    if constexpr (has_residual) unpack(loaded.residual, residuals);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      float z = normalised(values[i], known.mean[i], known.scale[i], known.beta[i]);
      if constexpr (has_residual) z += residuals[i];
      if constexpr (relu) z = z < 0.0f ? 0.0f : z;  // NaN stays NaN
      values[i] = z;
    }
    store_values(y + at, values);
  }
};

// Sums of dz and of dz * (x - mean); stores dz if asked to.
template <class T, int V, BatchNormMask mask, bool stores>
struct GradientSums {
  const T *x, *dy, *y;  // [rows][channels]
  BatchNormChannels norm;
  T* dz;

  using Columns = NormColumns<V>;
  struct Loaded {
    Packed<T, V> x, dy, y;
  };

  __device__ Columns columns(int, int channel) const {
    Columns known;
    if constexpr (mask == BatchNormMask::from_x) {
      load_norm(norm, channel, known);
    } else {
      load_columns(norm.mean + channel, known.mean);
    }
    return known;
  }
  __device__ Loaded load(std::int64_t, std::int64_t at) const {
    Loaded loaded;
    loaded.x = load_packed<V>(x + at);
    loaded.dy = load_packed<V>(dy + at);
    if constexpr (mask == BatchNormMask::from_y) loaded.y = load_packed<V>(y + at);
    return loaded;
  }
  __device__ void add(const Columns& known, const Loaded& loaded, std::int64_t at, float (&sum)[V],
                      float (&products)[V]) const {
    float values[V], grads[V], outputs[V];
    unpack(loaded.x, values);
    unpack(loaded.dy, grads);
    if constexpr (mask == BatchNormMask::from_y) unpack(loaded.y, outputs);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (mask == BatchNormMask::from_x) {
        const float z = normalised(values[i], known.mean[i], known.scale[i], known.beta[i]);
        grads[i] = z > 0.0f ? grads[i] : 0.0f;
      }
      if constexpr (mask == BatchNormMask::from_y) grads[i] = outputs[i] > 0.0f ? grads[i] : 0.0f;
      sum[i] += grads[i];
      products[i] += grads[i] * (values[i] - known.mean[i]);
    }
    if constexpr (stores) store_values(dz + at, grads);
  }
};

// dx = scale * (dz - dbeta / rows - (x - mean) * rstd * dgamma / rows)
template <class T, int V, BatchNormMask mask>
struct InputGrad {
  const T *x, *dy;  // [rows][channels]
  BatchNormChannels norm;
  const float *dgamma, *dbeta;  // [channels]
  float per_row;
  T* dx;

  struct Columns {
    NormColumns<V> norm;
    float offset[V], slope[V];
  };
  struct Loaded {
    Packed<T, V> x, dy;
  };

  __device__ Columns columns(int, int channel) const {
    Columns known;
    float rstd[V];
    load_norm(norm, channel, known.norm);
    load_columns(norm.rstd + channel, rstd);
    load_columns(dbeta + channel, known.offset);
    load_columns(dgamma + channel, known.slope);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      known.offset[i] *= per_row;
      known.slope[i] *= rstd[i] * per_row;
    }
    return known;
  }
  __device__ Loaded load(std::int64_t, std::int64_t at) const {
    return {load_packed<V>(x + at), load_packed<V>(dy + at)};
  }
  __device__ void store(const Columns& known, const Loaded& loaded, std::int64_t at) const {
    float values[V], grads[V];
    unpack(loaded.x, values);
    unpack(loaded.dy, grads);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (mask == BatchNormMask::from_x) {
        const float z = normalised(values[i], known.norm.mean[i], known.norm.scale[i], known.norm.beta[i]);
        grads[i] = z > 0.0f ? grads[i] : 0.0f;
      }
      const float deviation = values[i] - known.norm.mean[i];
      values[i] = known.norm.scale[i] * fmaf(-deviation, known.slope[i], grads[i] - known.offset[i]);
    }
    store_values(dx + at, values);
  }
};

// finish of the weight gradients; all arrays [channels].
struct StoreWeightGrad {
  const float* rstd;
  float *dgamma, *dbeta;

  __device__ void operator()(int c, double sum, double products) const {
    if (dbeta != nullptr) dbeta[c] = static_cast<float>(sum);
    if (dgamma != nullptr) dgamma[c] = static_cast<float>(products) * rstd[c];
  }
};

// Calls body(bool_constant) for a flag known at run time only.
template <class Body>
void with_flag(bool flag, const Body& body) {
  flag ? body(std::true_type{}) : body(std::false_type{});
}

template <BatchNormMask mask>
using MaskConstant = std::integral_constant<BatchNormMask, mask>;

template <class Body>
void with_mask(BatchNormMask mask, const Body& body) {
  using enum BatchNormMask;
  if (mask == none) return body(MaskConstant<none>{});
  mask == from_x ? body(MaskConstant<from_x>{}) : body(MaskConstant<from_y>{});
}

}  // namespace

std::int64_t batch_norm_partials(std::int64_t rows, std::int64_t channels) {
  return column_partials(1, rows, channels) + channels;
}

std::int64_t batch_norm_grad_partials(std::int64_t rows, std::int64_t channels) {
  return column_partials(1, rows, channels);
}

template <class T>
void batch_norm_reduce(cudaStream_t stream, const T* x, std::int64_t rows, std::int64_t channels, float* partials) {
  constexpr const char* name = "batch_norm_reduce";
  require_aligned(name, {x, partials});
  float* origin = partials + column_partials(1, rows, channels);
  with_vector_width<T>(channels, [&](auto vector) {
    column_sums<vector>(stream, name, DeviationSums<T, vector>{x, origin}, 1, rows, channels, partials);
  });
}

void batch_norm_statistics(cudaStream_t stream, const float* partials, std::int64_t rows, std::int64_t channels,
                           float epsilon, float momentum, float* mean, float* rstd, float* running_mean,
                           float* running_var) {
  const float* origin = partials + column_partials(1, rows, channels);
  const StoreStatistics finish{origin,     static_cast<double>(rows), epsilon, momentum, mean, rstd, running_mean,
                               running_var};
  combine_columns(stream, "batch_norm_statistics", partials, column_chunks(1, rows, channels), channels, finish);
}

void batch_norm_running_rstd(cudaStream_t stream, const float* running_var, float epsilon, std::int64_t channels,
                             float* rstd) {
  constexpr const char* name = "batch_norm_running_rstd";
  constexpr int threads = 128;  // there are few channels: spread them
  running_rstd_kernel<<<grid_blocks(name, (channels + threads - 1) / threads), threads, 0, stream>>>(
      running_var, epsilon, static_cast<int>(channels), rstd);
  check_launch(name);
}

template <class T>
void batch_norm_apply(cudaStream_t stream, const T* x, const T* residual, const BatchNormChannels& norm,
                      std::int64_t rows, std::int64_t channels, bool relu, T* y) {
  constexpr const char* name = "batch_norm_apply";
  require_aligned(name, {x, residual, norm.mean, norm.rstd, norm.gamma, norm.beta, y});
  with_vector_width<T>(channels, [&](auto vector) {
    with_flag(residual != nullptr, [&](auto has_residual) {
      with_flag(relu, [&](auto is_relu) {
        const Apply<T, vector, has_residual, is_relu> op{x, residual, norm, y};
        column_map<vector>(stream, name, op, 1, rows, channels);
      });
    });
  });
}

template <class T>
void batch_norm_grad_reduce(cudaStream_t stream, const T* x, const T* dy, const T* y, const BatchNormChannels& norm,
                            BatchNormMask mask, std::int64_t rows, std::int64_t channels, T* dz, float* partials) {
  constexpr const char* name = "batch_norm_grad_reduce";
  require_aligned(name, {x, dy, y, norm.mean, norm.rstd, norm.gamma, norm.beta, dz});
  with_vector_width<T>(channels, [&](auto vector) {
    with_mask(mask, [&](auto kind) {
      with_flag(dz != nullptr, [&](auto stores) {
        const GradientSums<T, vector, kind, stores> op{x, dy, y, norm, dz};
        column_sums<vector>(stream, name, op, 1, rows, channels, partials);
      });
    });
  });
}

void batch_norm_weight_grad(cudaStream_t stream, const float* partials, std::int64_t rows, std::int64_t channels,
                            const float* rstd, float* dgamma, float* dbeta) {
  combine_columns(stream, "batch_norm_weight_grad", partials, column_chunks(1, rows, channels), channels,
                  StoreWeightGrad{rstd, dgamma, dbeta});
}

template <class T>
void batch_norm_input_grad(cudaStream_t stream, const T* x, const T* dy, const BatchNormChannels& norm,
                           const float* dgamma, const float* dbeta, BatchNormMask mask, std::int64_t rows,
                           std::int64_t channels, T* dx) {
  constexpr const char* name = "batch_norm_input_grad";
  if (mask == BatchNormMask::from_y) throw std::logic_error("batch_norm_input_grad takes the masked gradient");
  require_aligned(name, {x, dy, norm.mean, norm.rstd, norm.gamma, norm.beta, dgamma, dbeta, dx});
  const float per_row = 1.0f / static_cast<float>(rows);
  with_vector_width<T>(channels, [&](auto vector) {
    if (mask == BatchNormMask::from_x) {
      const InputGrad<T, vector, BatchNormMask::from_x> op{x, dy, norm, dgamma, dbeta, per_row, dx};
      column_map<vector>(stream, name, op, 1, rows, channels);
    } else {
      const InputGrad<T, vector, BatchNormMask::none> op{x, dy, norm, dgamma, dbeta, per_row, dx};
      column_map<vector>(stream, name, op, 1, rows, channels);
    }
  });
}

template void batch_norm_reduce(cudaStream_t, const float*, std::int64_t, std::int64_t, float*);
template void batch_norm_reduce(cudaStream_t, const bf16*, std::int64_t, std::int64_t, float*);
template void batch_norm_apply(cudaStream_t, const float*, const float*, const BatchNormChannels&, std::int64_t,
                               std::int64_t, bool, float*);
template void batch_norm_apply(cudaStream_t, const bf16*, const bf16*, const BatchNormChannels&, std::int64_t,
                               std::int64_t, bool, bf16*);
template void batch_norm_grad_reduce(cudaStream_t, const float*, const float*, const float*, const BatchNormChannels&,
                                     BatchNormMask, std::int64_t, std::int64_t, float*, float*);
template void batch_norm_grad_reduce(cudaStream_t, const bf16*, const bf16*, const bf16*, const BatchNormChannels&,
                                     BatchNormMask, std::int64_t, std::int64_t, bf16*, float*);
template void batch_norm_input_grad(cudaStream_t, const float*, const float*, const BatchNormChannels&, const float*,
                                    const float*, BatchNormMask, std::int64_t, std::int64_t, float*);
template void batch_norm_input_grad(cudaStream_t, const bf16*, const bf16*, const BatchNormChannels&, const float*,
                                    const float*, BatchNormMask, std::int64_t, std::int64_t, bf16*);

}  // namespace overtake::cuda
