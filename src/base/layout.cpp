#include "overtake/layout.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/error.h"

namespace overtake {
namespace {

using Dims = std::array<std::int64_t, kMaxLayoutRank>;

// For each dimension, the product of its inner blocks (1 if it has none).
Dims block_products(const Layout& layout) {
  Dims products;
  products.fill(1);
  for (std::size_t b = 0; b < layout.blocks; ++b) products[layout.block_dim[b]] *= layout.block_size[b];
  return products;
}

[[noreturn]] void fail_tag(std::string_view text, const char* what) {
  fail_user("layout: {}: \"{}\"; write a tag such as abcd, acdb, ABcd16b16a or acdb/256", what, text);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads one "16b" from the front of rest; `text` is the whole tag.
void parse_block(std::string_view text, std::string_view& rest, Layout& layout) {
  if (layout.blocks == layout.block_dim.size()) fail_tag(text, "more than three inner blocks");
  int size = 0;
  while (!rest.empty() && is_digit(rest.front())) {
    size = size * 10 + (rest.front() - '0');
    if (size > 65535) fail_tag(text, "block size above 65535");
    rest.remove_prefix(1);
  }
  if (size < 2) fail_tag(text, "block size below 2");
  if (rest.empty() || rest.front() < 'a' || rest.front() >= 'a' + layout.rank) {
    fail_tag(text, "a block size is not followed by the letter of a dimension");
  }
  layout.block_dim[layout.blocks] = static_cast<std::uint8_t>(rest.front() - 'a');
  layout.block_size[layout.blocks] = static_cast<std::uint16_t>(size);
  ++layout.blocks;
  rest.remove_prefix(1);
}

// Reads what follows the "/".
void parse_pitch(std::string_view text, std::string_view rest, Layout& layout) {
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layout.pitch);
  if (error != std::errc() || end != rest.data() + rest.size() || layout.pitch < 1)
    fail_tag(text, "a pitch that is no whole number above 0");
  if (layout.blocks != 0 || layout.rank == 0) fail_tag(text, "a pitch beside inner blocks or without dimensions");
}

}  // namespace

Layout plain_layout(int rank) {
  OVERTAKE_CHECK(rank >= 0 && rank <= kMaxLayoutRank, "rank {}", rank);
  Layout layout;
  layout.rank = static_cast<std::uint8_t>(rank);
  for (std::uint8_t d = 0; d < layout.rank; ++d) layout.order[d] = d;
  return layout;
}

Layout channels_last_layout() {
  Layout layout;
  layout.rank = 4;
  layout.order = {0, 2, 3, 1, 0, 0};
  return layout;
}

bool is_plain(const Layout& layout) { return layout == plain_layout(layout.rank); }

Dims padded_dims(const Layout& layout, std::span<const std::int64_t> dims) {
  OVERTAKE_CHECK(dims.size() == layout.rank, "{} dimensions for layout {}", dims.size(), to_string(layout));
  Dims padded = block_products(layout);
  for (std::size_t d = 0; d < dims.size(); ++d) padded[d] *= (dims[d] + padded[d] - 1) / padded[d];
  if (layout.pitch != 0) {
    std::int64_t& row = padded[layout.order[layout.rank - 1u]];
    OVERTAKE_CHECK(layout.blocks == 0 && layout.pitch >= row, "rows of {} with layout {}", row, to_string(layout));
    row = layout.pitch;
  }
  return padded;
}

std::int64_t padded_elements(const Layout& layout, std::span<const std::int64_t> dims) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : padded_dims(layout, dims)) elements *= dim;
  // Nothing of ours follows the last row.
  if (layout.pitch != 0 && elements != 0) elements -= layout.pitch - dims[layout.order[layout.rank - 1u]];
  return elements;
}

std::int64_t offset_of(const Layout& layout, std::span<const std::int64_t> dims, std::span<const std::int64_t> index) {
  OVERTAKE_CHECK(index.size() == layout.rank, "{} indices for layout {}", index.size(), to_string(layout));
  const Dims padded = padded_dims(layout, dims);
  Dims extent = padded;  // what is left of each dimension once its inner blocks are taken off
  Dims position{};
  for (std::size_t d = 0; d < index.size(); ++d) position[d] = index[d];

  std::int64_t offset = 0, stride = 1;
  for (std::size_t b = layout.blocks; b-- > 0;) {
    const std::size_t d = layout.block_dim[b];
    const std::int64_t size = layout.block_size[b];
    offset += position[d] % size * stride;
    position[d] /= size;
    extent[d] /= size;
    stride *= size;
  }
  for (std::size_t i = layout.rank; i-- > 0;) {
    const std::size_t d = layout.order[i];
    offset += position[d] * stride;
    stride *= extent[d];
  }
  return offset;
}

Layout canonical_layout(const Layout& layout, std::span<const std::int64_t> dims) {
  if (layout.pitch != 0) return layout;
  const Dims padded = padded_dims(layout, dims);
  const Dims products = block_products(layout);
  const auto is_single = [&](std::size_t d) { return padded[d] == products[d]; };

  std::vector<std::uint8_t> order;
  for (std::size_t i = 0; i < layout.rank; ++i) {
    if (!is_single(layout.order[i])) order.push_back(layout.order[i]);
  }
  for (std::uint8_t d = 0; d < layout.rank; ++d) {
    if (!is_single(d)) continue;
    order.insert(std::find_if(order.begin(), order.end(), [d](std::uint8_t other) { return other > d; }), d);
  }
  Layout canonical = layout;
  std::copy(order.begin(), order.end(), canonical.order.begin());
  return canonical;
}

std::string to_string(const Layout& layout) {
  const Dims products = block_products(layout);
  std::string text;
  for (std::size_t i = 0; i < layout.rank; ++i) {
    const char first = products[layout.order[i]] > 1 ? 'A' : 'a';
    text += static_cast<char>(first + layout.order[i]);
  }
  for (std::size_t b = 0; b < layout.blocks; ++b) {
    text += fmt::format("{}{}", layout.block_size[b], static_cast<char>('a' + layout.block_dim[b]));
  }
  if (layout.pitch != 0) text += fmt::format("/{}", layout.pitch);
  return text;
}

Layout layout_from_string(std::string_view text) {
  Layout layout;
  std::string_view rest = text;
  unsigned seen = 0;   // bit d: dimension d has been named
  unsigned upper = 0;  // bit d: dimension d was named in upper case
  while (!rest.empty() && !is_digit(rest.front()) && rest.front() != '/') {
    const char c = rest.front();
    const bool is_upper = c >= 'A' && c < 'A' + kMaxLayoutRank;
    const bool is_lower = c >= 'a' && c < 'a' + kMaxLayoutRank;
    if (!is_upper && !is_lower) fail_tag(text, "a character that names no dimension");
    const unsigned d = static_cast<unsigned>(c - (is_upper ? 'A' : 'a'));
    if ((seen >> d & 1u) != 0) fail_tag(text, "a dimension named twice");
    seen |= 1u << d;
    if (is_upper) upper |= 1u << d;
    layout.order[layout.rank++] = static_cast<std::uint8_t>(d);
    rest.remove_prefix(1);
  }
  if (seen != (1u << layout.rank) - 1u) fail_tag(text, "a dimension left out");
  while (!rest.empty() && rest.front() != '/') parse_block(text, rest, layout);
  if (!rest.empty()) parse_pitch(text, rest.substr(1), layout);

  unsigned blocked = 0;
  for (std::size_t b = 0; b < layout.blocks; ++b) blocked |= 1u << layout.block_dim[b];
  if (blocked != upper) fail_tag(text, "upper case does not match the inner blocks");
  return layout;
}

}  // namespace overtake
