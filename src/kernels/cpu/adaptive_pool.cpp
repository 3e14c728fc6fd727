#include "kernels/cpu/adaptive_pool.h"

#include <vector>

#include "base/bf16.h"
#include "kernels/cpu/simd.h"

namespace overtake::kernels {
namespace {

struct Range {
  std::int64_t begin, end;
};

// The windows of `out` outputs over `in` inputs: [floor(p in / out), ceil((p + 1) in / out)). Window p covers input h
// if p in / out < h + 1 and (p + 1) in / out > h; solved for p this is the same with in and out swapped, so that
// windows_of(out, in) are the windows over each input.
std::vector<Range> windows_of(std::int64_t in, std::int64_t out) {
  std::vector<Range> windows;
  for (std::int64_t p = 0; p < out; ++p) windows.push_back({p * in / out, ((p + 1) * in + out - 1) / out});
  return windows;
}

// What is the same for all images.
struct Windows {
  std::vector<Range> rows, columns;            // [out_h], [out_w]
  std::vector<Range> rows_over, columns_over;  // [in_h], [in_w]
  std::vector<float> scales;                   // [out_h][out_w], one over the size of each window

  explicit Windows(const AdaptivePoolShape& s)
      : rows(windows_of(s.in_h, s.out_h)),
        columns(windows_of(s.in_w, s.out_w)),
        rows_over(windows_of(s.out_h, s.in_h)),
        columns_over(windows_of(s.out_w, s.in_w)) {
    for (const Range& row : rows) {
      for (const Range& column : columns) {
        scales.push_back(1.0f / static_cast<float>((row.end - row.begin) * (column.end - column.begin)));
      }
    }
  }
};

// to[i] = finish(i, sum of term(k, from[k]) over the places k in rows x columns), for each pixel i; pixels have
// `channels` numbers.
template <class T, class Term, class Finish>
void gather_image(const std::vector<Range>& rows, const std::vector<Range>& columns, std::int64_t from_width,
                  std::int64_t channels, const T* from, T* to, const Term& term, const Finish& finish) {
  std::size_t pixel = 0;
  for (const Range& row : rows) {
    for (const Range& column : columns) {
      for_each_channel_block(channels, [&](std::int64_t c, auto access) {
        Lanes sum{};
        for (std::int64_t r = row.begin; r < row.end; ++r) {
          for (std::int64_t s = column.begin; s < column.end; ++s) {
            const std::int64_t k = r * from_width + s;
            sum += term(static_cast<std::size_t>(k), access.load(from + k * channels + c));
          }
        }
        access.store(to + c, finish(pixel, sum));
      });
      to += channels;
      ++pixel;
    }
  }
}

std::int64_t in_size(const AdaptivePoolShape& s) { return s.in_h * s.in_w * s.channels; }
std::int64_t out_size(const AdaptivePoolShape& s) { return s.out_h * s.out_w * s.channels; }

}  // namespace

template <class T>
void adaptive_pool_forward(const AdaptivePoolShape& s, const T* x, T* y, std::int64_t begin, std::int64_t end) {
  const Windows windows(s);
  const auto itself = [](std::size_t, const Lanes& value) { return value; };
  const auto mean = [&](std::size_t window, const Lanes& sum) { return sum * windows.scales[window]; };
  for (std::int64_t n = begin; n < end; ++n) {
    gather_image(windows.rows, windows.columns, s.in_w, s.channels, x + n * in_size(s), y + n * out_size(s), itself,
                 mean);
  }
}

template <class T>
void adaptive_pool_input_grad(const AdaptivePoolShape& s, const T* dy, T* dx, std::int64_t begin, std::int64_t end) {
  const Windows windows(s);
  const auto share = [&](std::size_t window, const Lanes& gradient) { return gradient * windows.scales[window]; };
  const auto itself = [](std::size_t, const Lanes& sum) { return sum; };
  for (std::int64_t n = begin; n < end; ++n) {
    gather_image(windows.rows_over, windows.columns_over, s.out_w, s.channels, dy + n * out_size(s),
                 dx + n * in_size(s), share, itself);
  }
}

template void adaptive_pool_forward(const AdaptivePoolShape&, const float*, float*, std::int64_t, std::int64_t);
template void adaptive_pool_forward(const AdaptivePoolShape&, const bf16*, bf16*, std::int64_t, std::int64_t);
template void adaptive_pool_input_grad(const AdaptivePoolShape&, const float*, float*, std::int64_t, std::int64_t);
template void adaptive_pool_input_grad(const AdaptivePoolShape&, const bf16*, bf16*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
