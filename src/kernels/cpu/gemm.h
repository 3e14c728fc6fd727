#pragma once
// Matrix products on one thread, row-major. op(x) is x or its transpose.
//
// Every element of the result is one chain of fused multiply-adds over k, in blocks of a fixed length, in the same
// order wherever the element lies. So the bits of c[i, j] depend on row i of op(a), column j of op(b), k, alpha and
// beta only: not on m, n, the leading dimensions, the transposes, or on which rows and columns are computed in one
// call. Splitting a product by rows or by columns is free; splitting it along k is not.
//
// In bf16 a link of the chain is a pair of neighbours along k where the machine multiplies pairs (AVX512-BF16, which
// takes subnormals as zero), else one product: there the bits also depend on the machine's kind.
//
// Each calling thread keeps packing buffers of about 1.6 MiB.

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels {

// c[m, n] = alpha * op(a)[m, k] op(b)[k, n] + beta * c[m, n]. a is [m, k], or [k, m] where trans_a, with rows lda
// apart; b is [k, n], or [n, k] where trans_b, with rows ldb apart; c has rows ldc apart. Where beta is 0, c is not
// read. Products of bf16 are summed in float; alpha then scales the sum, and c is rounded once.
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const bf16* a,
          std::int64_t lda, const bf16* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const bf16* a,
          std::int64_t lda, const bf16* b, std::int64_t ldb, float beta, bf16* c, std::int64_t ldc);

// The right-hand factor, laid out once for many products (a recurrent weight, the keys of an attention head).
// Bytes of memory, 64-byte aligned, that pack_b fills for op(b)[k, n].
template <class T>
std::int64_t packed_b_bytes(std::int64_t k, std::int64_t n);
template <class T>
void pack_b(bool trans_b, std::int64_t k, std::int64_t n, const T* b, std::int64_t ldb, void* packed);

// gemm with op(b) given by pack_b for the same k and n; the bits are those of gemm.
template <class T>
void gemm_packed(bool trans_a, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const T* a,
                 std::int64_t lda, const void* packed_b, float beta, float* c, std::int64_t ldc);

}  // namespace overtake::kernels
