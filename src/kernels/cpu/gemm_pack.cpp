#include "kernels/cpu/gemm_pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

// Vectors wider than the machine's are passed in memory, which is not the ABI of a wider machine. They never leave this
// file.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace overtake::kernels::gemm_detail {
namespace {

constexpr std::int64_t kLanes = 16;
using Words = Word __attribute__((vector_size(kLanes * sizeof(Word))));
using HalfWords = std::uint16_t __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));

Words load(const void* from) {
  Words w;
  std::memcpy(&w, from, sizeof w);
  return w;
}

void store(Words w, Word* to) { std::memcpy(to, &w, sizeof w); }

HalfWords load_half(const void* from) {
  HalfWords h;
  std::memcpy(&h, from, sizeof h);
  return h;
}

// 16 words along k of one lane, from 16 (or 32) elements.
template <class T>
Words words_along_k(const T* src) {
  if constexpr (sizeof(T) == sizeof(Word) || kBf16Pairs) {
    return load(src);
  } else {
    return __builtin_convertvector(load_half(src), Words) << 16;
  }
}

// One word of 16 lanes, from one row of k (or two; `second` null: zeros).
template <class T>
Words words_across(const T* first, const T* second) {
  if constexpr (sizeof(T) == sizeof(Word)) {
    return load(first);
  } else {
    const Words low = __builtin_convertvector(load_half(first), Words);
    if constexpr (!kBf16Pairs) return low << 16;
    const Words high = second != nullptr ? __builtin_convertvector(load_half(second), Words) : Words{};
    return low | (high << 16);
  }
}

// Four rounds of interleaving the first half of the rows with the second transpose a 16 x 16 block.
void transpose(Words (&rows)[kLanes]) {
  Words next[kLanes];
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      next[2 * i] =
          __builtin_shufflevector(rows[i], rows[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] =
          __builtin_shufflevector(rows[i], rows[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = next[i];
  }
}

// Up to 16 lanes, each contiguous along k. The last lane stands in for those that are missing.
template <class T>
void pack_along_k(const T* src, std::int64_t ld, std::int64_t lanes, std::int64_t k, Word* out, std::int64_t stride) {
  constexpr std::int64_t block = kLanes * kElementsPerWord<T>;
  const T* lane[kLanes];
  for (std::int64_t l = 0; l < kLanes; ++l) lane[l] = src + std::min(l, lanes - 1) * ld;
  Words rows[kLanes];
  std::int64_t p = 0;
  for (; p + block <= k; p += block, out += kLanes * stride) {
#pragma GCC unroll 16
    for (std::int64_t l = 0; l < kLanes; ++l) rows[l] = words_along_k(lane[l] + p);
    transpose(rows);
#pragma GCC unroll 16
    for (std::int64_t w = 0; w < kLanes; ++w) store(rows[w], out + w * stride);
  }
  if (p == k) return;
  for (std::int64_t l = 0; l < kLanes; ++l) {
    T tail[static_cast<std::size_t>(block)] = {};
    std::copy_n(lane[l] + p, k - p, tail);
    rows[l] = words_along_k(tail);
  }
  transpose(rows);
  const std::int64_t words = (k - p + kElementsPerWord<T> - 1) / kElementsPerWord<T>;
  for (std::int64_t w = 0; w < words; ++w) store(rows[w], out + w * stride);
}

// 16 lanes from `src` on, contiguous across each row of k, all readable. Lane l of the result is lane l + shift.
template <class T>
void pack_across(const T* src, std::int64_t ld, std::int64_t shift, std::int64_t k, Word* out, std::int64_t stride) {
  Words from = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  from += static_cast<Word>(shift);
  for (std::int64_t p = 0; p < k; p += kElementsPerWord<T>, out += stride, src += kElementsPerWord<T> * ld) {
    const Words words = words_across(src, p + 1 < k ? src + ld : nullptr);
    store(shift == 0 ? words : __builtin_shuffle(words, from), out);
  }
}

// The same for a matrix of fewer than 16 lanes.
template <class T>
void pack_narrow(const T* src, std::int64_t ld, std::int64_t lanes, std::int64_t k, Word* out, std::int64_t stride) {
  for (std::int64_t p = 0; p < k; p += kElementsPerWord<T>, out += stride, src += kElementsPerWord<T> * ld) {
    T rows[2][kLanes] = {};
    std::copy_n(src, lanes, rows[0]);
    if (kElementsPerWord<T> == 2 && p + 1 < k) std::copy_n(src + ld, lanes, rows[1]);
    store(words_across<T>(rows[0], rows[1]), out);
  }
}

}  // namespace

template <class T>
void pack_lanes(bool along_k, const T* src, std::int64_t ld, std::int64_t total, std::int64_t begin, std::int64_t end,
                std::int64_t k, Word* out, std::int64_t stride) {
  for (std::int64_t l = begin; l < end; l += kLanes, out += kLanes) {
    if (along_k) {
      pack_along_k(src + l * ld, ld, std::min(kLanes, end - l), k, out, stride);
    } else if (total >= kLanes) {
      const std::int64_t start = std::min(l, total - kLanes);  // reads inside the matrix only
      pack_across(src + start, ld, l - start, k, out, stride);
    } else {
      pack_narrow(src + l, ld, end - l, k, out, stride);
    }
  }
}

template <class T>
void pack_panels(const T* src, std::int64_t ld, std::int64_t total, std::int64_t begin, std::int64_t end,
                 std::int64_t k, Word* out) {
  const std::int64_t words = (k + kElementsPerWord<T> - 1) / kElementsPerWord<T>;
  const std::int64_t whole = begin + (end - begin) / kPanel * kPanel;
  for (std::int64_t p = 0; p < words; ++p) {
    const T* first = src + p * kElementsPerWord<T> * ld;
    const T* second = p * kElementsPerWord<T> + 1 < k ? first + ld : nullptr;
    Word* to = out + p * kPanel;
    for (std::int64_t l = begin; l < whole; l += kPanel, to += words * kPanel) {
      store(words_across(first + l, second != nullptr ? second + l : nullptr), to);
      store(words_across(first + l + kLanes, second != nullptr ? second + l + kLanes : nullptr), to + kLanes);
    }
  }
  if (whole < end) pack_lanes(false, src, ld, total, whole, end, k, out + (whole - begin) * words, kPanel);
}

template void pack_lanes<float>(bool, const float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                std::int64_t, Word*, std::int64_t);
template void pack_lanes<bf16>(bool, const bf16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                               Word*, std::int64_t);

template void pack_panels<float>(const float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                 Word*);
template void pack_panels<bf16>(const bf16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                Word*);

}  // namespace overtake::kernels::gemm_detail
