// Ops that move elements to other places: cut, join, repeat, turn, surround.

#include <algorithm>
#include <numeric>

#include "models/onnx/fold.h"

namespace overtake::onnx {
namespace {

// The elements that a walk over `dims` finds in `source`.
Constant collect(const FoldCall& call, const Constant& source, Dims dims, Walk walk) {
  Constant result = call.make(source.kind, std::move(dims));
  gather_values(result, source, [&](std::size_t) {
    const std::size_t at = walk.at();
    walk.next();
    return at;
  });
  return result;
}

std::vector<Constant> fold_transpose(const FoldCall& call) {
  const Constant& input = call.input(0);
  const std::size_t rank = input.dims.size();
  std::vector<std::int64_t> reversed(rank);
  std::iota(reversed.rbegin(), reversed.rend(), std::int64_t{0});
  const std::vector<std::size_t> order = call.axes(call.node.integers("perm", reversed), rank);
  if (order.size() != rank) call.fail("perm names {} of {} dimensions", order.size(), rank);
  const Dims own = strides_of(input.dims);
  Dims dims, strides;
  for (const std::size_t axis : order) {
    dims.push_back(input.dims[axis]);
    strides.push_back(own[axis]);
  }
  return only(collect(call, input, dims, Walk(dims, std::move(strides))));
}

std::vector<Constant> fold_expand(const FoldCall& call) {
  const Constant& input = call.input(0);
  const std::optional<Dims> dims = broadcast(input.dims, call.integers(1));
  if (!dims) call.fail("shape {} does not fit {}", shape_text(input.dims), shape_text(call.integers(1)));
  return only(collect(call, input, *dims, broadcast_walk(input.dims, *dims)));
}

// [a, b] repeated (r, s) times is [r, a, s, b] read as [r * a, s * b].
std::vector<Constant> fold_tile(const FoldCall& call) {
  const Constant& input = call.input(0);
  const std::vector<std::int64_t>& repeats = call.integers(1);
  if (repeats.size() != input.dims.size()) {
    call.fail("{} repeats for {} dimensions", repeats.size(), input.dims.size());
  }
  const Dims own = strides_of(input.dims);
  Dims dims, split_dims, strides;
  for (std::size_t d = 0; d < repeats.size(); ++d) {
    if (repeats[d] < 0 || repeats[d] > kMostDim) call.fail("{} repeats", repeats[d]);
    dims.push_back(repeats[d] * input.dims[d]);
    split_dims.insert(split_dims.end(), {repeats[d], input.dims[d]});
    strides.insert(strides.end(), {0, own[d]});
  }
  return only(collect(call, input, std::move(dims), Walk(std::move(split_dims), std::move(strides))));
}

// Every `step`-th element of a dimension, `count` of them.
struct Cut {
  std::int64_t start = 0, step = 1, count = 0;
};

// Counts from the end where negative, then clamped; a step backwards may end before the first element. A start before
// the first element is the first, also backwards: so ONNX says, other than numpy.
Cut cut_of(std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  if (dim == 0) return {};
  if (start < 0) start += dim;
  if (end < 0) end += dim;
  step = std::clamp(step, -kMostDim, kMostDim);
  if (step > 0) {
    start = std::clamp(start, std::int64_t{0}, dim);
    end = std::clamp(end, std::int64_t{0}, dim);
  } else {
    start = std::clamp(start, std::int64_t{0}, dim - 1);
    end = std::clamp(end, std::int64_t{-1}, dim - 1);
  }
  const std::int64_t way = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
  Cut cut{.start = start, .step = step, .count = std::max(std::int64_t{0}, (way + stride - 1) / stride)};
  if (cut.count < 2) cut.step = 1;  // so that step times stride stays within the tensor
  return cut;
}

Constant cut(const FoldCall& call, const Constant& input, std::span<const Cut> cuts) {
  const Dims own = strides_of(input.dims);
  Dims dims, strides;
  std::int64_t start = 0;
  for (std::size_t d = 0; d < cuts.size(); ++d) {
    dims.push_back(cuts[d].count);
    strides.push_back(cuts[d].step * own[d]);
    start += cuts[d].start * own[d];
  }
  return collect(call, input, dims, Walk(dims, std::move(strides), start));
}

std::vector<Cut> whole_of(const Constant& input) {
  std::vector<Cut> cuts;
  for (const std::int64_t dim : input.dims) cuts.push_back({.start = 0, .step = 1, .count = dim});
  return cuts;
}

std::vector<Constant> fold_slice(const FoldCall& call) {
  const Constant& input = call.input(0);
  const std::vector<std::int64_t>&starts = call.integers(1), &ends = call.integers(2);
  if (starts.size() > input.dims.size()) call.fail("{} starts for {} dimensions", starts.size(), input.dims.size());
  std::vector<std::int64_t> axes(starts.size());
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  if (call.optional_input(3) != nullptr) axes = call.integers(3);
  std::vector<std::int64_t> steps(starts.size(), 1);
  if (call.optional_input(4) != nullptr) steps = call.integers(4);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    call.fail("{} starts, {} ends, {} axes and {} steps", starts.size(), ends.size(), axes.size(), steps.size());
  }
  std::vector<Cut> cuts = whole_of(input);
  const std::vector<std::size_t> places = call.axes(axes, input.dims.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (steps[i] == 0) call.fail("a step is 0");
    cuts[places[i]] = cut_of(input.dims[places[i]], starts[i], ends[i], steps[i]);
  }
  return only(cut(call, input, cuts));
}

// How long the parts are. Where the file does not say: equal, and with num_outputs the last may be shorter.
std::vector<std::int64_t> split_lengths(const FoldCall& call, std::int64_t dim) {
  const std::int64_t parts = std::ssize(call.node.outputs);
  std::optional<std::vector<std::int64_t>> given = call.attribute_or_input("split", 1);
  if (!given) {
    const bool may_be_uneven = call.node.find("num_outputs") != nullptr;
    if (parts == 0 || call.node.integer("num_outputs", parts) != parts || (dim % parts != 0 && !may_be_uneven)) {
      call.fail("{} elements do not split into {} parts", dim, parts);
    }
    given.emplace(static_cast<std::size_t>(parts), (dim + parts - 1) / parts);
    given->back() = dim - (parts - 1) * given->front();
  }
  std::int64_t left = dim;
  for (const std::int64_t length : *given) {
    if (length < 0 || length > left) call.fail("{} elements do not split into these {} parts", dim, parts);
    left -= length;
  }
  if (left != 0 || std::ssize(*given) != parts) call.fail("{} elements do not split into these {} parts", dim, parts);
  return *std::move(given);
}

std::vector<Constant> fold_split(const FoldCall& call) {
  const Constant& input = call.input(0);
  const std::size_t axis = call.axis(call.node.integer("axis", 0), input.dims.size());
  std::vector<Cut> cuts = whole_of(input);
  std::vector<Constant> results;
  std::int64_t start = 0;
  for (const std::int64_t length : split_lengths(call, input.dims[axis])) {
    cuts[axis] = {.start = start, .step = 1, .count = length};
    results.push_back(cut(call, input, cuts));
    start += length;
  }
  return results;
}

std::vector<Constant> fold_concat(const FoldCall& call) {
  const Constant& first = call.input(0);
  if (call.node.find("axis") == nullptr) call.fail("it has no axis");
  const std::size_t axis = call.axis(call.node.integer("axis", 0), first.dims.size());
  Dims dims = first.dims;
  dims[axis] = 0;
  for (std::size_t i = 0; i < call.node.inputs.size(); ++i) {
    const Constant& input = call.input(i);
    Dims others = input.dims;
    if (others.size() == dims.size()) others[axis] = dims[axis];
    if (others != dims || input.kind != first.kind) {
      call.fail("{} of shape {} and {} of shape {} do not join along axis {}", kind_name(first.kind),
                shape_text(first.dims), kind_name(input.kind), shape_text(input.dims), axis);
    }
    dims[axis] += input.dims[axis];
  }
  Constant result = call.make(first.kind, dims);
  const std::int64_t inner = strides_of(dims)[axis], row = inner * dims[axis];
  std::int64_t start = 0;
  for (std::size_t i = 0; i < call.node.inputs.size(); ++i) {
    const Constant& input = call.input(i);
    const std::int64_t part = inner * input.dims[axis], rows = part == 0 ? 0 : input.elements() / part;
    with_values(result, input, [&](auto& results, const auto& values) {
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(values.begin() + r * part, part, results.begin() + r * row + start);
    });
    start += part;
  }
  return only(std::move(result));
}

// How many elements come before (negative: go away) and after, for each dimension.
struct Frame {
  Dims before, after;
};

Frame frame_of(const FoldCall& call, std::size_t rank) {
  const auto pads = call.attribute_or_input("pads", 1);
  if (!pads) call.fail("it has no pads");
  std::vector<std::int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  if (call.optional_input(3) != nullptr) axes = call.integers(3);
  const std::vector<std::size_t> places = call.axes(axes, rank);
  if (pads->size() != 2 * places.size()) call.fail("{} pads for {} dimensions", pads->size(), places.size());
  Frame frame{.before = Dims(rank, 0), .after = Dims(rank, 0)};
  for (std::size_t i = 0; i < places.size(); ++i) {
    frame.before[places[i]] = (*pads)[i];
    frame.after[places[i]] = (*pads)[places.size() + i];
  }
  return frame;
}

std::vector<Constant> fold_pad(const FoldCall& call) {
  const Constant& input = call.input(0);
  if (call.node.text("mode", "constant") != "constant") call.fail("only mode constant is computed while reading");
  const Frame frame = frame_of(call, input.dims.size());
  Dims dims = input.dims;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    for (const std::int64_t pad : {frame.before[d], frame.after[d]}) {
      if (pad < -kMostDim || pad > kMostDim) call.fail("{} elements of padding", pad);
      dims[d] += pad;
    }
  }
  Constant result = call.make(input.kind, dims);
  if (const Constant* value = call.optional_input(2)) {
    if (value->kind != input.kind || value->elements() != 1) call.fail("its value is not one of the kind to pad");
    gather_values(result, *value, [](std::size_t) { return std::size_t{0}; });
  }
  const Dims own = strides_of(input.dims);
  Walk walk(dims, Dims(dims.size(), 0));
  with_values(result, input, [&](auto& results, const auto& values) {
    for (auto& element : results) {
      std::int64_t at = 0;
      bool is_inside = true;
      for (std::size_t d = 0; d < dims.size() && is_inside; ++d) {
        const std::int64_t index = walk.index()[d] - frame.before[d];
        is_inside = index >= 0 && index < input.dims[d];
        if (is_inside) at += index * own[d];
      }
      if (is_inside) element = values[static_cast<std::size_t>(at)];
      walk.next();
    }
  });
  return only(std::move(result));
}

// Keeps what is on and above (below) the k-th diagonal of each matrix.
std::vector<Constant> fold_trilu(const FoldCall& call) {
  const Constant& input = call.input(0);
  const std::size_t rank = input.dims.size();
  if (rank < 2) call.fail("its input has {} dimensions; it needs a matrix", rank);
  const bool upper = call.node.integer("upper", 1) != 0;
  const std::int64_t k = call.optional_input(1) == nullptr ? 0 : call.integer(1);
  Constant result = call.with_dims(input, input.dims);
  Walk walk(input.dims, Dims(rank, 0));
  with_values(result, input, [&](auto& results, const auto&) {
    for (auto& element : results) {
      const std::int64_t diagonal = walk.index()[rank - 1] - walk.index()[rank - 2];
      if (upper ? diagonal < k : diagonal > k) element = 0;
      walk.next();
    }
  });
  return only(std::move(result));
}

constexpr FoldRow kMovingFolds[] = {
    {"Transpose", fold_transpose}, {"Expand", fold_expand}, {"Tile", fold_tile}, {"Slice", fold_slice},
    {"Split", fold_split},         {"Concat", fold_concat}, {"Pad", fold_pad},   {"Trilu", fold_trilu},
};

}  // namespace

std::span<const FoldRow> moving_folds() { return kMovingFolds; }

}  // namespace overtake::onnx
