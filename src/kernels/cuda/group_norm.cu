#include "kernels/cuda/group_norm.h"

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/group_reduce.cuh"

namespace overtake::cuda {
namespace {

constexpr int kGroupThreads = 128;  // of a block that combines sums, a warp per group of channels

// Which group a channel is in.
struct Groups {
  int count, size;  // groups of an image, channels of a group

  explicit Groups(const GroupNormShape& shape)
      : count(static_cast<int>(shape.groups)), size(static_cast<int>(shape.channels / shape.groups)) {}

  // values [V] = per_group [images][groups] at the groups of channels channel, channel + 1, ...
  template <int V>
  __device__ void load(const float* per_group, int image, int channel, float (&values)[V]) const {
    const float* of_image = per_group + static_cast<std::int64_t>(image) * count;
    if (size % V == 0) {
      fill(values, __ldg(of_image + channel / size));
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) values[i] = __ldg(of_image + (channel + i) / size);
    }
  }
};

// Sums of deviations from the group's first element and of their squares. One origin for a whole group: the sums of its
// channels can be added, and large values lose nothing.
template <class T, int V>
struct DeviationSums {
  const T* x;  // [images][pixels][channels]
  std::int64_t image_elements;
  Groups groups;

  struct Columns {
    float origin[V];
  };
  using Loaded = Packed<T, V>;

  __device__ Columns columns(int image, int channel) const {
    Columns known;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      float origin[1];
      unpack(load_packed<1>(x + image * image_elements + (channel + i) / groups.size * groups.size), origin);
      known.origin[i] = origin[0];
    }
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

// Sums of dy * (x - mean) [* rstd], and of dy.
template <class T, int V, bool scaled>
struct GradientSums {
  const T *x, *dy;           // [images][pixels][channels]
  const float *mean, *rstd;  // [images][groups]
  Groups groups;

  struct Columns {
    float mean[V], rstd[V];
  };
  struct Loaded {
    Packed<T, V> x, dy;
  };

  __device__ Columns columns(int image, int channel) const {
    Columns known;
    groups.load(mean, image, channel, known.mean);
    if constexpr (scaled) groups.load(rstd, image, channel, known.rstd);
    return known;
  }
  __device__ Loaded load(std::int64_t, std::int64_t at) const {
    return {load_packed<V>(x + at), load_packed<V>(dy + at)};
  }
  __device__ void add(const Columns& known, const Loaded& loaded, std::int64_t, float (&products)[V],
                      float (&sum)[V]) const {
    float values[V], grads[V];
    unpack(loaded.x, values);
    unpack(loaded.dy, grads);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      float centered = values[i] - known.mean[i];
      if constexpr (scaled) centered *= known.rstd[i];
      products[i] += grads[i] * centered;
      sum[i] += grads[i];
    }
  }
};

// A warp adds the partial sums of one group of one image, each times its channel's weight if there are weights, and
// calls finish(group, first sum, second sum), the group counted through all images. partials:
// [images][chunks][2][channels], weights: [channels] or null.
template <class Finish>
__global__ void __launch_bounds__(kGroupThreads)
    group_sums_kernel(const float* partials, const float* weights, std::int64_t image_groups, int chunks,
                      const Groups groups, const Finish finish) {
  const std::int64_t group = std::int64_t{blockIdx.x} * (kGroupThreads / 32) + threadIdx.x / 32;
  if (group >= image_groups) return;
  const std::int64_t image = group / groups.count;
  const int lane = static_cast<int>(threadIdx.x) % 32, channels = groups.count * groups.size;
  const int first_channel = static_cast<int>(group % groups.count) * groups.size;
  double2 sums = {0, 0};
#pragma unroll 4
  for (int k = lane; k < chunks * groups.size; k += 32) {
    const int channel = first_channel + k % groups.size;
    const float* partial = partials + (image * chunks + k / groups.size) * 2 * channels + channel;
    const double weight = weights != nullptr ? static_cast<double>(__ldg(weights + channel)) : 1.0;
    sums.x += static_cast<double>(partial[0]) * weight;
    sums.y += static_cast<double>(partial[channels]) * weight;
  }
  sums = group_sum<32>(sums);
  if (lane == 0) finish(group, sums.x, sums.y);
}

// finish of the statistics; mean, rstd: [images][groups].
template <class T>
struct StoreStatistics {
  const T* x;  // [images][pixels][channels]
  std::int64_t image_elements;
  Groups groups;
  double elements;  // of a group
  float epsilon;
  float *mean, *rstd;

  __device__ void operator()(std::int64_t group, double sum, double squares) const {
    float origin[1];
    unpack(load_packed<1>(x + group / groups.count * image_elements + group % groups.count * groups.size), origin);
    const double deviation = sum / elements;
    const double squared = fmax(squares - sum * deviation, 0.0);
    mean[group] = static_cast<float>(static_cast<double>(origin[0]) + deviation);
    rstd[group] = static_cast<float>(1.0 / sqrt(squared / elements + static_cast<double>(epsilon)));
  }
};

// finish of the sums of the input gradient. offset, slope: [images][groups], the mean of g, and the mean of g * (x -
// mean) times rstd^2.
struct StoreLine {
  double elements;    // of a group
  const float* rstd;  // [images][groups]
  float *offset, *slope;

  __device__ void operator()(std::int64_t group, double products, double sum) const {
    const auto scale = static_cast<double>(rstd[group]);
    offset[group] = static_cast<float>(sum / elements);
    slope[group] = static_cast<float>(products / elements * scale * scale);
  }
};

template <class T, int V>
struct Apply {
  const T* x;
  const float *gamma, *beta;  // [channels]
  const float *mean, *rstd;   // [images][groups]
  Groups groups;
  T* y;

  struct Columns {
    float mean[V], scale[V], beta[V];
  };
  using Loaded = Packed<T, V>;

  __device__ Columns columns(int image, int channel) const {
    Columns known;
    float rstds[V];
    groups.load(mean, image, channel, known.mean);
    groups.load(rstd, image, channel, rstds);
    load_columns(gamma + channel, known.scale);
    load_columns(beta + channel, known.beta);
#pragma unroll
    for (int i = 0; i < V; ++i) known.scale[i] *= rstds[i];
    return known;
  }
  __device__ Loaded load(std::int64_t, std::int64_t at) const { return load_packed<V>(x + at); }
  __device__ void store(const Columns& known, const Loaded& loaded, std::int64_t, std::int64_t at) const {
    float values[V];
    unpack(loaded, values);
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] = fmaf(values[i] - known.mean[i], known.scale[i], known.beta[i]);
    store_values(y + at, values);
  }
};

// dx = rstd * (g - offset - (x - mean) * slope), g = dy * gamma; rstd is multiplied into the rest beforehand.
template <class T, int V>
struct InputGrad {
  const T *x, *dy;
  const float* gamma;                         // [channels]
  const float *mean, *rstd, *offset, *slope;  // [images][groups]
  Groups groups;
  T* dx;

  struct Columns {
    float gamma[V], mean[V], offset[V], slope[V];
  };
  struct Loaded {
    Packed<T, V> x, dy;
  };

  __device__ Columns columns(int image, int channel) const {
    Columns known;
    float rstds[V];
    load_columns(gamma + channel, known.gamma);
    groups.load(mean, image, channel, known.mean);
    groups.load(rstd, image, channel, rstds);
    groups.load(offset, image, channel, known.offset);
    groups.load(slope, image, channel, known.slope);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      known.gamma[i] *= rstds[i];
      known.offset[i] *= rstds[i];
      known.slope[i] *= rstds[i];
    }
    return known;
  }
  __device__ Loaded load(std::int64_t, std::int64_t at) const {
    return {load_packed<V>(x + at), load_packed<V>(dy + at)};
  }
  __device__ void store(const Columns& known, const Loaded& loaded, std::int64_t, std::int64_t at) const {
    float values[V], grads[V];
    unpack(loaded.x, values);
    unpack(loaded.dy, grads);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float centered = grads[i] * known.gamma[i] - known.offset[i];
      values[i] = centered - (values[i] - known.mean[i]) * known.slope[i];
    }
    store_values(dx + at, values);
  }
};

std::int64_t sums_of_pixels(const GroupNormShape& s) { return column_partials(s.batch, s.pixels, s.channels); }

double group_elements(const GroupNormShape& s) {
  return static_cast<double>(s.pixels) * static_cast<double>(s.channels / s.groups);
}

template <class Finish>
void group_sums(cudaStream_t stream, const char* name, const GroupNormShape& s, const float* partials,
                const float* weights, const Finish& finish) {
  const std::int64_t groups = s.batch * s.groups, per_block = kGroupThreads / 32;
  const auto chunks = static_cast<int>(column_chunks(s.batch, s.pixels, s.channels));
  group_sums_kernel<<<grid_blocks(name, (groups + per_block - 1) / per_block), kGroupThreads, 0, stream>>>(
      partials, weights, groups, chunks, Groups(s), finish);
  check_launch(name);
}

}  // namespace

std::int64_t group_norm_partials(const GroupNormShape& s) { return sums_of_pixels(s) + 2 * s.batch * s.groups; }

template <class T>
void group_norm_forward(cudaStream_t stream, const GroupNormShape& s, const T* x, const float* gamma, const float* beta,
                        float epsilon, T* y, float* mean, float* rstd, float* partials) {
  constexpr const char* name = "group_norm_forward";
  require_aligned(name, {x, gamma, beta, y});
  const Groups groups(s);
  const std::int64_t image_elements = s.pixels * s.channels;
  with_vector_width<T>(s.channels, [&](auto vector) {
    column_sums<vector>(stream, name, DeviationSums<T, vector>{x, image_elements, groups}, s.batch, s.pixels,
                        s.channels, partials);
    group_sums(stream, name, s, partials, nullptr,
               StoreStatistics<T>{x, image_elements, groups, group_elements(s), epsilon, mean, rstd});
    column_map<vector>(stream, name, Apply<T, vector>{x, gamma, beta, mean, rstd, groups, y}, s.batch, s.pixels,
                       s.channels);
  });
}

template <class T>
void group_norm_input_grad(cudaStream_t stream, const GroupNormShape& s, const T* x, const T* dy, const float* gamma,
                           const float* mean, const float* rstd, T* dx, float* partials) {
  constexpr const char* name = "group_norm_input_grad";
  require_aligned(name, {x, dy, gamma, dx});
  const Groups groups(s);
  float* offset = partials + sums_of_pixels(s);
  float* slope = offset + s.batch * s.groups;
  with_vector_width<T>(s.channels, [&](auto vector) {
    column_sums<vector>(stream, name, GradientSums<T, vector, false>{x, dy, mean, rstd, groups}, s.batch, s.pixels,
                        s.channels, partials);
    group_sums(stream, name, s, partials, gamma, StoreLine{group_elements(s), rstd, offset, slope});
    const InputGrad<T, vector> op{x, dy, gamma, mean, rstd, offset, slope, groups, dx};
    column_map<vector>(stream, name, op, s.batch, s.pixels, s.channels);
  });
}

template <class T>
void group_norm_weight_grad_reduce(cudaStream_t stream, const GroupNormShape& s, const T* x, const T* dy,
                                   const float* mean, const float* rstd, float* partials) {
  constexpr const char* name = "group_norm_weight_grad_reduce";
  require_aligned(name, {x, dy});
  with_vector_width<T>(s.channels, [&](auto vector) {
    const GradientSums<T, vector, true> op{x, dy, mean, rstd, Groups(s)};
    column_sums<vector>(stream, name, op, s.batch, s.pixels, s.channels, partials);
  });
}

void group_norm_weight_grad(cudaStream_t stream, const GroupNormShape& s, const float* partials, float* dgamma,
                            float* dbeta) {
  const std::int64_t chunks = s.batch * column_chunks(s.batch, s.pixels, s.channels);
  combine_columns(stream, "group_norm_weight_grad", partials, chunks, s.channels, StoreTotals{dgamma, dbeta});
}

template void group_norm_forward(cudaStream_t, const GroupNormShape&, const float*, const float*, const float*, float,
                                 float*, float*, float*, float*);
template void group_norm_forward(cudaStream_t, const GroupNormShape&, const bf16*, const float*, const float*, float,
                                 bf16*, float*, float*, float*);
template void group_norm_input_grad(cudaStream_t, const GroupNormShape&, const float*, const float*, const float*,
                                    const float*, const float*, float*, float*);
template void group_norm_input_grad(cudaStream_t, const GroupNormShape&, const bf16*, const bf16*, const float*,
                                    const float*, const float*, bf16*, float*);
template void group_norm_weight_grad_reduce(cudaStream_t, const GroupNormShape&, const float*, const float*,
                                            const float*, const float*, float*);
template void group_norm_weight_grad_reduce(cudaStream_t, const GroupNormShape&, const bf16*, const bf16*, const float*,
                                            const float*, float*);

}  // namespace overtake::cuda
