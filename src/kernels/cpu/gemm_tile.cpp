#include "kernels/cpu/gemm_tile.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

// Vectors wider than the machine's are passed in memory, which is not the ABI of a wider machine. They never leave this
// file.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace overtake::kernels::gemm_detail {
namespace {

constexpr std::size_t kLanes = 16;
constexpr std::int64_t kHalfPanel = kPanel / 2;  // one vector
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));

Floats load(const void* from) {
  Floats v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

void store(Floats v, float* to) { std::memcpy(to, &v, sizeof v); }

// a * b + c with one rounding. Left to the compiler, `a * b + c` may be fused in one tile's code and not in another's.
inline Floats fused(float a, Floats b, Floats c) {
  Floats r;
#pragma omp simd
  for (std::size_t l = 0; l < kLanes; ++l) r[l] = __builtin_fmaf(a, b[l], c[l]);
  return r;
}

// sum + a * b in every lane, where a is one word for all lanes.
template <class T>
Floats multiply_add(Floats sum, Word a, Floats b) {
#ifdef __AVX512BF16__
  if constexpr (kElementsPerWord<T> == 2) {
    const __m512i pairs = _mm512_set1_epi32(static_cast<int>(a));
    return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(pairs), std::bit_cast<__m512bh>(b));
  }
#endif
  return fused(std::bit_cast<float>(a), b, sum);
}

// A tile of exactly Rows rows and Vectors * 16 columns.
template <class T, std::size_t Rows, std::size_t Vectors>
void multiply_full(std::int64_t words, const Word* __restrict a, const Word* __restrict b, float alpha, bool accumulate,
                   float* __restrict c, std::size_t ldc) {
  Floats sum[Rows][Vectors] = {};
#pragma GCC unroll 1
  for (std::size_t i = 0; i < Rows; ++i) __builtin_prefetch(c + i * ldc, 1);
  for (std::int64_t p = 0; p < words; ++p, a += Rows, b += kPanel) {
    Floats columns[Vectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < Vectors; ++v) columns[v] = load(b + v * kLanes);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
      for (std::size_t v = 0; v < Vectors; ++v) sum[i][v] = multiply_add<T>(sum[i][v], a[i], columns[v]);
    }
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < Rows; ++i, c += ldc) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < Vectors; ++v) {
      const Floats base = accumulate ? load(c + v * kLanes) : Floats{};
      store(fused(alpha, sum[i][v], base), c + v * kLanes);
    }
  }
}

using Multiply = void (*)(std::int64_t, const Word*, const Word*, float, bool, float*, std::size_t);

template <class T, std::size_t Vectors, std::size_t... Rows>
constexpr std::array<Multiply, sizeof...(Rows)> table_of(std::index_sequence<Rows...>) {
  return {multiply_full<T, Rows + 1, Vectors>...};
}

template <class T, std::size_t Vectors>
constexpr auto kTable = table_of<T, Vectors>(std::make_index_sequence<kMaxRows>{});

}  // namespace

template <class T>
void multiply_tile(std::int64_t rows, std::int64_t cols, std::int64_t words, const Word* a, const Word* b, float alpha,
                   bool accumulate, float* c, std::int64_t ldc) {
  const std::size_t row_index = static_cast<std::size_t>(rows - 1);
  const Multiply multiply = cols > kHalfPanel ? kTable<T, 2>[row_index] : kTable<T, 1>[row_index];
  if (cols == kPanel || cols == kHalfPanel) {
    multiply(words, a, b, alpha, accumulate, c, static_cast<std::size_t>(ldc));
    return;
  }
  // The same arithmetic on a whole tile beside c, so that an element's bits do not depend on where the edge lies.
  alignas(64) float tile[kMaxRows * kPanel] = {};
  for (std::int64_t i = 0; accumulate && i < rows; ++i) std::copy_n(c + i * ldc, cols, tile + i * kPanel);
  multiply(words, a, b, alpha, accumulate, tile, kPanel);
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(tile + i * kPanel, cols, c + i * ldc);
}

template void multiply_tile<float>(std::int64_t, std::int64_t, std::int64_t, const Word*, const Word*, float, bool,
                                   float*, std::int64_t);
template void multiply_tile<bf16>(std::int64_t, std::int64_t, std::int64_t, const Word*, const Word*, float, bool,
                                  float*, std::int64_t);

}  // namespace overtake::kernels::gemm_detail
