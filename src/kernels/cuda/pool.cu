#include "kernels/cuda/binary.h"
#include "kernels/cuda/pixels.cuh"
#include "kernels/cuda/pool.h"
#include "kernels/cuda/values.cuh"

namespace overtake::cuda {

namespace {

using namespace access;

// One axis of the windows.
struct Axis {
  int in, out, kernel, stride, pad_begin, pad_end;

  // Places of the window at an output position that lie inside the image.
  __device__ PixelRange taps(int position) const {
    const int start = position * stride - pad_begin;
    return {max(0, -start), min(kernel, in - start)};
  }
  // Output positions whose windows cover the input position.
  __device__ PixelRange windows_over(int position) const {
    const int past = position + pad_begin - kernel;  // windows that start here or before end too early
    return {past < 0 ? 0 : past / stride + 1, min((position + pad_begin) / stride + 1, out)};
  }
  // What a mean counts along this axis: the places inside the image, or also its padding.
  __device__ int counted(int position, bool include_pad) const {
    const PixelRange inside = taps(position);
    if (!include_pad) return inside.end - inside.begin;
    return min(kernel, in + pad_end - (position * stride - pad_begin));
  }
};

struct Windows {
  Axis h, w;
  int channels;
  std::int64_t out_pitch;  // elements from one pixel of the values of windows to the next; in all else, the channels

  explicit Windows(const PoolShape& s, std::int64_t pitch = 0)
      : h(axis(s.in_h, s.out_h, s.kernel_h, s.stride_h, s.pad_top, s.pad_bottom)),
        w(axis(s.in_w, s.out_w, s.kernel_w, s.stride_w, s.pad_left, s.pad_right)),
        channels(static_cast<int>(s.channels)),
        out_pitch(pitch == 0 ? s.channels : pitch) {}

  static Axis axis(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t pad_begin,
                   std::int64_t pad_end) {
    return {static_cast<int>(in),     static_cast<int>(out),       static_cast<int>(kernel),
            static_cast<int>(stride), static_cast<int>(pad_begin), static_cast<int>(pad_end)};
  }

  // Whether packs of so many channels lie at boundaries of packs everywhere.
  bool are_multiples_of(int width) const { return channels % width == 0 && out_pitch % width == 0; }

  // Offsets of a place's channels in the tensor of inputs, and in what there is for each window: values, of any pitch,
  // and places, which are dense.
  __device__ std::int64_t input(const PixelPlace& place, int row, int column) const {
    return ((place.image * h.in + row) * w.in + column) * channels + place.channel;
  }
  __device__ std::int64_t window(const PixelPlace& place, int p, int q) const {
    return (place.image * h.out + p) * w.out + q;
  }
  __device__ std::int64_t value_of(std::int64_t window, const PixelPlace& place) const {
    return window * out_pitch + place.channel;
  }
  __device__ std::int64_t argmax_of(std::int64_t window, const PixelPlace& place) const {
    return window * channels + place.channel;
  }
  __device__ float mean_factor(int p, int q, bool include_pad) const {
    return 1.0f / static_cast<float>(h.counted(p, include_pad) * w.counted(q, include_pad));
  }
};

template <class T>
struct MaxForward {
  Windows windows;
  const T* x;
  std::uint8_t* argmax;

  template <int width>
  __device__ void at(const PixelPlace& place, std::uint32_t index, float (&largest)[width]) const {
    const PixelRange rows = windows.h.taps(place.row), columns = windows.w.taps(place.column);
    const int top = place.row * windows.h.stride - windows.h.pad_begin;
    const int left = place.column * windows.w.stride - windows.w.pad_begin;
    Pack<std::uint8_t, width> places;
    bool is_first = true;
    for (int r = rows.begin; r < rows.end; ++r) {
#pragma unroll 4
      for (int s = columns.begin; s < columns.end; ++s) {
        const Pack<T, width> pack = load_pack<width>(x + windows.input(place, top + r, left + s));
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const float value = widen(pack.at[i]);
          if (is_first || value > largest[i] || value != value) {
            largest[i] = value;
            places.at[i] = static_cast<std::uint8_t>(r * windows.w.kernel + s);
          }
        }
        is_first = false;
      }
    }
    store_pack(argmax + static_cast<std::int64_t>(index) * width, places);
  }
};

template <class T>
struct MaxInputGrad {
  Windows windows;
  const T* dy;
  const std::uint8_t* argmax;

  template <int width>
  __device__ void at(const PixelPlace& place, std::uint32_t, float (&sum)[width]) const {
    const PixelRange rows = windows.h.windows_over(place.row), columns = windows.w.windows_over(place.column);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] = 0.0f;
    for (int p = rows.begin; p < rows.end; ++p) {
      const int r = place.row - (p * windows.h.stride - windows.h.pad_begin);
#pragma unroll 2
      for (int q = columns.begin; q < columns.end; ++q) {
        const int s = place.column - (q * windows.w.stride - windows.w.pad_begin);
        const std::int64_t window = windows.window(place, p, q);
        const Pack<std::uint8_t, width> chosen = load_pack<width>(argmax + windows.argmax_of(window, place));
        const Pack<T, width> grad = load_pack<width>(dy + windows.value_of(window, place));
#pragma unroll
        for (int i = 0; i < width; ++i) {
          sum[i] += chosen.at[i] == r * windows.w.kernel + s ? widen(grad.at[i]) : 0.0f;
        }
      }
    }
  }
};

template <class T>
struct AverageForward {
  Windows windows;
  bool include_pad;
  const T* x;

  template <int width>
  __device__ void at(const PixelPlace& place, std::uint32_t, float (&sum)[width]) const {
    const PixelRange rows = windows.h.taps(place.row), columns = windows.w.taps(place.column);
    const int top = place.row * windows.h.stride - windows.h.pad_begin;
    const int left = place.column * windows.w.stride - windows.w.pad_begin;
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] = 0.0f;
    for (int r = rows.begin; r < rows.end; ++r) {
#pragma unroll 4
      for (int s = columns.begin; s < columns.end; ++s) {
        add_scaled(load_pack<width>(x + windows.input(place, top + r, left + s)), 1.0f, sum);
      }
    }
    const float factor = windows.mean_factor(place.row, place.column, include_pad);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] *= factor;
  }
};

template <class T>
struct AverageInputGrad {
  Windows windows;
  bool include_pad;
  const T* dy;

  template <int width>
  __device__ void at(const PixelPlace& place, std::uint32_t, float (&sum)[width]) const {
    const PixelRange rows = windows.h.windows_over(place.row), columns = windows.w.windows_over(place.column);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] = 0.0f;
    for (int p = rows.begin; p < rows.end; ++p) {
      for (int q = columns.begin; q < columns.end; ++q) {
        const T* from = dy + windows.value_of(windows.window(place, p, q), place);
        add_scaled(load_pack<width>(from), windows.mean_factor(p, q, include_pad), sum);
      }
    }
  }
};

// Windows of K x K pixels, S apart.
template <class T, int K, int S>
struct FixedMaxForward {
  Windows windows;
  const T* x;
  std::uint8_t* argmax;

  template <int width>
  __device__ void at(const PixelPlace& place, std::uint32_t index, float (&largest)[width]) const {
    const int top = place.row * S - windows.h.pad_begin, left = place.column * S - windows.w.pad_begin;
    // What is outside the image stands for the nearest pixel inside, which is in the window: it may count twice.
    int rows[K], columns[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      rows[k] = min(max(top + k, 0), windows.h.in - 1);
      columns[k] = min(max(left + k, 0), windows.w.in - 1);
    }
    Pack<T, width> packs[K][K];
#pragma unroll
    for (int r = 0; r < K; ++r) {
      const T* row = x + windows.input(place, rows[r], 0);
#pragma unroll
      for (int s = 0; s < K; ++s) packs[r][s] = load_pack<width>(row + columns[s] * windows.channels);
    }
    int places[width];
#pragma unroll
    for (int r = 0; r < K; ++r) {
#pragma unroll
      for (int s = 0; s < K; ++s) {
        const int tap = (rows[r] - top) * K + columns[s] - left;
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const float value = widen(packs[r][s].at[i]);
          if ((r == 0 && s == 0) || value > largest[i] || value != value) {
            largest[i] = value;
            places[i] = tap;
          }
        }
      }
    }
    Pack<std::uint8_t, width> chosen;
#pragma unroll
    for (int i = 0; i < width; ++i) chosen.at[i] = static_cast<std::uint8_t>(places[i]);
    store_pack(argmax + static_cast<std::int64_t>(index) * width, chosen);
  }
};

// The gradient of the same. A thread for S x S pixels that the same windows cover: pixels u = row + pad_top in
// [S * a, S * (a + 1)), and windows a - (K - 1) / S to a. grid: of such groups of pixels.
template <int width, int K, int S, class T>
__global__ void __launch_bounds__(kPixelThreads, 3)
    fixed_max_input_grad_kernel(const Windows windows, const PixelGrid grid, const T* __restrict__ dy,
                                const std::uint8_t* __restrict__ argmax, T* __restrict__ dx) {
  constexpr int kBefore = (K - 1) / S, kSide = kBefore + 1;
  const std::uint32_t index = blockIdx.x * kPixelThreads + threadIdx.x;
  if (index >= grid.count) return;
  const PixelPlace place = grid.place<width>(index);
  Pack<std::uint8_t, width> chosen[kSide][kSide];
  Pack<T, width> grads[kSide][kSide];
  bool covers[kSide][kSide];  // there is such a window; what is loaded for others is not used
#pragma unroll
  for (int k = 0; k < kSide; ++k) {
#pragma unroll
    for (int l = 0; l < kSide; ++l) {
      const int p = place.row - kBefore + k, q = place.column - kBefore + l;
      const int row = min(max(p, 0), windows.h.out - 1), column = min(max(q, 0), windows.w.out - 1);
      const std::int64_t window = windows.window(place, row, column);
      covers[k][l] = p == row && q == column;
      chosen[k][l] = load_pack<width>(argmax + windows.argmax_of(window, place));
      grads[k][l] = load_pack<width>(dy + windows.value_of(window, place));
    }
  }
  float sums[S][S][width] = {};
#pragma unroll
  for (int k = 0; k < kSide; ++k) {
#pragma unroll
    for (int l = 0; l < kSide; ++l) {
#pragma unroll
      for (int u = 0; u < S; ++u) {
#pragma unroll
        for (int v = 0; v < S; ++v) {
          const int r = (kBefore - k) * S + u, s = (kBefore - l) * S + v;
          if (r >= K || s >= K) continue;
#pragma unroll
          for (int i = 0; i < width; ++i) {
            const bool is_chosen = covers[k][l] && chosen[k][l].at[i] == r * K + s;
            sums[u][v][i] += is_chosen ? widen(grads[k][l].at[i]) : 0.0f;
          }
        }
      }
    }
  }
#pragma unroll
  for (int u = 0; u < S; ++u) {
#pragma unroll
    for (int v = 0; v < S; ++v) {
      const int row = place.row * S + u - windows.h.pad_begin, column = place.column * S + v - windows.w.pad_begin;
      if (row < 0 || row >= windows.h.in || column < 0 || column >= windows.w.in) continue;
      Pack<T, width> pack;
#pragma unroll
      for (int i = 0; i < width; ++i) pack.at[i] = narrow<T>(sums[u][v][i]);
      store_pack(dx + windows.input(place, row, column), pack);
    }
  }
}

template <int K, int S, class T>
void fixed_max_input_grad(cudaStream_t stream, const PoolShape& s, const T* dy, const std::uint8_t* argmax, T* dx,
                          std::int64_t dy_pitch) {
  constexpr const char* name = "max_pool_input_grad";
  const Windows windows(s, dy_pitch);
  const auto run = [&](auto width) {
    const PixelGrid grid(s.batch, parts(s.in_h + s.pad_top, S), parts(s.in_w + s.pad_left, S), s.channels / width);
    if (grid.count == 0) return;
    const unsigned blocks = grid_blocks(name, parts(grid.count, kPixelThreads));
    fixed_max_input_grad_kernel<width, K, S><<<blocks, kPixelThreads, 0, stream>>>(windows, grid, dy, argmax, dx);
    check_launch(name);
  };
  constexpr int width = kPackWidth<T>;
  windows.are_multiples_of(width) ? run(std::integral_constant<int, width>{}) : run(std::integral_constant<int, 1>{});
}

// Whether all windows are K x K pixels, S apart.
bool has_windows(const PoolShape& s, std::int64_t kernel, std::int64_t stride) {
  return s.kernel_h == kernel && s.kernel_w == kernel && s.stride_h == stride && s.stride_w == stride;
}

// Means over pixels, as PixelSums says.
template <int width, int threads, class T>
__global__ void __launch_bounds__(threads)
    global_average_kernel(const T* __restrict__ x, std::int64_t pixels, std::int64_t channels, T* __restrict__ y,
                          unsigned tiles, unsigned lanes) {
  __shared__ float shared[width][threads];
  const std::int64_t image = blockIdx.x / tiles;
  const unsigned lane = threadIdx.x & (lanes - 1), first = threadIdx.x / lanes, depth = threads / lanes;
  const std::int64_t channel = (std::int64_t{blockIdx.x % tiles} * lanes + lane) * width;
  float sum[width] = {};
  if (channel < channels) {
    const T* from = x + image * pixels * channels + channel;
    for (std::int64_t p = first; p < pixels; p += 4 * depth) {
      Packed<T, width> packs[4] = {};  // four loads in flight, zeros where there are fewer
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (p + k * depth < pixels) packs[k] = load_packed<width>(from + (p + k * depth) * channels);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float values[width];
        unpack(packs[k], values);
#pragma unroll
        for (int i = 0; i < width; ++i) sum[i] += values[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < width; ++i) shared[i][threadIdx.x] = sum[i];
  add_pairwise(shared, lanes, depth);
  if (first > 0 || channel >= channels) return;
  const float scale = 1.0f / static_cast<float>(pixels);
  Pack<T, width> mean;
#pragma unroll
  for (int i = 0; i < width; ++i) mean.at[i] = narrow<T>(shared[i][threadIdx.x] * scale);
  store_pack(y + image * channels + channel, mean);
}

}  // namespace

template <class T>
void max_pool_forward(cudaStream_t stream, const PoolShape& s, const T* x, T* y, std::uint8_t* argmax,
                      std::int64_t y_pitch) {
  constexpr const char* name = "max_pool_forward";
  require_aligned(name, {x, y, argmax});
  const auto run = [&](const auto& f) {
    for_each_pixel(stream, name, f, y, s.batch, s.out_h, s.out_w, s.channels, y_pitch);
  };
  if (has_windows(s, 3, 2)) return run(FixedMaxForward<T, 3, 2>{Windows(s), x, argmax});
  if (has_windows(s, 2, 2)) return run(FixedMaxForward<T, 2, 2>{Windows(s), x, argmax});
  run(MaxForward<T>{Windows(s), x, argmax});
}

template <class T>
void max_pool_input_grad(cudaStream_t stream, const PoolShape& s, const T* dy, const std::uint8_t* argmax, T* dx,
                         std::int64_t dy_pitch) {
  require_aligned("max_pool_input_grad", {dy, argmax, dx});
  if (has_windows(s, 3, 2)) return fixed_max_input_grad<3, 2>(stream, s, dy, argmax, dx, dy_pitch);
  if (has_windows(s, 2, 2)) return fixed_max_input_grad<2, 2>(stream, s, dy, argmax, dx, dy_pitch);
  for_each_pixel(stream, "max_pool_input_grad", MaxInputGrad<T>{Windows(s, dy_pitch), dy, argmax}, dx, s.batch, s.in_h,
                 s.in_w, s.channels, 0, dy_pitch);
}

template <class T>
void average_pool_forward(cudaStream_t stream, const PoolShape& s, bool count_include_pad, const T* x, T* y,
                          std::int64_t y_pitch) {
  require_aligned("average_pool_forward", {x, y});
  for_each_pixel(stream, "average_pool_forward", AverageForward<T>{Windows(s), count_include_pad, x}, y, s.batch,
                 s.out_h, s.out_w, s.channels, y_pitch);
}

template <class T>
void average_pool_input_grad(cudaStream_t stream, const PoolShape& s, bool count_include_pad, const T* dy, T* dx,
                             std::int64_t dy_pitch) {
  require_aligned("average_pool_input_grad", {dy, dx});
  for_each_pixel(stream, "average_pool_input_grad", AverageInputGrad<T>{Windows(s, dy_pitch), count_include_pad, dy},
                 dx, s.batch, s.in_h, s.in_w, s.channels, 0, dy_pitch);
}

template <class T>
void global_average_pool_forward(cudaStream_t stream, const T* x, std::int64_t pixels, std::int64_t channels, T* y,
                                 std::int64_t batch) {
  constexpr const char* name = "global_average_pool_forward";
  require_aligned(name, {x, y});
  const auto run = [&](auto width) {
    const PixelSums sums(batch, pixels, channels / width, width == 1 ? 16 : 4);
    const unsigned blocks = grid_blocks(name, batch * sums.tiles);
    const auto launch = [&](auto threads) {
      global_average_kernel<width, threads>
          <<<blocks, threads.value, 0, stream>>>(x, pixels, channels, y, static_cast<unsigned>(sums.tiles), sums.lanes);
    };
    sums.threads == 256 ? launch(std::integral_constant<int, 256>{})
                        : launch(std::integral_constant<int, kMostSumThreads>{});
    check_launch(name);
  };
  constexpr int width = kPackWidth<T>;
  channels % width == 0 ? run(std::integral_constant<int, width>{}) : run(std::integral_constant<int, 1>{});
}

template <class T>
void global_average_pool_input_grad(cudaStream_t stream, const T* dy, std::int64_t pixels, std::int64_t channels, T* dx,
                                    std::int64_t batch) {
  const std::int64_t dims[] = {batch, pixels, channels}, strides[] = {channels, 0, 1};
  expand(stream, kernels::make_binary_plan(dims, strides, strides), 1.0f / static_cast<float>(pixels), dy, dx);
}

template void max_pool_forward(cudaStream_t, const PoolShape&, const float*, float*, std::uint8_t*, std::int64_t);
template void max_pool_forward(cudaStream_t, const PoolShape&, const bf16*, bf16*, std::uint8_t*, std::int64_t);
template void max_pool_input_grad(cudaStream_t, const PoolShape&, const float*, const std::uint8_t*, float*,
                                  std::int64_t);
template void max_pool_input_grad(cudaStream_t, const PoolShape&, const bf16*, const std::uint8_t*, bf16*,
                                  std::int64_t);
template void average_pool_forward(cudaStream_t, const PoolShape&, bool, const float*, float*, std::int64_t);
template void average_pool_forward(cudaStream_t, const PoolShape&, bool, const bf16*, bf16*, std::int64_t);
template void average_pool_input_grad(cudaStream_t, const PoolShape&, bool, const float*, float*, std::int64_t);
template void average_pool_input_grad(cudaStream_t, const PoolShape&, bool, const bf16*, bf16*, std::int64_t);
template void global_average_pool_forward(cudaStream_t, const float*, std::int64_t, std::int64_t, float*, std::int64_t);
template void global_average_pool_forward(cudaStream_t, const bf16*, std::int64_t, std::int64_t, bf16*, std::int64_t);
template void global_average_pool_input_grad(cudaStream_t, const float*, std::int64_t, std::int64_t, float*,
                                             std::int64_t);
template void global_average_pool_input_grad(cudaStream_t, const bf16*, std::int64_t, std::int64_t, bf16*,
                                             std::int64_t);

}  // namespace overtake::cuda
