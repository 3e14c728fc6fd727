#include "rewrite/strided_view.h"

#include <algorithm>
#include <numeric>

namespace overtake {
namespace {

using Axis = StridedView::Axis;

std::vector<std::int64_t> list_of(const Shape& shape) { return {shape.span().begin(), shape.span().end()}; }

// Indices of these axes by falling stride: the order in which they lie in memory. Empty axes (extent 1) come last.
std::vector<std::size_t> by_stride(const std::vector<Axis>& axes) {
  std::vector<std::size_t> at(axes.size());
  std::iota(at.begin(), at.end(), std::size_t{0});
  std::ranges::stable_sort(at, [&](std::size_t a, std::size_t b) { return axes[a].stride > axes[b].stride; });
  return at;
}

// The dimensions of a row-major tensor as one axis each.
std::vector<Axis> axes_of(const Shape& shape) {
  std::vector<Axis> axes(shape.rank);
  std::int64_t stride = 1;
  for (std::size_t i = shape.rank; i-- > 0; stride *= shape[i]) axes[i] = {shape[i], shape[i] == 1 ? 0 : stride};
  return axes;
}

// One transpose alone: every dimension of `to` is one of `from`.
std::optional<std::vector<std::int64_t>> order_between(const StridedView& view, const Shape& from, const Shape& to) {
  if (from.rank != to.rank) return std::nullopt;
  const std::vector<Axis> old = axes_of(from);
  std::vector<char> taken(old.size(), 0);
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < view.dims.size(); ++i) {
    if (view.dims[i].size() > 1) return std::nullopt;
    const Axis wanted = view.dims[i].empty() ? Axis{} : view.dims[i][0];
    std::size_t j = 0;
    while (j < old.size() && (taken[j] || old[j] != wanted)) ++j;
    if (j == old.size()) return std::nullopt;
    taken[j] = 1;
    order.push_back(static_cast<std::int64_t>(j));
  }
  return order;
}

// A transpose of `from` as it is, and then a reshape: every joined axis of the view is a run of its dimensions.
std::optional<std::vector<std::int64_t>> order_of_dims(const std::vector<Axis>& joined, const Shape& from) {
  const std::vector<Axis> old = axes_of(from);
  std::vector<std::int64_t> order;
  for (std::size_t j = 0; j < old.size(); ++j)
    if (old[j].extent == 1) order.push_back(static_cast<std::int64_t>(j));
  for (const Axis& axis : joined) {
    std::int64_t extent = 1;
    for (std::size_t j = 0; j < old.size(); ++j) {
      if (old[j].extent == 1 || old[j].stride < axis.stride || old[j].stride >= axis.stride * axis.extent) continue;
      order.push_back(static_cast<std::int64_t>(j));
      extent *= old[j].extent;
    }
    if (extent != axis.extent) return std::nullopt;
  }
  return order;
}

// A reshape of `from` to these axes as they lie in memory, a transpose, and a reshape to `to`; the reshapes only where
// they change something.
std::optional<std::vector<Move>> moves_through(const std::vector<Axis>& axes, const Shape& from, const Shape& to) {
  if (axes.size() > Shape::kMaxRank) return std::nullopt;
  const std::vector<std::size_t> in_memory = by_stride(axes);
  std::vector<std::int64_t> before, after, order(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    before.push_back(axes[in_memory[i]].extent);
    after.push_back(axes[i].extent);
    order[in_memory[i]] = static_cast<std::int64_t>(i);
  }
  std::vector<Move> moves;
  if (before != list_of(from)) moves.push_back({Op::reshape, before});
  moves.push_back({Op::transpose, order});
  if (after != list_of(to)) moves.push_back({Op::reshape, list_of(to)});
  return moves;
}

}  // namespace

StridedView::StridedView(const Shape& shape) {
  for (const Axis& axis : axes_of(shape))
    dims.push_back(axis.extent == 1 ? std::vector<Axis>{} : std::vector<Axis>{axis});
}

void StridedView::transpose(std::span<const std::int64_t> order) {
  std::vector<std::vector<Axis>> moved;
  for (const std::int64_t i : order) moved.push_back(dims[static_cast<std::size_t>(i)]);
  dims = std::move(moved);
}

void StridedView::swap_last_two() { std::swap(dims[dims.size() - 1], dims[dims.size() - 2]); }

std::vector<Axis> StridedView::joined_axes() const {
  std::vector<Axis> all;
  for (const std::vector<Axis>& dim : dims) {
    for (const Axis& axis : dim) {
      if (!all.empty() && all.back().stride == axis.extent * axis.stride)
        all.back() = {all.back().extent * axis.extent, axis.stride};
      else
        all.push_back(axis);
    }
  }
  return all;
}

// From the innermost dimension outwards: each takes whole axes, or the inner part of one, which is thereby split.
bool StridedView::reshape(const Shape& shape) {
  std::vector<Axis> rest = joined_axes();
  std::vector<std::vector<Axis>> made(shape.rank);
  for (std::size_t i = shape.rank; i-- > 0;) {
    for (std::int64_t open = shape[i]; open > 1;) {
      if (rest.empty()) return false;
      Axis& inner = rest.back();
      const std::int64_t part = std::gcd(open, inner.extent);
      if (part != open && part != inner.extent) return false;
      made[i].insert(made[i].begin(), {part, inner.stride});
      open /= part;
      inner = {inner.extent / part, inner.stride * part};
      if (inner.extent == 1) rest.pop_back();
    }
  }
  if (!rest.empty()) return false;
  dims = std::move(made);
  return true;
}

bool StridedView::slice(std::size_t axis, std::int64_t begin, std::int64_t end) {
  std::vector<Axis>& dim = dims[axis];
  if (dim.empty()) return true;  // of extent 1: all of it
  std::int64_t inner = 1;
  for (std::size_t i = 1; i < dim.size(); ++i) inner *= dim[i].extent;
  if (begin % inner != 0 || end % inner != 0) return false;
  offset += begin / inner * dim[0].stride;
  dim[0].extent = (end - begin) / inner;
  if (dim[0].extent == 1) dim.erase(dim.begin());
  return true;
}

std::optional<std::vector<Move>> shortest_moves(const StridedView& view, const Shape& from, const Shape& to) {
  const std::vector<Axis> joined = view.joined_axes();
  if (joined.size() <= 1) return from == to ? std::vector<Move>{} : std::vector<Move>{{Op::reshape, list_of(to)}};
  if (const auto order = order_between(view, from, to)) return std::vector<Move>{{Op::transpose, *order}};
  if (const auto order = order_of_dims(joined, from))
    return std::vector<Move>{{Op::transpose, *order}, {Op::reshape, list_of(to)}};
  const bool is_one_each = std::ranges::all_of(view.dims, [](const auto& dim) { return dim.size() <= 1; });
  if (is_one_each) {
    std::vector<Axis> axes;
    for (const std::vector<Axis>& dim : view.dims) axes.push_back(dim.empty() ? Axis{} : dim[0]);
    return moves_through(axes, from, to);
  }
  return moves_through(joined, from, to);
}

}  // namespace overtake
