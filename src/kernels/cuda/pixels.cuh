#pragma once
// A thread for each pack of channels of each pixel of channels-last images, and how blocks sum over pixels. For .cu
// files only.

#include <algorithm>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/launch.h"

namespace overtake::cuda::access {

inline constexpr int kPixelThreads = 256;  // eight blocks fill an SM

// Where a thread's pack is: image, row, column, first channel.
struct PixelPlace {
  std::int64_t image;
  int row, column, channel;
};

// Images of height x width pixels of channel packs.
struct PixelGrid {
  Divisor packs, width, height;
  std::uint32_t count;  // of packs in all images

  PixelGrid(std::int64_t images, std::int64_t rows, std::int64_t columns, std::int64_t channel_packs)
      : packs(static_cast<std::uint32_t>(channel_packs)),
        width(static_cast<std::uint32_t>(columns)),
        height(static_cast<std::uint32_t>(rows)) {
    const std::int64_t all = images * rows * columns * channel_packs;
    require(all < (std::int64_t{1} << 31), "pool: more than 2^31 packs of channels");
    count = static_cast<std::uint32_t>(all);
  }

  template <int pack_width>
  __device__ PixelPlace place(std::uint32_t index) const {
    const auto [pixel, pack] = packs.divide(index);
    const auto [line, column] = width.divide(pixel);
    const auto [image, row] = height.divide(line);
    return {image, static_cast<int>(row), static_cast<int>(column), static_cast<int>(pack) * pack_width};
  }
};

// One pack per thread, as for_each_pixel says.
template <int width, class F, class T>
__global__ void __launch_bounds__(kPixelThreads, 4) pixels_kernel(F f, PixelGrid grid, T* to, std::int64_t pitch) {
  const std::uint32_t index = blockIdx.x * kPixelThreads + threadIdx.x;
  if (index >= grid.count) return;
  float values[width];
  const PixelPlace place = grid.place<width>(index);
  f.template at<width>(place, index, values);
  Pack<T, width> pack;
#pragma unroll
  for (int i = 0; i < width; ++i) pack.at[i] = narrow<T>(values[i]);
  store_pack(to + grid.packs.divide(index).quotient * pitch + place.channel, pack);
}

// to: [images][rows][columns][channels], its pixels `pitch` elements apart (0: the channels). f.at<width>(place, index,
// values) computes the `width` channels at a place, index being the number of the pack. read_pitch: of what f reads, if
// that has one.
template <class F, class T>
void for_each_pixel(cudaStream_t stream, const char* name, const F& f, T* to, std::int64_t images, std::int64_t rows,
                    std::int64_t columns, std::int64_t channels, std::int64_t pitch = 0, std::int64_t read_pitch = 0) {
  if (pitch == 0) pitch = channels;
  const auto run = [&](auto width) {
    const PixelGrid grid(images, rows, columns, channels / width);
    if (grid.count == 0) return;
    const unsigned blocks = grid_blocks(name, parts(grid.count, kPixelThreads));
    pixels_kernel<width><<<blocks, kPixelThreads, 0, stream>>>(f, grid, to, pitch);
    check_launch(name);
  };
  constexpr int width = kPackWidth<T>;
  (channels | pitch | read_pitch) % width == 0 ? run(std::integral_constant<int, width>{})
                                               : run(std::integral_constant<int, 1>{});
}

struct PixelRange {
  int begin, end;
};

inline constexpr unsigned kMostSumThreads = 1024;

// Sums over pixels, each by one block: an image and `lanes` packs of channels (a power of two); the threads of a pack
// add every (threads / lanes)-th pixel, then each other's sums pairwise. A function of the shape alone.
struct PixelSums {
  unsigned lanes, threads;
  std::int64_t tiles;  // of lanes packs
  bool is_short;       // enough blocks of few additions: more blocks for each sum would not pay

  PixelSums(std::int64_t images, std::int64_t pixels, std::int64_t packs, unsigned least_lanes) : lanes(1) {
    constexpr std::int64_t enough = 96;  // blocks: most of the 132 multiprocessors of an H200 are at work
    while (lanes < 32 && lanes < packs) lanes *= 2;
    while (lanes > least_lanes && images * parts(packs, lanes) < enough) lanes /= 2;
    tiles = parts(packs, lanes);
    // Four additions of a thread are on their way at a time.
    threads = pixels > 4 * (256 / lanes) ? kMostSumThreads : 256;
    const std::int64_t depth = threads / lanes;
    is_short = pixels <= 4 * depth || (images * tiles >= enough && pixels <= 8 * depth);
  }
};

// Adds up the sums of all threads of a block that have the same lane, in place: those of the first `lanes` threads are
// the totals. depth = threads of the block / lanes, a power of two.
template <int width, int threads>
__device__ inline void add_pairwise(float (&sums)[width][threads], unsigned lanes, unsigned depth) {
  for (unsigned half = depth / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half * lanes) continue;
#pragma unroll
    for (int i = 0; i < width; ++i) sums[i][threadIdx.x] += sums[i][threadIdx.x + half * lanes];
  }
}

// sum[i] += factor * pack[i].
template <int width, class T>
__device__ inline void add_scaled(const Pack<T, width>& pack, float factor, float (&sum)[width]) {
#pragma unroll
  for (int i = 0; i < width; ++i) sum[i] += widen(pack.at[i]) * factor;
}

}  // namespace overtake::cuda::access
