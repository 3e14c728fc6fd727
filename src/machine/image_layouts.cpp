#include "machine/image_layouts.h"

#include <algorithm>

namespace overtake {
namespace {

// A broadcast operand [C, H, W] lies in memory as a channels-last image only if it stretches over channels or pixels.
bool fits_channels_last(const Graph& g, const Task& task) {
  return std::ranges::all_of(g.reads(task), [&](BufferId b) {
    const Shape& s = g.buffers[b].shape;
    return s.rank != 3 || s[0] == 1 || (s[1] == 1 && s[2] == 1);
  });
}

// What is left of a channels-last image without these axes is in the order of its logical dimensions, which a tensor
// that is no image lies in: the channels are gone, or the pixels are.
bool reduce_keeps_order(const Attrs& reduce) {
  const std::vector<std::int64_t>& axes = reduce.integers("axes");
  const auto has = [&](std::int64_t axis) { return std::ranges::find(axes, axis) != axes.end(); };
  return has(1) || (has(2) && has(3));
}

}  // namespace

ImageLayout channels_last_where_possible(const Graph& g, const Task& task) {
  switch (task.op) {
    case Op::conv2d:
    case Op::batch_norm:
    case Op::group_norm:
    case Op::max_pool:
    case Op::avg_pool:
    case Op::global_pool:
    case Op::adaptive_pool:
      return ImageLayout::channels_last;
    case Op::add:
    case Op::mul:
    case Op::chain:
      return fits_channels_last(g, task) ? ImageLayout::follow : ImageLayout::plain;
    case Op::expand:
      return g.buffers[g.writes(task)[0]].shape.rank == 4 ? ImageLayout::follow : ImageLayout::plain;
    case Op::reduce:
      return reduce_keeps_order(g.attrs_of(task)) ? ImageLayout::follow : ImageLayout::plain;
    case Op::activation:
    case Op::concat:
    case Op::slice:
    case Op::softmax:
    case Op::dropout:
    case Op::stop_gradient:
    case Op::sum:
      return ImageLayout::follow;
    default:
      return ImageLayout::plain;
  }
}

}  // namespace overtake
