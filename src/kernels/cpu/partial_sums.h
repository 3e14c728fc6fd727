#pragma once
// Sums over rows in two phases: partial sums over fixed chunks of rows, then the partial sums in their order. The
// chunks are a function of the number of rows alone, so the result does not depend on who computed which chunk.

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace overtake::kernels {

// At most 64 chunks, none shorter than 128 rows unless there is only one.
inline std::int64_t row_chunks(std::int64_t rows) { return std::clamp<std::int64_t>(rows / 128, 1, 64); }

struct RowRange {
  std::int64_t begin, end;
};

// The rows of one chunk; chunk lengths differ by at most one.
inline RowRange chunk_rows(std::int64_t rows, std::int64_t chunk) {
  const std::int64_t chunks = row_chunks(rows);
  return {rows * chunk / chunks, rows * (chunk + 1) / chunks};
}

// Calls add(row, count) for all rows of the range, count being an integral_constant of 1 or 4 rows. streams: arrays of
// rows of `width` elements that add reads. How rows are grouped depends on the type and the width alone.
// Adding into an array while reading makes the hardware prefetch too little: medium rows are asked for 4 KiB ahead, the
// others are taken four at a time. (On Zen 4: 20 instead of 12 GB/s for 256 channels, 22 instead of 13 for 1024.)
template <class Add, class T, class... More>
void for_each_row_group(RowRange range, std::int64_t width, const Add& add, const T* stream, const More*... more) {
  constexpr std::int64_t line = 64 / sizeof(T), ahead = 4096 / sizeof(T);
  std::int64_t row = range.begin;
  if (sizeof(T) == 4 && width > 64 && width <= 512) {
    for (; row < range.end; ++row) {
      for (std::int64_t c = row * width + ahead; c < (row + 1) * width + ahead; c += line) {
        __builtin_prefetch(stream + c);
        (__builtin_prefetch(more + c), ...);
      }
      add(row, std::integral_constant<int, 1>{});
    }
    return;
  }
  for (; row + 4 <= range.end; row += 4) add(row, std::integral_constant<int, 4>{});
  for (; row < range.end; ++row) add(row, std::integral_constant<int, 1>{});
}

// totals[c] = sum over k of partials[k * stride + c], k < count, for columns c in [begin, end).
void combine_partials(const float* partials, std::int64_t count, std::int64_t stride, float* totals, std::int64_t begin,
                      std::int64_t end);

}  // namespace overtake::kernels
