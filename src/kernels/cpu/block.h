#pragma once
// Elementwise kernels work on blocks of a flat array: block i is elements [1024 i, min(1024 (i + 1), count)). Ranges
// are in blocks, so where an element lies in its vector loop, and with it its bits, never depends on how the work is
// split.

#include <algorithm>
#include <cstdint>

namespace overtake::kernels {

inline constexpr std::int64_t kBlock = 1024;

// Number of parts of at most `part` elements in `count` elements.
constexpr std::int64_t parts_of(std::int64_t count, std::int64_t part) { return (count + part - 1) / part; }

// Number of blocks in `count` elements: the unit count of every elementwise kernel.
constexpr std::int64_t blocks_of(std::int64_t count) { return parts_of(count, kBlock); }

// Calls body(first element, number of elements) for each block in [block_begin, block_end).
template <class Body>
inline void for_each_block(std::int64_t count, std::int64_t block_begin, std::int64_t block_end, const Body& body) {
  for (std::int64_t block = block_begin; block < block_end; ++block) {
    const std::int64_t first = block * kBlock;
    body(first, std::min(kBlock, count - first));
  }
}

}  // namespace overtake::kernels
