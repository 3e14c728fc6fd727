#pragma once
// How the elements of a tensor lie in memory: plain, permuted (channels-last), blocked the way oneDNN blocks weights,
// or with gaps between rows.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace overtake {

// Memory is a nest of loops: first every dimension in `order`, outermost first, counted in whole blocks; inside that
// the inner blocks, outermost first. A dimension with inner blocks is padded up to a multiple of the product of its
// blocks. Example: order (0, 1, 2, 3) with one block (dimension 1, size 16) is oneDNN's aBcd16b, "nChw16c". Entries of
// the arrays beyond `rank` and `blocks` are zero, so that equal layouts compare equal.
// A layout without blocks may have a pitch: rows of the innermost dimension start so many elements apart, and what is
// between them belongs to somebody else. 0: one row follows the other.
struct Layout {
  std::uint8_t rank = 0;
  std::array<std::uint8_t, 6> order{};
  std::uint8_t blocks = 0;
  std::array<std::uint8_t, 3> block_dim{};
  std::array<std::uint16_t, 3> block_size{};
  std::int64_t pitch = 0;

  bool operator==(const Layout&) const = default;
};

inline constexpr int kMaxLayoutRank = 6;

// Row-major, "abcd" for rank 4. rank is 0 to kMaxLayoutRank.
Layout plain_layout(int rank);

// Logical N,C,H,W stored as N,H,W,C: "acdb".
Layout channels_last_layout();

// Row-major without blocks or gaps.
bool is_plain(const Layout& layout);

// The dimensions as allocated, with padding and gaps; entries beyond the rank are 1. dims has layout.rank entries.
std::array<std::int64_t, kMaxLayoutRank> padded_dims(const Layout& layout, std::span<const std::int64_t> dims);

// Elements from the first to the last of a tensor of these logical dimensions, padding and gaps included.
std::int64_t padded_elements(const Layout& layout, std::span<const std::int64_t> dims);

// Where the element at the logical index lies, in elements from the start. index[d] < padded_dims(layout, dims)[d].
std::int64_t offset_of(const Layout& layout, std::span<const std::int64_t> dims, std::span<const std::int64_t> index);

// The same places in memory for these dimensions, written one way only: a dimension of a single outer block can stand
// anywhere in the order, so it is put where it makes the order as plain as possible. Equal placements compare equal.
Layout canonical_layout(const Layout& layout, std::span<const std::int64_t> dims);

// oneDNN's tag: a letter per dimension, outermost first, upper case if the dimension has inner blocks, then the inner
// blocks as size and letter, then the pitch: "abcd", "acdb", "ABcd16b16a", "acdb/256". Rank 0 gives "".
std::string to_string(const Layout& layout);

// The inverse of to_string; UserError if the text is no such tag.
Layout layout_from_string(std::string_view text);

}  // namespace overtake
