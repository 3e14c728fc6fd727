#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <memory>

#include "kernels/cpu/gemm_blocks.h"
#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/gemm_tile.h"

namespace overtake::kernels {
namespace gemm_detail {
namespace {

constexpr std::int64_t kColumns = 512;     // columns of b in one block: kDepth x kColumns words stay in a 1 MiB L2
constexpr std::int64_t kBufferRows = 512;  // rows of c in the buffer of multiply_blocks_to
constexpr std::int64_t kSlack = 16;        // words that pack_lanes may write behind the end

// What a thread keeps from call to call.
struct Buffers {
  alignas(64) Word a[kMaxRows * kDepth + kSlack];
  alignas(64) Word b[kColumns * kDepth + kSlack];
  alignas(64) float c[kBufferRows * kColumns];
};

Buffers& thread_buffers() {
  thread_local const std::unique_ptr<Buffers> buffers = std::make_unique_for_overwrite<Buffers>();
  return *buffers;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

template <class T>
constexpr std::int64_t kDepthElements = kDepth* kElementsPerWord<T>;

template <class T>
std::int64_t words_of(std::int64_t elements) {
  return ceil_div(elements, kElementsPerWord<T>);
}

// op(b)[p : p + depth, col : col + cols] as panels of [words][kPanel].
template <class T>
void pack_b_block(bool trans_b, const T* b, std::int64_t ldb, std::int64_t n, std::int64_t p, std::int64_t depth,
                  std::int64_t col, std::int64_t cols, Word* out) {
  if (!trans_b) {
    pack_panels(b + p * ldb, ldb, n, col, col + cols, depth, out);
    return;
  }
  for (std::int64_t j = 0; j < cols; j += kPanel, out += words_of<T>(depth) * kPanel) {
    pack_lanes(true, b + p, ldb, n, col + j, col + std::min(j + kPanel, cols), depth, out, kPanel);
  }
}

// Rows `begin` to `end` of m, cut into tiles whose heights differ by at most one.
struct RowTiles {
  std::int64_t m, count;
  explicit RowTiles(std::int64_t rows) : m(rows), count(ceil_div(rows, kMaxRows)) {}
  std::int64_t begin(std::int64_t tile) const { return tile * m / count; }
};

}  // namespace

template <class T>
void multiply_blocks(const Factors<T>& f, bool accumulate, float* c, std::int64_t ldc, const Finish& finish) {
  if (f.m == 0 || f.n == 0) return;
  if (f.k == 0) {
    for (std::int64_t i = 0; !accumulate && i < f.m; ++i) std::fill_n(c + i * ldc, f.n, 0.0f);
    if (finish) finish(c, ldc, 0, f.m, 0, f.n);
    return;
  }
  Buffers& buffers = thread_buffers();
  const RowTiles tiles(f.m);
  const std::int64_t packed_columns = ceil_div(f.packed_n, kPanel) * kPanel;
  for (std::int64_t col = 0; col < f.n; col += kColumns) {
    const std::int64_t cols = std::min(kColumns, f.n - col);
    for (std::int64_t p = 0; p < f.k; p += kDepthElements<T>) {
      const std::int64_t depth = std::min(kDepthElements<T>, f.k - p), words = words_of<T>(depth);
      const Word* b = buffers.b;
      std::int64_t b_words = words;  // in a panel
      if (f.packed_b != nullptr) {
        b_words = words_of<T>(std::min(kDepthElements<T>, f.packed_k - p));
        b = static_cast<const Word*>(f.packed_b) + words_of<T>(p) * packed_columns + b_words * col;
      } else {
        pack_b_block(f.trans_b, f.b, f.ldb, f.n, p, depth, col, cols, buffers.b);
      }
      const T* a = f.trans_a ? f.a + p * f.lda : f.a + p;
      for (std::int64_t tile = 0; tile < tiles.count; ++tile) {
        const std::int64_t row = tiles.begin(tile), rows = tiles.begin(tile + 1) - row;
        pack_lanes(!f.trans_a, a, f.lda, f.m, row, row + rows, depth, buffers.a, rows);
        float* part = c + row * ldc + col;
        for (std::int64_t j = 0; j < cols; j += kPanel) {
          multiply_tile<T>(rows, std::min(kPanel, cols - j), words, buffers.a, b + j * b_words, f.alpha,
                           accumulate || p > 0, part + j, ldc);
        }
        if (finish && p + depth == f.k) finish(part, ldc, row, rows, col, cols);
      }
    }
  }
}

template <class T>
void multiply_blocks_to(const Factors<T>& f, const Finish& finish) {
  float* buffer = thread_buffers().c;
  for (std::int64_t col = 0; col < f.n; col += kColumns) {
    for (std::int64_t row = 0; row < f.m; row += kBufferRows) {
      Factors<T> part = f;
      part.m = std::min(kBufferRows, f.m - row);
      part.n = std::min(kColumns, f.n - col);
      part.a += f.trans_a ? row : row * f.lda;
      part.b += f.trans_b ? col * f.ldb : col;
      multiply_blocks<T>(part, false, buffer, kColumns,
                         [&](float* c, std::int64_t ld, std::int64_t r, std::int64_t rows, std::int64_t j,
                             std::int64_t cols) { finish(c, ld, row + r, rows, col + j, cols); });
    }
  }
}

template void multiply_blocks<float>(const Factors<float>&, bool, float*, std::int64_t, const Finish&);
template void multiply_blocks<bf16>(const Factors<bf16>&, bool, float*, std::int64_t, const Finish&);
template void multiply_blocks_to<float>(const Factors<float>&, const Finish&);
template void multiply_blocks_to<bf16>(const Factors<bf16>&, const Finish&);

namespace {

void scale(float beta, std::int64_t m, std::int64_t n, float* c, std::int64_t ldc) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] *= beta;
  }
}

template <class T>
void multiply_into(const Factors<T>& f, float beta, float* c, std::int64_t ldc) {
  if (beta != 0.0f && beta != 1.0f) scale(beta, f.m, f.n, c, ldc);
  multiply_blocks<T>(f, beta != 0.0f, c, ldc, {});
}

}  // namespace
}  // namespace gemm_detail

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  gemm_detail::multiply_into<float>({trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb}, beta, c, ldc);
}

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const bf16* a,
          std::int64_t lda, const bf16* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  gemm_detail::multiply_into<bf16>({trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb}, beta, c, ldc);
}

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const bf16* a,
          std::int64_t lda, const bf16* b, std::int64_t ldb, float beta, bf16* c, std::int64_t ldc) {
  const auto round_part = [&](const float* part, std::int64_t ld, std::int64_t row, std::int64_t rows, std::int64_t col,
                              std::int64_t cols) {
    for (std::int64_t i = 0; i < rows; ++i) {
      bf16* to = c + (row + i) * ldc + col;
      const float* from = part + i * ld;
      if (beta == 0.0f) {
#pragma omp simd
        for (std::int64_t j = 0; j < cols; ++j) to[j] = from_float<bf16>(from[j]);
      } else {
#pragma omp simd
        for (std::int64_t j = 0; j < cols; ++j)
          to[j] = from_float<bf16>(__builtin_fmaf(beta, to_float(to[j]), from[j]));
      }
    }
  };
  gemm_detail::multiply_blocks_to<bf16>({trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb}, round_part);
}

template <class T>
std::int64_t packed_b_bytes(std::int64_t k, std::int64_t n) {
  using namespace gemm_detail;
  const std::int64_t columns = ceil_div(n, kPanel) * kPanel;
  return ceil_div((words_of<T>(k) * columns + kSlack) * static_cast<std::int64_t>(sizeof(Word)), 64) * 64;
}

template <class T>
void pack_b(bool trans_b, std::int64_t k, std::int64_t n, const T* b, std::int64_t ldb, void* packed) {
  using namespace gemm_detail;
  const std::int64_t columns = ceil_div(n, kPanel) * kPanel;
  Word* out = static_cast<Word*>(packed);
  for (std::int64_t p = 0; p < k; p += kDepthElements<T>) {
    const std::int64_t depth = std::min(kDepthElements<T>, k - p);
    pack_b_block(trans_b, b, ldb, n, p, depth, 0, n, out);
    out += words_of<T>(depth) * columns;
  }
}

template <class T>
void gemm_packed(bool trans_a, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const T* a,
                 std::int64_t lda, const void* packed_b, float beta, float* c, std::int64_t ldc) {
  gemm_detail::multiply_into<T>({trans_a, false, m, n, k, alpha, a, lda, nullptr, 0, packed_b, k, n}, beta, c, ldc);
}

template std::int64_t packed_b_bytes<float>(std::int64_t, std::int64_t);
template std::int64_t packed_b_bytes<bf16>(std::int64_t, std::int64_t);
template void pack_b<float>(bool, std::int64_t, std::int64_t, const float*, std::int64_t, void*);
template void pack_b<bf16>(bool, std::int64_t, std::int64_t, const bf16*, std::int64_t, void*);
template void gemm_packed<float>(bool, std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t,
                                 const void*, float, float*, std::int64_t);
template void gemm_packed<bf16>(bool, std::int64_t, std::int64_t, std::int64_t, float, const bf16*, std::int64_t,
                                const void*, float, float*, std::int64_t);

}  // namespace overtake::kernels
