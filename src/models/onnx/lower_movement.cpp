// Ops that move elements or ask for shapes.

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "models/onnx/importer.h"
#include "models/onnx/recorded_call.h"

namespace overtake::onnx {
namespace {

using Dims = std::vector<std::int64_t>;

constexpr std::size_t kMostPieces = 64;   // of a tensor taken apart and put together again
constexpr std::size_t kMostParts = 4096;  // put together by one op

std::int64_t product(const Dims& dims) {
  std::int64_t p = 1;
  for (const std::int64_t d : dims)
    if (__builtin_mul_overflow(p, d, &p)) return -1;
  return p;
}

std::int64_t& at(Dims& dims, std::int64_t axis) { return dims[static_cast<std::size_t>(axis)]; }

std::int64_t model_extent(Call& c, Value x, std::int64_t axis) {
  return c.model().shape(x)[static_cast<std::size_t>(axis)];
}

void shape(Call& c) {
  const Dims dims = c.dims(0);
  const auto rank = std::ssize(dims);
  const auto place = [&](const char* name, std::int64_t fallback) {
    const std::int64_t given = c.node.integer(name, fallback);
    return std::clamp<std::int64_t>(given < 0 ? std::max(given, -rank) + rank : given, 0, rank);
  };
  const std::int64_t begin = place("start", 0), end = std::max(begin, place("end", rank));
  c.importer.give(c.node.outputs.at(0), integer_constant(Dims(dims.begin() + begin, dims.begin() + end)));
}

void size(Call& c) { c.importer.give(c.node.outputs.at(0), scalar_constant(product(c.dims(0)))); }

void reshape(Call& c) {
  const Dims from = c.dims(0);
  Dims to = c.integers(1, "shape");
  if (to.size() > Shape::kMaxRank) fail_unsupported_node("a shape of {} dimensions", to.size());
  const bool allow_zero = c.node.integer("allowzero", 0) != 0;
  for (std::size_t i = 0; i < to.size() && !allow_zero; ++i)
    if (to[i] == 0 && i < from.size()) to[i] = from[i];
  std::int64_t rest = 1;
  for (const std::int64_t d : to)
    if (d < -1 || (d != -1 && __builtin_mul_overflow(rest, d, &rest)))
      fail_user("{}: {}: the shape [{}]", c.importer.file().path, c.node.label(), fmt::join(to, ", "));
  c.importer.find_batch(c.node, from, to);
  Dims shape = c.importer.rebatched(c.node.outputs.at(0)).value_or(to);
  if (const auto open = std::ranges::find(shape, -1); open != shape.end() && rest > 0) *open = product(from) / rest;
  if (product(shape) != product(from) || product(shape) < 0)
    fail_user("{}: {}: [{}] does not fit into the shape [{}]; export the model {}", c.importer.file().path,
              c.node.label(), fmt::join(from, ", "), fmt::join(to, ", "), c.importer.with_dynamic_batch());
  if (shape == from) return c.pass(0);
  c.give(c.reshaped(c.value(0), shape));
}

void flatten(Call& c) {
  const Dims from = c.dims(0);
  const std::int64_t given = c.node.integer("axis", 1);
  const auto axis = given == std::ssize(from) ? given : c.axis(given, from.size());
  const Dims to = {product(Dims(from.begin(), from.begin() + axis)), product(Dims(from.begin() + axis, from.end()))};
  c.give(c.reshaped(c.value(0), to));
}

void squeeze(Call& c) {
  const Dims from = c.dims(0);
  const Dims axes = c.axes(1, from.size());
  Dims to;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const bool is_listed = std::ranges::find(axes, static_cast<std::int64_t>(i)) != axes.end();
    if (is_listed && from[i] != 1) fail_unsupported_node("axis {} of [{}] is not 1", i, fmt::join(from, ", "));
    if (!(is_listed || (axes.empty() && from[i] == 1))) to.push_back(from[i]);
  }
  c.give(c.reshaped(c.value(0), to));
}

void unsqueeze(Call& c) {
  Dims to = c.dims(0);
  const Dims given = c.has(1) ? c.integers(1, "axes") : c.node.integers("axes", {});
  if (to.size() + given.size() > Shape::kMaxRank) fail_unsupported_node("too many dimensions");
  Dims axes;
  for (const std::int64_t a : given) axes.push_back(c.axis(a, to.size() + given.size()));
  std::ranges::sort(axes);
  for (const std::int64_t a : axes) {
    if (a > std::ssize(to)) fail_unsupported_node("axis {}", a);
    to.insert(to.begin() + a, 1);
  }
  c.give(c.reshaped(c.value(0), to));
}

void transpose(Call& c) {
  const Dims from = c.dims(0);
  Dims order(from.size());
  std::iota(order.rbegin(), order.rend(), 0);
  order = c.node.integers("perm", order);
  Dims sorted = order;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted.size() != from.size() || sorted[i] != static_cast<std::int64_t>(i))
      fail_user("{}: {}: perm [{}] of {} dimensions", c.importer.file().path, c.node.label(), fmt::join(order, ", "),
                from.size());
  if (sorted.size() != from.size()) fail_unsupported_node("perm of {} dimensions", sorted.size());
  if (std::ranges::is_sorted(order)) return c.pass(0);
  Item x = c.item(0);
  if (x.kind == Item::Kind::weight && from.size() == 2) {  // a matrix seen the other way round is still that matrix
    x.is_transposed = !x.is_transposed;
    return c.importer.give(c.node.outputs.at(0), std::move(x));
  }
  c.give(c.model().transpose(c.value(0), order, c.name()));
}

void expand(Call& c) {
  const Dims from = c.dims(0);
  Dims to = c.integers(1, "shape");
  const std::int64_t exported = c.importer.exported_batch();
  if (to.size() > Shape::kMaxRank) fail_unsupported_node("a shape of {} dimensions", to.size());
  if (c.importer.changes_batch() && exported > 1 && to.size() >= 2 && to[0] == exported) to[0] = c.importer.batch();
  for (std::size_t i = 0; i < from.size() && i < to.size(); ++i) {
    std::int64_t& d = to[to.size() - 1 - i];
    if (d == 1) d = from[from.size() - 1 - i];
  }
  if (to.size() < from.size()) to.insert(to.begin(), from.begin(), from.end() - std::ssize(to));
  check_dims(to);
  if (to == from) return c.pass(0);
  c.give(c.model().expand(c.value(0), to, c.name()));
}

void concat(Call& c) {
  std::vector<Value> parts;
  std::int64_t rows = 1;
  for (std::size_t i = 0; i < c.node.inputs.size(); ++i) {
    parts.push_back(c.value(i));
    rows = std::max(rows, c.dims_of(parts.back())[0]);
  }
  if (parts.empty() || parts.size() > kMostParts) fail_unsupported_node("of {} tensors", parts.size());
  if (parts.size() == 1) return c.give(parts[0]);
  const std::int64_t axis = c.axis(c.node.integer("axis", 0), c.dims_of(parts[0]).size());
  for (Value& x : parts) {
    // One row for all samples, made from equal ones.
    Dims dims = c.dims_of(x);
    if (axis == 0 || dims[0] != 1 || rows != c.importer.batch()) continue;
    dims[0] = rows;
    if (rows > 1) x = c.model().expand(x, dims, c.name());
  }
  c.give(c.model().concat(parts, axis, c.name()));
}

void split(Call& c) {
  const Dims from = c.dims(0);
  const std::int64_t axis = c.axis(c.node.integer("axis", 0), from.size());
  const std::int64_t extent = from[static_cast<std::size_t>(axis)];
  const auto outputs = std::ssize(c.node.outputs);
  Dims parts = c.has(1) ? c.integers(1, "sizes") : c.node.integers("split", {});
  if (parts.empty()) {
    const std::int64_t each = (extent + outputs - 1) / outputs;
    for (std::int64_t i = 0; i < outputs; ++i) parts.push_back(std::min(each, extent - i * each));
  }
  if (std::ssize(parts) != outputs || product(parts) < 0)
    fail_unsupported_node("{} sizes for {} results", parts.size(), outputs);
  const Value x = c.value(0);
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < outputs; ++i) {
    const std::int64_t part = parts[static_cast<std::size_t>(i)];
    if (part < 1 || part > extent - begin) fail_unsupported_node("parts of [{}] of {}", fmt::join(parts, ", "), extent);
    c.give(part == extent ? x : c.model().slice(x, axis, begin, begin + part, c.name()), static_cast<std::size_t>(i));
    begin += part;
  }
}

// Every `step`-th element along an axis: the axis is split in two, and one of the second is taken.
Value strided(Call& c, Value x, std::int64_t axis, std::int64_t begin, std::int64_t count, std::int64_t step) {
  Dims dims = c.dims_of(x);
  const std::int64_t whole = count * step;
  if (dims.size() == Shape::kMaxRank)
    fail_unsupported_node("a step along an axis of a tensor of {} dimensions", dims.size());
  if (begin + whole > at(dims, axis)) {  // the last group is cut off: shift it
    const std::int64_t shift = begin + whole - at(dims, axis);
    if (shift > begin) fail_unsupported_node("a step of {} along {} elements", step, at(dims, axis));
    begin -= shift;
    x = c.model().slice(x, axis, begin, begin + whole, c.name());
    dims = c.dims_of(x);
    at(dims, axis) = count;
    dims.insert(dims.begin() + axis + 1, step);
    x = c.model().slice(c.model().reshape(x, dims, c.name()), axis + 1, shift, shift + 1, c.name());
  } else {
    if (begin != 0 || whole != at(dims, axis)) x = c.model().slice(x, axis, begin, begin + whole, c.name());
    dims = c.dims_of(x);
    at(dims, axis) = count;
    dims.insert(dims.begin() + axis + 1, step);
    x = c.model().slice(c.model().reshape(x, dims, c.name()), axis + 1, 0, 1, c.name());
  }
  dims.erase(dims.begin() + axis + 1);
  return c.model().reshape(x, dims, c.name());
}

void slice(Call& c) {
  const Dims starts = c.integers(1, "starts"), ends = c.integers(2, "ends"), from = c.dims(0);
  Dims axes(starts.size()), steps(starts.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (c.has(3)) axes = c.integers(3, "axes");
  if (c.has(4)) steps = c.integers(4, "steps");
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    fail_unsupported_node("starts, ends, axes and steps of different lengths");
  Value x = c.value(0);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t axis = c.axis(axes[i], from.size());
    const std::int64_t extent = model_extent(c, x, axis), step = steps[i];
    if (step < 1) fail_unsupported_node("a step of {}", step);
    const auto place = [&](std::int64_t p) {
      return std::clamp<std::int64_t>(p < 0 ? std::max(p, -extent) + extent : p, 0, extent);
    };
    const std::int64_t begin = place(starts[i]), end = place(ends[i]);
    if (end <= begin) fail_unsupported_node("nothing is left of axis {}", axis);
    if (step > 1 && end - begin > step)
      x = strided(c, x, axis, begin, (end - begin + step - 1) / step, step);
    else if (step > 1)
      x = c.model().slice(x, axis, begin, begin + 1, c.name());
    else if (begin != 0 || end != extent)
      x = c.model().slice(x, axis, begin, end, c.name());
  }
  c.give(x);
}

// Chosen places along an axis: runs of neighbours are sliced and put side by side.
Value chosen(Call& c, Value x, std::int64_t axis, const Dims& places) {
  std::vector<Value> parts;
  for (std::size_t i = 0; i < places.size();) {
    std::size_t end = i + 1;
    while (end < places.size() && places[end] == places[end - 1] + 1) ++end;
    if (parts.size() == kMostPieces) fail_unsupported_node("more than {} separate places", kMostPieces);
    parts.push_back(c.model().slice(x, axis, places[i], places[end - 1] + 1, c.name()));
    i = end;
  }
  return parts.size() == 1 ? parts[0] : c.model().concat(parts, axis, c.name());
}

// Rows of a table, of which `padding` (-1: none) is not trained by being looked up.
Value rows_of_table(Call& c, std::int64_t padding) {
  const Dims table = c.dims(0);
  Item& indices = c.item(1);
  c.importer.check_positions(c.item(0), c.node);
  const Value ids = c.importer.indices_of(indices, c.node, table[0]);
  Attrs attrs{{"vocabulary", table[0]}, {"width", table[1]}};
  if (padding >= 0) attrs.set("padding", padding);
  const Value rows =
      c.model().layer(Op::embedding, {ids}, attrs, c.name(), {{.shared = c.importer.table(c.item(0), c.node)}});
  return c.dims(1).empty() ? c.reshaped(rows, {table[1]}) : rows;
}

// Overtake's export function writes nn.Embedding(padding_idx=...) so.
void embedding(Call& c) {
  if (c.item(0).kind != Item::Kind::weight || c.dims(0).size() != 2)
    fail_unsupported_node("of a table that is no matrix of the file");
  const std::int64_t padding = c.node.integer("padding_idx", -1);
  if (padding >= c.dims(0)[0])
    fail_user("{}: {}: padding_idx {} of {} rows", c.importer.file().path, c.node.label(), padding, c.dims(0)[0]);
  c.give(rows_of_table(c, padding));
}

// The dynamo exporter writes down the call: embedding(%p_weight, %ids, padding_idx).
std::int64_t recorded_padding(const Call& c) {
  const RecordedCall call = recorded_call(c.node.origin);
  if (call.op != "embedding" || call.arguments.size() < 3) return -1;
  std::int64_t padding = -1;
  std::from_chars(call.arguments[2].data(), call.arguments[2].data() + call.arguments[2].size(), padding);
  return padding;
}

void gather(Call& c) {
  const Dims from = c.dims(0);
  const std::int64_t axis = c.axis(c.node.integer("axis", 0), from.size());
  Item& data = c.item(0);
  if (data.kind == Item::Kind::weight && axis == 0 && from.size() == 2 && !data.is_transposed) {
    return c.give(rows_of_table(c, recorded_padding(c)));
  }
  const Constant& indices = c.known(1, "indices");
  const std::int64_t extent = from[static_cast<std::size_t>(axis)];
  Dims places = indices.integers;
  for (std::int64_t& p : places) {
    if (p < -extent || p >= extent) fail_unsupported_node("index {} of {}", p, extent);
    if (p < 0) p += extent;
  }
  if (places.empty()) fail_unsupported_node("no indices");
  Dims to = from;
  to.erase(to.begin() + axis);
  to.insert(to.begin() + axis, indices.dims.begin(), indices.dims.end());
  // All of a flat tensor in a new shape; for the batch of the export, where there was one.
  if (from.size() == 1) c.importer.find_batch(c.node, from, to);
  const auto rebatched = from.size() == 1 ? c.importer.rebatched(c.node.outputs.at(0)) : std::nullopt;
  bool is_all = std::ssize(places) == extent || rebatched;
  for (std::size_t i = 0; i < places.size(); ++i) is_all = is_all && places[i] == static_cast<std::int64_t>(i);
  const Value x = c.value(0);
  c.give(c.reshaped(is_all ? x : chosen(c, x, axis, places), is_all ? rebatched.value_or(to) : to));
}

// Rows of a table, by tuples of one index; PyTorch writes table[index] so.
void gather_nd(Call& c) {
  const Dims from = c.dims(0);
  Dims tuples = c.dims(1);
  Item& data = c.item(0);
  if (data.kind != Item::Kind::weight || from.size() != 2 || data.is_transposed || tuples.empty() ||
      tuples.back() != 1 || c.node.integer("batch_dims", 0) != 0)
    fail_unsupported_node("other than rows of a weight");
  const Value indices = c.importer.indices_of(c.item(1), c.node, from[0]);
  const Value y = c.model().embedding(indices, c.importer.table(data, c.node), c.name());  // [..., 1, width]
  tuples.back() = from[1];
  c.give(c.reshaped(y, tuples));
}

void pad(Call& c) {
  if (c.node.text("mode", "constant") != "constant") fail_unsupported_node("a mode other than constant");
  const Dims pads = c.integers(1, "pads"), from = c.dims(0);
  const double fill = c.has(2) ? c.setting(2).value_or(1) : 0;
  if (fill != 0) fail_unsupported_node("with other than zero");
  Dims axes(from.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (c.has(3)) axes = c.integers(3, "axes");
  if (pads.size() != 2 * axes.size()) fail_unsupported_node("{} pads for {} axes", pads.size(), axes.size());
  Value x = c.value(0);
  const auto zeros = [&](std::int64_t axis, std::int64_t count) {
    Dims dims = c.dims_of(x);
    at(dims, axis) = count;
    const Shape s = shape_of(dims);
    c.importer.budget().take(s.elements(), c.node.label());
    const std::vector<float> values(static_cast<std::size_t>(s.elements()), 0.0f);
    return c.model().constant(s, values, c.name() + ".zeros");
  };
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = c.axis(axes[i], from.size()), before = pads[i], after = pads[i + axes.size()];
    const std::int64_t extent = model_extent(c, x, axis);
    if (before < -extent || after < -extent) fail_unsupported_node("pads [{}]", fmt::join(pads, ", "));
    const std::int64_t begin = before < 0 ? -before : 0, end = after < 0 ? extent + after : extent;
    if (begin >= end) fail_unsupported_node("pads [{}]", fmt::join(pads, ", "));
    if (begin != 0 || end != extent) x = c.model().slice(x, axis, begin, end, c.name());
    std::vector<Value> parts;
    if (before > 0) parts.push_back(zeros(axis, before));
    parts.push_back(x);
    if (after > 0) parts.push_back(zeros(axis, after));
    if (parts.size() > 1) x = c.model().concat(parts, axis, c.name());
  }
  c.give(x);
}

void tile(Call& c) {
  const Dims repeats = c.integers(1, "repeats"), from = c.dims(0);
  if (repeats.size() != from.size()) fail_unsupported_node("{} repeats for {} dimensions", repeats.size(), from.size());
  Value x = c.value(0);
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    const auto axis = static_cast<std::int64_t>(i);
    if (repeats[i] == 1) continue;
    Dims dims = c.dims_of(x);
    if (repeats[i] < 1 || (dims[i] != 1 && repeats[i] > static_cast<std::int64_t>(kMostPieces)))
      fail_unsupported_node("{} repeats", repeats[i]);
    if (dims[i] == 1) {
      dims[i] = repeats[i];
      check_dims(dims);
      x = c.model().expand(x, dims, c.name());
    } else {
      x = c.model().concat(std::vector<Value>(static_cast<std::size_t>(repeats[i]), x), axis, c.name());
    }
  }
  c.give(x);
}

}  // namespace

void add_movement(LowerTable& table) {
  table["Shape"] = shape;
  table["Size"] = size;
  table["Reshape"] = reshape;
  table["Flatten"] = flatten;
  table["Squeeze"] = squeeze;
  table["Unsqueeze"] = unsqueeze;
  table["Transpose"] = transpose;
  table["Expand"] = expand;
  table["Concat"] = concat;
  table["Split"] = split;
  table["Slice"] = slice;
  table["Gather"] = gather;
  table["overtake.Embedding"] = embedding;
  table["GatherND"] = gather_nd;
  table["Pad"] = pad;
  table["Tile"] = tile;
}

}  // namespace overtake::onnx
