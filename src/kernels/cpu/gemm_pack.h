#pragma once
// How gemm lays out its operands: as words of 32 bits, a float or a pair of bf16 neighbours along k, in panels a tile's
// innermost loop walks through without gaps. Internal to gemm.

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels::gemm_detail {

inline constexpr std::int64_t kPanel = 32;    // columns of b in one panel
inline constexpr std::int64_t kDepth = 256;   // words of k in one block; fixes where the sums over k are cut
inline constexpr std::int64_t kMaxRows = 14;  // rows of a in one tile

// Whether the machine multiplies pairs of bf16; otherwise bf16 becomes float when packed.
#ifdef __AVX512BF16__
inline constexpr bool kBf16Pairs = true;
#else
inline constexpr bool kBf16Pairs = false;
#endif

// Elements of k in one word.
template <class T>
inline constexpr std::int64_t kElementsPerWord = 1;
template <>
inline constexpr std::int64_t kElementsPerWord<bf16> = kBf16Pairs ? 2 : 1;

using Word = std::uint32_t;

// Packs lanes [begin, end) of the `total` lanes of a matrix, over k elements each, to out[words of k][stride]. Lane l
// is src[l * ld + ...] where `along_k`, else src[... * ld + l]. The missing half of an odd last pair becomes zero.
// Lanes are written 16 at a time: what lies behind the last lane, up to 16 words behind the end of `out`, takes any
// value.
template <class T>
void pack_lanes(bool along_k, const T* src, std::int64_t ld, std::int64_t total, std::int64_t begin, std::int64_t end,
                std::int64_t k, Word* out, std::int64_t stride);

// Packs lanes [begin, end) like pack_lanes with along_k false, to panels of kPanel lanes each: panel i is
// out + i * words of k * kPanel. Walks each row of k once, so that its cache lines are read once whatever ld is.
template <class T>
void pack_panels(const T* src, std::int64_t ld, std::int64_t total, std::int64_t begin, std::int64_t end,
                 std::int64_t k, Word* out);

}  // namespace overtake::kernels::gemm_detail
