#include "kernels/cpu/reorder.h"

#include <algorithm>
#include <array>

#include "base/bf16.h"
#include "base/error.h"
#include "kernels/cpu/onednn.h"

namespace overtake::kernels {
namespace {

using Table = std::vector<std::int64_t>;

// The place of an element is a sum of one term per dimension; this is the term of dimension d for each of its indices.
Table offsets_along(const Layout& layout, std::span<const std::int64_t> dims, std::size_t d, std::int64_t count) {
  Table table(static_cast<std::size_t>(count));
  std::array<std::int64_t, kMaxLayoutRank> index{};
  for (std::int64_t i = 0; i < count; ++i) {
    index[d] = i;
    table[static_cast<std::size_t>(i)] = offset_of(layout, dims, std::span(index).first(layout.rank));
  }
  return table;
}

// One dimension of the walk over the destination. Indices from `size` on are padding.
struct Axis {
  std::int64_t size, begin, end;
  Table from, to;  // offsets, by index; `from` only below `size`
};

template <class From, class To>
void walk(const From* from, To* to, std::span<const Axis> axes, bool in_padding) {
  const Axis& axis = axes.front();
  if (axes.size() == 1) {
    const std::int64_t data_end = in_padding ? axis.begin : std::min(axis.size, axis.end);
    const std::int64_t* from_at = axis.from.data();
    const std::int64_t* to_at = axis.to.data();
    for (std::int64_t i = axis.begin; i < data_end; ++i) to[to_at[i]] = from_float<To>(to_float(from[from_at[i]]));
    for (std::int64_t i = data_end; i < axis.end; ++i) to[to_at[i]] = from_float<To>(0.0f);
    return;
  }
  for (std::int64_t i = axis.begin; i < axis.end; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool padding = in_padding || i >= axis.size;
    walk(padding ? from : from + axis.from[at], to + axis.to[at], axes.subspan(1), padding);
  }
}

// Dimensions in the order of the destination's memory, the one with the innermost elements last.
std::vector<std::size_t> walk_order(const Layout& layout) {
  std::vector<std::size_t> order(layout.order.begin(), layout.order.begin() + layout.rank);
  if (layout.blocks > 0) {
    const auto innermost = std::find(order.begin(), order.end(), layout.block_dim[layout.blocks - 1]);
    std::rotate(innermost, innermost + 1, order.end());
  }
  return order;
}

// to[j][i] = from[i][j] for from: [rows][columns], in tiles that stay in the first-level cache.
template <class From, class To>
void transpose(const From* __restrict from, To* __restrict to, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t tile = 32;
  for (std::int64_t i0 = 0; i0 < rows; i0 += tile) {
    const std::int64_t i1 = std::min(i0 + tile, rows);
    for (std::int64_t j0 = 0; j0 < columns; j0 += tile) {
      const std::int64_t j1 = std::min(j0 + tile, columns);
      for (std::int64_t j = j0; j < j1; ++j) {
        for (std::int64_t i = i0; i < i1; ++i) to[j * rows + i] = from_float<To>(to_float(from[i * columns + j]));
      }
    }
  }
}

// The size of the outer blocks of the outermost destination dimension.
std::int64_t unit_size(const Layout& layout) {
  std::int64_t size = 1;
  for (std::size_t b = 0; b < layout.blocks; ++b) {
    if (layout.block_dim[b] == layout.order[0]) size *= layout.block_size[b];
  }
  return size;
}

}  // namespace

std::int64_t reorder_units(const Layout& to_layout, std::span<const std::int64_t> dims) {
  if (to_layout.rank == 0) return 1;
  return padded_dims(to_layout, dims)[to_layout.order[0]] / unit_size(to_layout);
}

template <class From, class To>
void reorder(const From* from, const Layout& from_layout, To* to, const Layout& to_layout,
             std::span<const std::int64_t> dims, std::int64_t begin, std::int64_t end) {
  OVERTAKE_CHECK(from_layout.rank == to_layout.rank, "reorder from {} to {}", to_string(from_layout),
                 to_string(to_layout));
  if (begin >= end) return;
  const bool both_unblocked = from_layout.blocks == 0 && to_layout.blocks == 0;
  if (both_unblocked && from_layout == to_layout && to_layout.pitch == 0) {  // also rank 0
    const std::int64_t unit = padded_elements(to_layout, dims) / reorder_units(to_layout, dims);
    for (std::int64_t i = begin * unit; i < end * unit; ++i) to[i] = from_float<To>(to_float(from[i]));
    return;
  }
  const bool to_last = is_plain(from_layout) && to_layout == channels_last_layout();
  const bool from_last = from_layout == channels_last_layout() && is_plain(to_layout);
  if (to_last || from_last) {
    const std::int64_t channels = dims[1], pixels = dims[2] * dims[3];
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t image = n * channels * pixels;
      transpose(from + image, to + image, to_last ? channels : pixels, to_last ? pixels : channels);
    }
    return;
  }

  const auto padded = padded_dims(to_layout, dims);
  std::vector<Axis> axes;
  for (const std::size_t d : walk_order(to_layout)) {
    const std::int64_t written = to_layout.pitch != 0 ? dims[d] : padded[d];  // gaps are not ours
    axes.push_back({dims[d], 0, written, offsets_along(from_layout, dims, d, dims[d]),
                    offsets_along(to_layout, dims, d, written)});
    if (d == to_layout.order[0]) {
      axes.back().begin = begin * unit_size(to_layout);
      axes.back().end = end * unit_size(to_layout);
    }
  }
  walk(from, to, std::span<const Axis>(axes), false);
}

template void reorder(const float*, const Layout&, float*, const Layout&, std::span<const std::int64_t>, std::int64_t,
                      std::int64_t);
template void reorder(const float*, const Layout&, bf16*, const Layout&, std::span<const std::int64_t>, std::int64_t,
                      std::int64_t);
template void reorder(const bf16*, const Layout&, float*, const Layout&, std::span<const std::int64_t>, std::int64_t,
                      std::int64_t);
template void reorder(const bf16*, const Layout&, bf16*, const Layout&, std::span<const std::int64_t>, std::int64_t,
                      std::int64_t);

struct WeightReorder::Impl {
  dnnl::memory::desc from, to;
  OneDnnPrimitive primitive;
};

WeightReorder::WeightReorder(const Layout& from, bool from_bf16, const Layout& to, bool to_bf16,
                             std::span<const std::int64_t> dims) {
  require_one_openmp_thread();
  const dnnl::memory::desc source = to_onednn(from, dims, from_bf16), destination = to_onednn(to, dims, to_bf16);
  try {
    const dnnl::reorder::primitive_desc description(onednn_engine(), source, onednn_engine(), destination,
                                                    caller_scratch());
    impl_ = std::make_unique<const Impl>(Impl{source, destination, OneDnnPrimitive::make<dnnl::reorder>(description)});
  } catch (const dnnl::error& error) {
    throw InternalError(
        fmt::format("reorder: oneDNN cannot do {} to {}: {}", to_string(from), to_string(to), error.what()));
  }
}

WeightReorder::~WeightReorder() = default;
WeightReorder::WeightReorder(WeightReorder&&) noexcept = default;
WeightReorder& WeightReorder::operator=(WeightReorder&&) noexcept = default;
std::size_t WeightReorder::scratch_bytes() const { return impl_->primitive.scratch_bytes(); }
const std::string& WeightReorder::implementation() const { return impl_->primitive.implementation(); }

void WeightReorder::run(const void* from, void* to, void* scratch) const {
  impl_->primitive.run({{DNNL_ARG_FROM, impl_->from, from}, {DNNL_ARG_TO, impl_->to, to}}, scratch);
}

}  // namespace overtake::kernels
