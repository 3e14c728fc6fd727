#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/move.h"

namespace overtake::kernels {

namespace {

constexpr std::int64_t kColumnBlock = 16384;
constexpr std::int64_t kTileRowBlock = 64;

struct Dim {
  std::int64_t extent, x_stride, y_stride;
};

// The dims of y without those of extent 1, neighbours joined where x traverses them as one. Returns how many.
std::size_t joined_dims(std::span<const std::int64_t> x_dims, std::span<const int> permutation,
                        std::array<Dim, 6>& dims) {
  std::array<std::int64_t, 6> x_strides{};
  std::int64_t elements = 1;
  for (std::size_t d = x_dims.size(); d-- > 0;) {
    x_strides[d] = elements;
    elements *= x_dims[d];
  }
  std::size_t rank = 0;
  std::int64_t y_stride = elements;
  for (const int from : permutation) {
    const std::int64_t extent = x_dims[static_cast<std::size_t>(from)];
    const std::int64_t x_stride = x_strides[static_cast<std::size_t>(from)];
    y_stride /= extent;
    if (extent == 1) continue;
    if (rank > 0 && dims[rank - 1].x_stride == extent * x_stride) {
      dims[rank - 1] = {dims[rank - 1].extent * extent, x_stride, y_stride};
    } else {
      dims[rank++] = {extent, x_stride, y_stride};
    }
  }
  if (rank == 0) dims[rank++] = {1, 1, 1};
  return rank;
}

// A cache line of elements as a vector, whatever the width of the machine's registers.
template <class T>
struct Line {
  static constexpr std::size_t kSize = 64 / sizeof(T);
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
  using Vector [[gnu::vector_size(64)]] = Bits;

  // The first (half = 0) or second halves of a and b, a's and b's elements taking turns.
  template <std::size_t half, std::size_t... i>
  static Vector interleave(const Vector& a, const Vector& b, std::index_sequence<i...>) {
    return __builtin_shufflevector(a, b, static_cast<int>((i + half * kSize) / 2 + i % 2 * kSize)...);
  }
};

// A full tile: a cache line of rows by a cache line of columns. y[r * y_row_step + c] = x[c * x_column_step + r].
// Interleaving line i with line i + kSize / 2, log2(kSize) times over, transposes the tile.
template <class T>
void transpose_tile(const T* x, std::int64_t x_column_step, T* y, std::int64_t y_row_step) {
  using Vector = typename Line<T>::Vector;
  constexpr std::size_t kSize = Line<T>::kSize;
  constexpr auto kIndices = std::make_index_sequence<kSize>();
  Vector lines[kSize], mixed[kSize];
  for (Vector& line : lines) {
    std::memcpy(&line, x, sizeof line);
    x += x_column_step;
  }
#pragma GCC unroll 8
  for (std::size_t done = 1; done < kSize; done *= 2) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kSize / 2; ++i) {
      mixed[2 * i] = Line<T>::template interleave<0>(lines[i], lines[i + kSize / 2], kIndices);
      mixed[2 * i + 1] = Line<T>::template interleave<1>(lines[i], lines[i + kSize / 2], kIndices);
    }
#pragma GCC unroll 32
    for (std::size_t i = 0; i < kSize; ++i) lines[i] = mixed[i];
  }
  for (const Vector& line : lines) {
    std::memcpy(static_cast<void*>(y), &line, sizeof line);
    y += y_row_step;
  }
}

// Rows [0, rows) and all columns of a plane.
template <class T>
void transpose_plane(const PermutePlan& plan, const T* x, T* y, std::int64_t rows) {
  constexpr std::int64_t kTile = 64 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t x_step = plan.x_column_step, y_step = plan.y_row_step;
  for (std::int64_t c = 0; c < plan.columns; c += kTile) {
    const std::int64_t tile_columns = std::min(kTile, plan.columns - c);
    for (std::int64_t r = 0; r < rows; r += kTile) {
      const std::int64_t tile_rows = std::min(kTile, rows - r);
      const T* from = x + c * x_step + r;
      T* to = y + r * y_step + c;
      if (tile_rows == kTile && tile_columns == kTile) {
        transpose_tile(from, x_step, to, y_step);
        continue;
      }
      for (std::int64_t i = 0; i < tile_rows; ++i) {
        for (std::int64_t j = 0; j < tile_columns; ++j) to[i * y_step + j] = from[j * x_step + i];
      }
    }
  }
}

}  // namespace

PermutePlan make_permute_plan(std::span<const std::int64_t> x_dims, std::span<const int> permutation) {
  OVERTAKE_CHECK(x_dims.size() <= 6 && permutation.size() == x_dims.size(), "permutation of {} dims for rank {}",
                 permutation.size(), x_dims.size());
  for (const std::int64_t extent : x_dims) OVERTAKE_CHECK(extent > 0, "permutation of an empty tensor");
  std::array<Dim, 6> dims{};
  const std::size_t rank = joined_dims(x_dims, permutation, dims);
  PermutePlan plan{};
  plan.columns = dims[rank - 1].extent;
  plan.x_column_step = dims[rank - 1].x_stride;
  plan.tile_rows = 1;
  const bool transposes = plan.x_column_step != 1;
  plan.units = 1;
  for (std::size_t d = 0; d + 1 < rank; ++d) {
    if (transposes && dims[d].x_stride == 1) {
      plan.tile_rows = dims[d].extent;
      plan.y_row_step = dims[d].y_stride;
      continue;
    }
    const auto next = static_cast<std::size_t>(plan.rank++);
    plan.dims[next] = dims[d].extent;
    plan.x_strides[next] = dims[d].x_stride;
    plan.y_strides[next] = dims[d].y_stride;
    plan.units *= dims[d].extent;
  }
  plan.blocks = transposes ? parts_of(plan.tile_rows, kTileRowBlock) : parts_of(plan.columns, kColumnBlock);
  plan.units *= plan.blocks;
  return plan;
}

template <class T>
void permute(const PermutePlan& plan, const T* x, T* y, std::int64_t begin, std::int64_t end) {
  const auto rank = static_cast<std::size_t>(plan.rank);
  std::array<std::int64_t, 6> at{};  // index in the remaining dims
  std::int64_t rest = begin / plan.blocks, x_offset = 0, y_offset = 0;
  for (std::size_t d = rank; d-- > 0;) {
    at[d] = rest % plan.dims[d];
    rest /= plan.dims[d];
    x_offset += at[d] * plan.x_strides[d];
    y_offset += at[d] * plan.y_strides[d];
  }
  std::int64_t block = begin % plan.blocks;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    if (plan.x_column_step == 1) {
      const std::int64_t first = block * kColumnBlock, size = std::min(kColumnBlock, plan.columns - first);
      std::memcpy(static_cast<void*>(y + y_offset + first), x + x_offset + first,
                  static_cast<std::size_t>(size) * sizeof(T));
    } else {
      const std::int64_t first = block * kTileRowBlock, rows = std::min(kTileRowBlock, plan.tile_rows - first);
      transpose_plane(plan, x + x_offset + first, y + y_offset + first * plan.y_row_step, rows);
    }
    if (++block < plan.blocks) continue;
    block = 0;
    for (std::size_t d = rank; d-- > 0;) {
      x_offset += plan.x_strides[d];
      y_offset += plan.y_strides[d];
      if (++at[d] < plan.dims[d]) break;
      x_offset -= plan.dims[d] * plan.x_strides[d];
      y_offset -= plan.dims[d] * plan.y_strides[d];
      at[d] = 0;
    }
  }
}

template void permute(const PermutePlan&, const float*, float*, std::int64_t, std::int64_t);
template void permute(const PermutePlan&, const bf16*, bf16*, std::int64_t, std::int64_t);
template void permute(const PermutePlan&, const std::int32_t*, std::int32_t*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
