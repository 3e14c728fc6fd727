#include "kernels/cuda/binary.h"
#include "kernels/cuda/pixels.cuh"
#include "kernels/cuda/pool.h"

namespace overtake::cuda {

namespace {

using namespace access;

constexpr int kThreads = 256;

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

  explicit Windows(const PoolShape& s)
      : h(axis(s.in_h, s.out_h, s.kernel_h, s.stride_h, s.pad_top, s.pad_bottom)),
        w(axis(s.in_w, s.out_w, s.kernel_w, s.stride_w, s.pad_left, s.pad_right)),
        channels(static_cast<int>(s.channels)) {}

  static Axis axis(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t pad_begin,
                   std::int64_t pad_end) {
    return {static_cast<int>(in),     static_cast<int>(out),       static_cast<int>(kernel),
            static_cast<int>(stride), static_cast<int>(pad_begin), static_cast<int>(pad_end)};
  }

  // Offsets of a place's channels in the tensor of inputs or of outputs.
  __device__ std::int64_t input(const PixelPlace& place, int row, int column) const {
    return ((place.image * h.in + row) * w.in + column) * channels + place.channel;
  }
  __device__ std::int64_t output(const PixelPlace& place, int p, int q) const {
    return ((place.image * h.out + p) * w.out + q) * channels + place.channel;
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
        const std::int64_t out = windows.output(place, p, q);
        const Pack<std::uint8_t, width> chosen = load_pack<width>(argmax + out);
        const Pack<T, width> grad = load_pack<width>(dy + out);
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
        add_scaled(load_pack<width>(dy + windows.output(place, p, q)), windows.mean_factor(p, q, include_pad), sum);
      }
    }
  }
};

// Means over pixels. Block: an image and `lanes` packs of channels (a power of two); the threads of a pack add every
// (256 / lanes)-th pixel, then each other's sums pairwise.
template <int width, class T>
__global__ void __launch_bounds__(kThreads)
    global_average_kernel(const T* x, std::int64_t pixels, std::int64_t channels, T* y, unsigned tiles,
                          unsigned lanes) {
  __shared__ float shared[width][kThreads];
  const std::int64_t image = blockIdx.x / tiles;
  const unsigned lane = threadIdx.x & (lanes - 1), first = threadIdx.x / lanes, depth = kThreads / lanes;
  const std::int64_t channel = (std::int64_t{blockIdx.x % tiles} * lanes + lane) * width;
  float sum[width] = {};
  if (channel < channels) {
    const T* from = x + image * pixels * channels + channel;
#pragma unroll 4
    for (std::int64_t p = first; p < pixels; p += depth) {
      add_scaled(load_pack<width>(from + p * channels), 1.0f, sum);
    }
  }
#pragma unroll
  for (int i = 0; i < width; ++i) shared[i][threadIdx.x] = sum[i];
  for (unsigned half = depth / 2; half > 0; half /= 2) {
    __syncthreads();
    if (first >= half) continue;
#pragma unroll
    for (int i = 0; i < width; ++i) shared[i][threadIdx.x] += shared[i][threadIdx.x + half * lanes];
  }
  if (first > 0 || channel >= channels) return;
  const float scale = 1.0f / static_cast<float>(pixels);
  Pack<T, width> mean;
#pragma unroll
  for (int i = 0; i < width; ++i) mean.at[i] = narrow<T>(shared[i][threadIdx.x] * scale);
  store_pack(y + image * channels + channel, mean);
}

}  // namespace

template <class T>
void max_pool_forward(cudaStream_t stream, const PoolShape& s, const T* x, T* y, std::uint8_t* argmax) {
  require_aligned("max_pool_forward", {x, y, argmax});
  for_each_pixel(stream, "max_pool_forward", MaxForward<T>{Windows(s), x, argmax}, y, s.batch, s.out_h, s.out_w,
                 s.channels);
}

template <class T>
void max_pool_input_grad(cudaStream_t stream, const PoolShape& s, const T* dy, const std::uint8_t* argmax, T* dx) {
  require_aligned("max_pool_input_grad", {dy, argmax, dx});
  for_each_pixel(stream, "max_pool_input_grad", MaxInputGrad<T>{Windows(s), dy, argmax}, dx, s.batch, s.in_h, s.in_w,
                 s.channels);
}

template <class T>
void average_pool_forward(cudaStream_t stream, const PoolShape& s, bool count_include_pad, const T* x, T* y) {
  require_aligned("average_pool_forward", {x, y});
  for_each_pixel(stream, "average_pool_forward", AverageForward<T>{Windows(s), count_include_pad, x}, y, s.batch,
                 s.out_h, s.out_w, s.channels);
}

template <class T>
void average_pool_input_grad(cudaStream_t stream, const PoolShape& s, bool count_include_pad, const T* dy, T* dx) {
  require_aligned("average_pool_input_grad", {dy, dx});
  for_each_pixel(stream, "average_pool_input_grad", AverageInputGrad<T>{Windows(s), count_include_pad, dy}, dx, s.batch,
                 s.in_h, s.in_w, s.channels);
}

template <class T>
void global_average_pool_forward(cudaStream_t stream, const T* x, std::int64_t pixels, std::int64_t channels, T* y,
                                 std::int64_t batch) {
  constexpr const char* name = "global_average_pool_forward";
  require_aligned(name, {x, y});
  const auto run = [&](auto width) {
    const std::int64_t packs = channels / width;
    unsigned lanes = 1;
    while (lanes < 32 && lanes < packs) lanes *= 2;
    const std::int64_t tiles = parts(packs, lanes);
    global_average_kernel<width><<<grid_blocks(name, batch * tiles), kThreads, 0, stream>>>(
        x, pixels, channels, y, static_cast<unsigned>(tiles), lanes);
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

template void max_pool_forward(cudaStream_t, const PoolShape&, const float*, float*, std::uint8_t*);
template void max_pool_forward(cudaStream_t, const PoolShape&, const bf16*, bf16*, std::uint8_t*);
template void max_pool_input_grad(cudaStream_t, const PoolShape&, const float*, const std::uint8_t*, float*);
template void max_pool_input_grad(cudaStream_t, const PoolShape&, const bf16*, const std::uint8_t*, bf16*);
template void average_pool_forward(cudaStream_t, const PoolShape&, bool, const float*, float*);
template void average_pool_forward(cudaStream_t, const PoolShape&, bool, const bf16*, bf16*);
template void average_pool_input_grad(cudaStream_t, const PoolShape&, bool, const float*, float*);
template void average_pool_input_grad(cudaStream_t, const PoolShape&, bool, const bf16*, bf16*);
template void global_average_pool_forward(cudaStream_t, const float*, std::int64_t, std::int64_t, float*, std::int64_t);
template void global_average_pool_forward(cudaStream_t, const bf16*, std::int64_t, std::int64_t, bf16*, std::int64_t);
template void global_average_pool_input_grad(cudaStream_t, const float*, std::int64_t, std::int64_t, float*,
                                             std::int64_t);
template void global_average_pool_input_grad(cudaStream_t, const bf16*, std::int64_t, std::int64_t, bf16*,
                                             std::int64_t);

}  // namespace overtake::cuda
