#include "kernels/cuda/adaptive_pool.h"
#include "kernels/cuda/pixels.cuh"

namespace overtake::cuda {

namespace {

using namespace access;

// Window p of `out` windows over `in` inputs. window(h, out, in) are the windows over input h (kernels/cpu/
// adaptive_pool.cpp says why).
__device__ PixelRange window(int p, int in, int out) {
  const std::int64_t begin = std::int64_t{p} * in;
  return {static_cast<int>(begin / out), static_cast<int>((begin + in + out - 1) / out)};
}

struct Sizes {
  int channels, in_h, in_w, out_h, out_w;
  explicit Sizes(const AdaptivePoolShape& s)
      : channels(static_cast<int>(s.channels)),
        in_h(static_cast<int>(s.in_h)),
        in_w(static_cast<int>(s.in_w)),
        out_h(static_cast<int>(s.out_h)),
        out_w(static_cast<int>(s.out_w)) {}
};

template <class T>
struct Forward {
  Sizes s;
  const T* x;

  template <int width>
  __device__ void at(const PixelPlace& place, std::uint32_t, float (&sum)[width]) const {
    const PixelRange rows = window(place.row, s.in_h, s.out_h), columns = window(place.column, s.in_w, s.out_w);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] = 0.0f;
    for (int h = rows.begin; h < rows.end; ++h) {
      const T* line = x + ((place.image * s.in_h + h) * s.in_w) * s.channels + place.channel;
#pragma unroll 4
      for (int w = columns.begin; w < columns.end; ++w) {
        add_scaled(load_pack<width>(line + std::int64_t{w} * s.channels), 1.0f, sum);
      }
    }
    const float scale = 1.0f / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] *= scale;
  }
};

template <class T>
struct InputGrad {
  Sizes s;
  const T* dy;

  template <int width>
  __device__ void at(const PixelPlace& place, std::uint32_t, float (&sum)[width]) const {
    const PixelRange over_h = window(place.row, s.out_h, s.in_h), over_w = window(place.column, s.out_w, s.in_w);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] = 0.0f;
    for (int p = over_h.begin; p < over_h.end; ++p) {
      const PixelRange rows = window(p, s.in_h, s.out_h);
      const T* line = dy + ((place.image * s.out_h + p) * s.out_w) * s.channels + place.channel;
      for (int q = over_w.begin; q < over_w.end; ++q) {
        const PixelRange columns = window(q, s.in_w, s.out_w);
        const float scale = 1.0f / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
        add_scaled(load_pack<width>(line + std::int64_t{q} * s.channels), scale, sum);
      }
    }
  }
};

}  // namespace

template <class T>
void adaptive_pool_forward(cudaStream_t stream, const AdaptivePoolShape& s, const T* x, T* y, std::int64_t batch) {
  require_aligned("adaptive_pool_forward", {x, y});
  for_each_pixel(stream, "adaptive_pool_forward", Forward<T>{Sizes(s), x}, y, batch, s.out_h, s.out_w, s.channels);
}

template <class T>
void adaptive_pool_input_grad(cudaStream_t stream, const AdaptivePoolShape& s, const T* dy, T* dx, std::int64_t batch) {
  require_aligned("adaptive_pool_input_grad", {dy, dx});
  for_each_pixel(stream, "adaptive_pool_input_grad", InputGrad<T>{Sizes(s), dy}, dx, batch, s.in_h, s.in_w, s.channels);
}

template void adaptive_pool_forward(cudaStream_t, const AdaptivePoolShape&, const float*, float*, std::int64_t);
template void adaptive_pool_forward(cudaStream_t, const AdaptivePoolShape&, const bf16*, bf16*, std::int64_t);
template void adaptive_pool_input_grad(cudaStream_t, const AdaptivePoolShape&, const float*, float*, std::int64_t);
template void adaptive_pool_input_grad(cudaStream_t, const AdaptivePoolShape&, const bf16*, bf16*, std::int64_t);

}  // namespace overtake::cuda
