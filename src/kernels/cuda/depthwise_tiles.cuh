#pragma once
// How depthwise convolutions are cut: threads along packs of channels, and small tiles of pixels. For .cu files only.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/conv_shape.h"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/values.cuh"

namespace overtake::cuda::depthwise_detail {

using access::Divisor;
using access::parts;
using access::require;

// Pixels of a tile, held in the registers of one thread. Both are multiples of every stride that has a fast path.
inline constexpr int kTileRows = 2, kTileColumns = 4;
inline constexpr int kThreads = 256;
// Packs of channels side by side in a block.
inline constexpr int kMostAcross = 32;

inline void check(const kernels::ConvShape& s) {
  require(s.groups == s.in_channels && s.groups == s.out_channels, "depthwise: not one channel per group");
}

// Whether the kernels for square windows with constant bounds do the shape, `vector` channels at a time.
inline bool has_fast_path(const kernels::ConvShape& s, int vector) {
  return s.kernel_h == s.kernel_w && (s.kernel_h == 3 || s.kernel_h == 5 || s.kernel_h == 7) &&
         s.stride_h == s.stride_w && (s.stride_h == 1 || s.stride_h == 2) && s.dilation_h == 1 && s.dilation_w == 1 &&
         s.groups % vector == 0;
}

// Calls body(integral_constant<int, kernel>, integral_constant<int, stride>) for a shape with a fast path.
template <class Body>
void with_window(const kernels::ConvShape& s, const Body& body) {
  const auto with_stride = [&](auto kernel) {
    s.stride_h == 1 ? body(kernel, std::integral_constant<int, 1>{}) : body(kernel, std::integral_constant<int, 2>{});
  };
  if (s.kernel_h == 3) return with_stride(std::integral_constant<int, 3>{});
  s.kernel_h == 5 ? with_stride(std::integral_constant<int, 5>{}) : with_stride(std::integral_constant<int, 7>{});
}

// A block: x along packs of channels, y along tiles of pixels; no lane is idle more than rounding asks for.
struct BlockShape {
  unsigned across, down, channel_tiles;

  BlockShape(std::int64_t channels, int vector, int threads) {
    const std::int64_t packs = parts(channels, vector);
    channel_tiles = static_cast<unsigned>(parts(packs, kMostAcross));
    across = static_cast<unsigned>(parts(packs, channel_tiles));
    down = static_cast<unsigned>(threads) / across;
  }
};

// Images cut in tiles of kTileRows x kTileColumns pixels; those of the first row (column) begin `row_shift`
// (`column_shift`) pixels before the image.
struct PixelTiles {
  Divisor down, across;  // tiles of an image
  int row_shift, column_shift;
  std::uint32_t count;  // of all images

  PixelTiles(std::int64_t images, std::int64_t rows, std::int64_t columns, std::int64_t rows_before,
             std::int64_t columns_before)
      : row_shift(static_cast<int>(rows_before)), column_shift(static_cast<int>(columns_before)) {
    const std::int64_t tiles_down = parts(rows + rows_before, kTileRows),
                       tiles_across = parts(columns + columns_before, kTileColumns);
    const std::int64_t all = images * tiles_down * tiles_across;
    require(all < (std::int64_t{1} << 31), "depthwise: more than 2^31 tiles");
    down = Divisor(static_cast<std::uint32_t>(tiles_down));
    across = Divisor(static_cast<std::uint32_t>(tiles_across));
    count = static_cast<std::uint32_t>(all);
  }

  struct Place {
    std::int64_t image;
    int row, column;  // of the tile's first pixel
  };
  __device__ Place place(std::uint32_t tile) const {
    const auto [line, tile_column] = across.divide(tile);
    const auto [image, tile_row] = down.divide(line);
    return {image, static_cast<int>(tile_row) * kTileRows - row_shift,
            static_cast<int>(tile_column) * kTileColumns - column_shift};
  }
};

// One set of images, for one thread's channels.
struct Plane {
  int rows, columns, channels;

  Plane(std::int64_t h, std::int64_t w, std::int64_t c)
      : rows(static_cast<int>(h)), columns(static_cast<int>(w)), channels(static_cast<int>(c)) {
    require(h * w * c < (std::int64_t{1} << 31), "depthwise: an image of more than 2^31 elements");
  }

  __device__ bool has_row(int row) const { return static_cast<unsigned>(row) < static_cast<unsigned>(rows); }
  __device__ bool has(int row, int column) const {
    return has_row(row) && static_cast<unsigned>(column) < static_cast<unsigned>(columns);
  }
  __device__ std::int64_t image(std::int64_t index) const { return index * rows * columns * channels; }
  __device__ int pixel(int row, int column) const { return (row * columns + column) * channels; }
  // Which of `count` columns from `left` on are inside, a bit each.
  template <int count>
  __device__ unsigned columns_inside(int left) const {
    const int first = max(-left, 0), end = min(columns - left, count);
    return end > first ? ((1u << end) - 1u) & ~((1u << first) - 1u) : 0u;
  }
  // V channels of the pixels of a row of the image from `left` on; zeros where not inside.
  template <class T, int V, int count>
  __device__ void load_row(const T* from, int row, int left, unsigned inside, Packed<T, V> (&packs)[count]) const {
    const T* first = from + pixel(row, left);
    int step = channels;
    // Without this the compiler keeps the offsets of all columns in registers from one row to the next.
    asm volatile("" : "+r"(step));
#pragma unroll
    for (int j = 0; j < count; ++j) {
      packs[j] = (inside >> j & 1u) != 0u ? load_packed<V>(first + j * step) : Packed<T, V>{};
    }
  }
};

}  // namespace overtake::cuda::depthwise_detail
