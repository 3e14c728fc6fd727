#include "kernels/cpu/partial_sums.h"

#include <array>

namespace overtake::kernels {

void combine_partials(const float* partials, std::int64_t count, std::int64_t stride, float* totals, std::int64_t begin,
                      std::int64_t end) {
  constexpr std::int64_t tile = 256;
  std::array<double, tile> sums;
  for (std::int64_t first = begin; first < end; first += tile) {
    const std::int64_t width = std::min(tile, end - first);
    double* sum = sums.data();
    std::fill(sum, sum + width, 0.0);
    for (std::int64_t k = 0; k < count; ++k) {
      const float* partial = partials + k * stride + first;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) sum[c] += static_cast<double>(partial[c]);
    }
    for (std::int64_t c = 0; c < width; ++c) totals[first + c] = static_cast<float>(sum[c]);
  }
}

}  // namespace overtake::kernels
