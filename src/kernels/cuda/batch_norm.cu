#include "kernels/cuda/batch_norm.h"

#include <stdexcept>

#include "kernels/cuda/columns.cuh"

namespace overtake::cuda {
namespace {

// Blocks of the sums that a multiprocessor holds at a time: what their registers allow without spilling.
constexpr int kStatisticsBlocks = 2, kGradientBlocks = 1;
constexpr int kChannelThreads = 128;  // a thread per channel: there are few, so they are spread

// The value before the function. Forward and mask recomputation share it, so that they agree to the last bit.
__device__ inline float normalised(float x, float mean, float scale, float beta) { return fmaf(x - mean, scale, beta); }

// The functions: their value at z, and `grad`, the gradient of their value, times their derivative at z. That product
// is rounded (__fmul_rn is never fused with what follows): dz is one number wherever it is used.

template <NormFunction function>
struct Function {  // none
  __device__ static float value(float z) { return z; }
  __device__ static float times_slope(float grad, float) { return grad; }
};

template <>
struct Function<NormFunction::relu> {
  __device__ static float value(float z) { return z < 0.0f ? 0.0f : z; }  // NaN stays NaN
  __device__ static float times_slope(float grad, float z) { return z > 0.0f ? grad : 0.0f; }
};

template <>
struct Function<NormFunction::hard_swish> {
  __device__ static float value(float z) {
    const float s = (z + 3.0f) * (1.0f / 6.0f);
    return z * (s < 0.0f ? 0.0f : (s > 1.0f ? 1.0f : s));
  }
  __device__ static float times_slope(float grad, float z) {
    return __fmul_rn(grad, z <= -3.0f ? 0.0f : (z >= 3.0f ? 1.0f : z * (1.0f / 3.0f) + 0.5f));
  }
};

// Exponentials of negative numbers only: nothing overflows, and 1 - sigmoid(z) does not cancel.
template <>
struct Function<NormFunction::silu> {
  __device__ static float value(float z) {
    const float e = expf(-fabsf(z));
    return z * (z < 0.0f ? e : 1.0f) * __fdividef(1.0f, 1.0f + e);
  }
  __device__ static float times_slope(float grad, float z) {
    const float e = expf(-fabsf(z)), r = __fdividef(1.0f, 1.0f + e);
    return __fmul_rn(grad, r * ((z < 0.0f ? e : 1.0f) + z * e * r));
  }
};

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
  static constexpr int kBlocks = kStatisticsBlocks;
  GappedRows<const T> x;  // [rows][channels]

  struct Columns {
    float origin[V];
  };
  using Loaded = Packed<T, V>;

  __device__ Columns columns(int, int channel) const {
    Columns known;
    unpack(load_packed<V>(x.data + channel), known.origin);
    return known;
  }
  __device__ Loaded load(std::int64_t row, std::int64_t at) const { return load_packed<V>(x.at(row, at)); }
  __device__ void add(const Columns& known, const Loaded& loaded, std::int64_t, std::int64_t, float (&sum)[V],
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

// All arrays: [channels].
struct Statistics {
  double rows;
  float epsilon, momentum;
  float *mean, *rstd, *running_mean, *running_var;

  // squared: the sum of squared deviations from the mean.
  __device__ void store(int c, double exact_mean, double squared) const {
    const auto average = static_cast<float>(exact_mean);
    mean[c] = average;
    rstd[c] = static_cast<float>(1.0 / sqrt(squared / rows + static_cast<double>(epsilon)));
    if (running_mean != nullptr) running_mean[c] += momentum * (average - running_mean[c]);
    if (running_var != nullptr) {
      const auto unbiased = static_cast<float>(squared / fmax(rows - 1.0, 1.0));
      running_var[c] += momentum * (unbiased - running_var[c]);
    }
  }
};

// What the sums of deviations from the first row say of a channel.
template <class T>
struct Deviations {
  double mean, squared;

  __device__ Deviations(const T* x, int c, double rows, double sum, double squares) {
    float origin[1];
    unpack(load_packed<1>(x + c), origin);
    const double deviation = sum / rows;
    mean = static_cast<double>(origin[0]) + deviation;
    squared = fmax(squares - sum * deviation, 0.0);
  }
};

// finish of the statistics; x: [rows][channels].
template <class T>
struct StoreStatistics {
  const T* x;
  Statistics to;

  __device__ void operator()(int c, double sum, double squares) const {
    const Deviations<T> found(x, c, to.rows, sum, squares);
    to.store(c, found.mean, found.squared);
  }
};

// finish of the moments; x: [rows][channels], moments: [2][channels].
template <class T>
struct StoreMoments {
  const T* x;
  double rows;
  std::int64_t channels;
  double* moments;

  __device__ void operator()(int c, double sum, double squares) const {
    const Deviations<T> found(x, c, rows, sum, squares);
    moments[c] = found.mean;
    moments[channels + c] = found.squared;
  }
};

// A thread per channel; rows: of each member.
__global__ void joint_statistics_kernel(const double* moments, int members, double rows, int channels,
                                        const Statistics to) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= channels) return;
  double count = 0, mean = 0, squared = 0;
  for (int m = 0; m < members; ++m) {
    const double* own = moments + static_cast<std::int64_t>(m) * 2 * channels + c;
    const double delta = own[0] - mean, share = rows / (count + rows);
    squared += own[channels] + delta * delta * count * share;
    mean += delta * share;
    count += rows;
  }
  to.store(c, mean, squared);
}

__global__ void running_rstd_kernel(const float* running_var, float epsilon, int channels, float* rstd) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= channels) return;
  rstd[c] = static_cast<float>(1.0 / sqrt(static_cast<double>(running_var[c]) + static_cast<double>(epsilon)));
}

template <class T, int V, bool has_residual, NormFunction function>
struct Apply {
  GappedRows<const T> x;
  const T* residual;  // [rows][channels], as x and y
  BatchNormChannels norm;
  GappedRows<T> y;

  using Columns = NormColumns<V>;
  struct Loaded {
    Packed<T, V> x, residual;
  };

  __device__ Columns columns(int, int channel) const {
    Columns known;
    load_norm(norm, channel, known);
    return known;
  }
  __device__ Loaded load(std::int64_t row, std::int64_t at) const {
    Loaded loaded;
    loaded.x = load_packed<V>(x.at(row, at));
    if constexpr (has_residual) loaded.residual = load_packed<V>(residual + at);
    return loaded;
  }
  __device__ void store(const Columns& known, const Loaded& loaded, std::int64_t row, std::int64_t at) const {
    float values[V], residuals[V];
    unpack(loaded.x, values);
    if constexpr (has_residual) unpack(loaded.residual, residuals);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      float z = normalised(values[i], known.mean[i], known.scale[i], known.beta[i]);
      if constexpr (has_residual) z += residuals[i];
      values[i] = Function<function>::value(z);
    }
    store_values(has_residual ? y.data + at : y.at(row, at), values);  // beside a residual, fewer registers
  }
};

template <class T, int V>
__device__ inline void round_to(float (&values)[V]) {
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (float& value : values) value = __bfloat162float(__float2bfloat16_rn(value));
  }
}

// Sums of dz and of dz * (x - mean); stores dz if it is not null. function: what dz is recomputed for; none if from_y.
template <class T, int V, NormFunction function, bool from_y, bool has_second>
struct GradientSums {
  static constexpr int kBlocks = kGradientBlocks;
  GappedRows<const T> x, dy;
  const T *dy2, *y;  // [rows][channels], as x, dy and dz
  BatchNormChannels norm;
  T* dz;

  using Columns = NormColumns<V>;
  struct Loaded {
    Packed<T, V> x, dy, dy2, y;
  };

  __device__ Columns columns(int, int channel) const {
    Columns known;
    if constexpr (function != NormFunction::none) {
      load_norm(norm, channel, known);
    } else {
      load_columns(norm.mean + channel, known.mean);
    }
    return known;
  }
  __device__ Loaded load(std::int64_t row, std::int64_t at) const {
    Loaded loaded;
    loaded.x = load_packed<V>(x.at(row, at));
    loaded.dy = load_packed<V>(dy.at(row, at));
    if constexpr (has_second) loaded.dy2 = load_packed<V>(dy2 + at);
    if constexpr (from_y) loaded.y = load_packed<V>(y + at);
    return loaded;
  }
  __device__ void add(const Columns& known, const Loaded& loaded, std::int64_t, std::int64_t at, float (&sum)[V],
                      float (&products)[V]) const {
    float values[V], grads[V], seconds[V], outputs[V];
    unpack(loaded.x, values);
    unpack(loaded.dy, grads);
    if constexpr (has_second) unpack(loaded.dy2, seconds);
    if constexpr (from_y) unpack(loaded.y, outputs);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (has_second) grads[i] += seconds[i];
      if constexpr (from_y) grads[i] = Function<NormFunction::relu>::times_slope(grads[i], outputs[i]);
      if constexpr (function != NormFunction::none) {
        const float z = normalised(values[i], known.mean[i], known.scale[i], known.beta[i]);
        grads[i] = Function<function>::times_slope(grads[i], z);
      }
    }
    if (dz != nullptr) {
      round_to<T>(grads);
      store_values(dz + at, grads);
    }
#pragma unroll
    for (int i = 0; i < V; ++i) {
      sum[i] += grads[i];
      products[i] += grads[i] * (values[i] - known.mean[i]);
    }
  }
};

// dx = scale * (dz - dbeta / rows - (x - mean) * rstd * dgamma / rows) [+ added]
template <class T, int V, NormFunction function, bool adds>
struct InputGrad {
  GappedRows<const T> x, dy, added;  // [rows][channels], as dx
  BatchNormChannels norm;
  const float *dgamma, *dbeta;  // [channels]
  float per_row;
  GappedRows<T> dx;

  struct Columns {
    NormColumns<V> norm;
    float offset[V], slope[V];
  };
  struct Loaded {
    Packed<T, V> x, dy, added;
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
  __device__ Loaded load(std::int64_t row, std::int64_t at) const {
    Loaded loaded;
    loaded.x = load_packed<V>(x.at(row, at));
    loaded.dy = load_packed<V>(dy.at(row, at));
    if constexpr (adds) loaded.added = load_packed<V>(added.at(row, at));
    return loaded;
  }
  __device__ void store(const Columns& known, const Loaded& loaded, std::int64_t row, std::int64_t at) const {
    float values[V], grads[V], others[V];
    unpack(loaded.x, values);
    unpack(loaded.dy, grads);
    if constexpr (adds) unpack(loaded.added, others);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (function != NormFunction::none) {
        const float z = normalised(values[i], known.norm.mean[i], known.norm.scale[i], known.norm.beta[i]);
        grads[i] = Function<function>::times_slope(grads[i], z);
      }
      const float deviation = values[i] - known.norm.mean[i];
      values[i] = known.norm.scale[i] * fmaf(-deviation, known.slope[i], grads[i] - known.offset[i]);
      if constexpr (adds) values[i] += others[i];
    }
    store_values(dx.at(row, at), values);
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

template <NormFunction function>
using FunctionConstant = std::integral_constant<NormFunction, function>;

template <class Body>
void with_function(NormFunction function, const Body& body) {
  using enum NormFunction;
  if (function == none) return body(FunctionConstant<none>{});
  if (function == relu) return body(FunctionConstant<relu>{});
  function == hard_swish ? body(FunctionConstant<hard_swish>{}) : body(FunctionConstant<silu>{});
}

// What accesses of several channels must fit into: the channels, and every pitch.
std::int64_t access_width(std::int64_t channels, const BatchNormPitches& p) {
  return channels | p.x | p.y | p.dy | p.dx | p.add;
}

template <class T>
GappedRows<T> gapped(T* data, std::int64_t pitch, std::int64_t channels) {
  return {data, pitch == 0 ? 0 : static_cast<int>(pitch - channels)};
}

}  // namespace

std::int64_t batch_norm_partials(std::int64_t rows, std::int64_t channels) {
  return total_partials(rows, channels, kStatisticsBlocks);
}

std::int64_t batch_norm_grad_partials(std::int64_t rows, std::int64_t channels) {
  return total_partials(rows, channels, kGradientBlocks);
}

std::int64_t batch_norm_counters(std::int64_t, std::int64_t channels) { return total_tiles(channels); }

template <class T>
void batch_norm_statistics(cudaStream_t stream, const T* x, std::int64_t rows, std::int64_t channels, float epsilon,
                           float momentum, float* mean, float* rstd, float* running_mean, float* running_var,
                           float* partials, unsigned* counters, const BatchNormPitches& pitches) {
  constexpr const char* name = "batch_norm_statistics";
  require_aligned(name, {x, partials});
  const StoreStatistics<T> finish{
      x, {static_cast<double>(rows), epsilon, momentum, mean, rstd, running_mean, running_var}};
  with_vector_width<T>(access_width(channels, pitches), [&](auto vector) {
    const DeviationSums<T, vector> op{gapped(x, pitches.x, channels)};
    column_totals<vector>(stream, name, op, rows, channels, partials, counters, finish);
  });
}

template <class T>
void batch_norm_moments(cudaStream_t stream, const T* x, std::int64_t rows, std::int64_t channels, double* moments,
                        float* partials, unsigned* counters, const BatchNormPitches& pitches) {
  constexpr const char* name = "batch_norm_moments";
  require_aligned(name, {x, partials});
  const StoreMoments<T> finish{x, static_cast<double>(rows), channels, moments};
  with_vector_width<T>(access_width(channels, pitches), [&](auto vector) {
    const DeviationSums<T, vector> op{gapped(x, pitches.x, channels)};
    column_totals<vector>(stream, name, op, rows, channels, partials, counters, finish);
  });
}

void batch_norm_joint_statistics(cudaStream_t stream, const double* moments, std::int64_t members, std::int64_t rows,
                                 std::int64_t channels, float epsilon, float momentum, float* mean, float* rstd,
                                 float* running_mean, float* running_var) {
  constexpr const char* name = "batch_norm_joint_statistics";
  const Statistics to{static_cast<double>(rows * members), epsilon, momentum, mean, rstd, running_mean, running_var};
  joint_statistics_kernel<<<grid_blocks(name, (channels + kChannelThreads - 1) / kChannelThreads), kChannelThreads, 0,
                            stream>>>(moments, static_cast<int>(members), static_cast<double>(rows),
                                      static_cast<int>(channels), to);
  check_launch(name);
}

void batch_norm_running_rstd(cudaStream_t stream, const float* running_var, float epsilon, std::int64_t channels,
                             float* rstd) {
  constexpr const char* name = "batch_norm_running_rstd";
  running_rstd_kernel<<<grid_blocks(name, (channels + kChannelThreads - 1) / kChannelThreads), kChannelThreads, 0,
                        stream>>>(running_var, epsilon, static_cast<int>(channels), rstd);
  check_launch(name);
}

template <class T>
void batch_norm_apply(cudaStream_t stream, const T* x, const T* residual, const BatchNormChannels& norm,
                      std::int64_t rows, std::int64_t channels, NormFunction function, T* y,
                      const BatchNormPitches& pitches) {
  constexpr const char* name = "batch_norm_apply";
  using enum NormFunction;
  require_aligned(name, {x, residual, norm.mean, norm.rstd, norm.gamma, norm.beta, y});
  if (residual != nullptr && pitches.y != 0) throw std::logic_error("batch_norm_apply: a residual, but y has a pitch");
  const auto rows_x = gapped(x, pitches.x, channels);
  const auto rows_y = gapped(y, pitches.y, channels);
  with_vector_width<T>(access_width(channels, pitches), [&](auto vector) {
    with_function(function, [&](auto kind) {
      if (residual == nullptr) {
        const Apply<T, vector, false, kind> op{rows_x, nullptr, norm, rows_y};
        column_map<vector>(stream, name, op, 1, rows, channels);
      } else if constexpr (kind == none || kind == relu) {
        const Apply<T, vector, true, kind> op{rows_x, residual, norm, rows_y};
        column_map<vector>(stream, name, op, 1, rows, channels);
      } else {
        throw std::logic_error("batch_norm_apply adds a residual before none and relu only");
      }
    });
  });
}

template <class T>
void batch_norm_weight_grad(cudaStream_t stream, const T* x, const T* dy, const T* dy2, const T* y,
                            const BatchNormChannels& norm, NormFunction function, BatchNormMask mask, std::int64_t rows,
                            std::int64_t channels, T* dz, float* dgamma, float* dbeta, float* partials,
                            unsigned* counters, const BatchNormPitches& pitches) {
  constexpr const char* name = "batch_norm_weight_grad";
  using enum NormFunction;
  const bool is_from_y = mask == BatchNormMask::from_y;
  if (is_from_y && function != relu) throw std::logic_error("batch_norm_weight_grad masks by y for relu only");
  require_aligned(name, {x, dy, dy2, y, norm.mean, norm.rstd, norm.gamma, norm.beta, dz, partials});
  const StoreWeightGrad finish{norm.rstd, dgamma, dbeta};
  const auto rows_x = gapped(x, pitches.x, channels), rows_dy = gapped(dy, pitches.dy, channels);
  with_vector_width<T>(access_width(channels, pitches), [&](auto vector) {
    with_flag(dy2 != nullptr, [&](auto has_second) {
      if (is_from_y) {
        const GradientSums<T, vector, none, true, has_second> op{rows_x, rows_dy, dy2, y, norm, dz};
        return column_totals<vector>(stream, name, op, rows, channels, partials, counters, finish);
      }
      with_function(mask == BatchNormMask::none ? none : function, [&](auto kind) {
        const GradientSums<T, vector, kind, false, has_second> op{rows_x, rows_dy, dy2, nullptr, norm, dz};
        column_totals<vector>(stream, name, op, rows, channels, partials, counters, finish);
      });
    });
  });
}

template <class T>
void batch_norm_input_grad(cudaStream_t stream, const T* x, const T* dy, const BatchNormChannels& norm,
                           const float* dgamma, const float* dbeta, NormFunction function, std::int64_t rows,
                           std::int64_t channels, T* dx, const T* add, const BatchNormPitches& pitches,
                           std::int64_t batch_rows) {
  constexpr const char* name = "batch_norm_input_grad";
  require_aligned(name, {x, dy, norm.mean, norm.rstd, norm.gamma, norm.beta, dgamma, dbeta, dx, add});
  const float per_row = 1.0f / static_cast<float>(batch_rows == 0 ? rows : batch_rows);
  const auto rows_x = gapped(x, pitches.x, channels), rows_dy = gapped(dy, pitches.dy, channels),
             rows_add = gapped(add, pitches.add, channels);
  const auto rows_dx = gapped(dx, pitches.dx, channels);
  with_vector_width<T>(access_width(channels, pitches), [&](auto vector) {
    with_function(function, [&](auto kind) {
      with_flag(add != nullptr, [&](auto adds) {
        const InputGrad<T, vector, kind, adds> op{rows_x, rows_dy, rows_add, norm, dgamma, dbeta, per_row, rows_dx};
        column_map<vector>(stream, name, op, 1, rows, channels);
      });
    });
  });
}

template void batch_norm_statistics(cudaStream_t, const float*, std::int64_t, std::int64_t, float, float, float*,
                                    float*, float*, float*, float*, unsigned*, const BatchNormPitches&);
template void batch_norm_statistics(cudaStream_t, const bf16*, std::int64_t, std::int64_t, float, float, float*, float*,
                                    float*, float*, float*, unsigned*, const BatchNormPitches&);
template void batch_norm_moments(cudaStream_t, const float*, std::int64_t, std::int64_t, double*, float*, unsigned*,
                                 const BatchNormPitches&);
template void batch_norm_moments(cudaStream_t, const bf16*, std::int64_t, std::int64_t, double*, float*, unsigned*,
                                 const BatchNormPitches&);
template void batch_norm_apply(cudaStream_t, const float*, const float*, const BatchNormChannels&, std::int64_t,
                               std::int64_t, NormFunction, float*, const BatchNormPitches&);
template void batch_norm_apply(cudaStream_t, const bf16*, const bf16*, const BatchNormChannels&, std::int64_t,
                               std::int64_t, NormFunction, bf16*, const BatchNormPitches&);
template void batch_norm_weight_grad(cudaStream_t, const float*, const float*, const float*, const float*,
                                     const BatchNormChannels&, NormFunction, BatchNormMask, std::int64_t, std::int64_t,
                                     float*, float*, float*, float*, unsigned*, const BatchNormPitches&);
template void batch_norm_weight_grad(cudaStream_t, const bf16*, const bf16*, const bf16*, const bf16*,
                                     const BatchNormChannels&, NormFunction, BatchNormMask, std::int64_t, std::int64_t,
                                     bf16*, float*, float*, float*, unsigned*, const BatchNormPitches&);
template void batch_norm_input_grad(cudaStream_t, const float*, const float*, const BatchNormChannels&, const float*,
                                    const float*, NormFunction, std::int64_t, std::int64_t, float*, const float*,
                                    const BatchNormPitches&, std::int64_t);
template void batch_norm_input_grad(cudaStream_t, const bf16*, const bf16*, const BatchNormChannels&, const float*,
                                    const float*, NormFunction, std::int64_t, std::int64_t, bf16*, const bf16*,
                                    const BatchNormPitches&, std::int64_t);

}  // namespace overtake::cuda
