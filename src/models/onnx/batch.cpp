// Another batch than the file was exported for; see BatchPlaces.

#include <fmt/ranges.h>

#include <algorithm>

#include "models/onnx/importer.h"

namespace overtake::onnx {
namespace {

// -1 where it is too large.
std::int64_t checked_product(std::span<const std::int64_t> dims) {
  std::int64_t p = 1;
  for (const std::int64_t d : dims)
    if (__builtin_mul_overflow(p, d, &p)) return -1;
  return p;
}

}  // namespace

std::int64_t probe_batch(const File& file) {
  const auto divides_one = [&](std::int64_t batch) {
    const auto is_multiple = [&](std::int64_t d) { return d > 0 && d % batch == 0; };
    return std::ranges::any_of(file.initializers,
                               [&](const Tensor& t) { return std::ranges::any_of(t.dims, is_multiple); }) ||
           std::ranges::any_of(file.inputs, [&](const ValueInfo& input) {
             return std::ranges::any_of(input.dims, [&](const Dimension& d) { return is_multiple(d.value); });
           });
  };
  constexpr std::int64_t kPrimes[] = {97, 101, 103, 107, 109, 113, 127, 131};
  const auto found = std::ranges::find_if_not(kPrimes, divides_one);
  return found == std::end(kPrimes) ? kPrimes[0] : *found;
}

void Importer::find_batch(const Node& node, const std::vector<std::int64_t>& from, std::vector<std::int64_t> to) {
  if (probe_ == 0) return;
  const std::int64_t of_export = exported_batch_ > 0 ? exported_batch_ : batch_;
  const auto samples = std::ranges::find_if(from, [&](std::int64_t d) { return d % batch_ == 0; });
  if (samples == from.end()) return;
  const auto at = static_cast<std::size_t>(samples - from.begin());
  std::vector<std::int64_t> before = from;
  before[at] = before[at] / batch_ * of_export;
  if (const auto open = std::ranges::find(to, -1); open != to.end()) {
    *open = 1;
    const std::int64_t rest = checked_product(to);
    if (rest < 1) return;
    *open = checked_product(before) / rest;
  }
  const auto fix = [&](std::string_view why) {
    if (batch_is_fixed_by_.empty())
      batch_is_fixed_by_ =
          fmt::format("{} has the shape [{}] for any batch, {}", node.label(), fmt::join(to, ", "), why);
  };
  if (checked_product(to) != checked_product(before)) {
    if (exported_batch_ == 0) fix("which others do not fit");  // a shape that is computed fits
    return;
  }
  // Samples lie one after another, with so many elements of other dimensions around them in both shapes.
  const auto merged = outer_.find(node.inputs[0]);
  const std::int64_t around =
      checked_product(std::span(before).first(at)) * (merged == outer_.end() ? 1 : merged->second);
  std::int64_t prefix = 1;
  for (std::size_t j = 0; j < to.size(); prefix *= to[j++]) {
    if (around % prefix != 0 || to[j] % (around / prefix * of_export) != 0) continue;
    if (exported_batch_ > 0) places_[node.outputs[0]] = {to, j};
    outer_[node.outputs[0]] = around / prefix;
    return;
  }
  fix("which takes samples apart or puts them together");
}

// What is computed over the samples of a batch (sums, products of samples with samples) goes on with their number,
// which the exporter may have written down.
void Importer::look_across_samples(const Graph& g) {
  const auto counts_samples = [&](BufferId b) {
    return b != kNone &&
           std::ranges::any_of(g.buffers[b].shape.span(), [&](std::int64_t d) { return d % batch_ == 0; });
  };
  for (TaskId t = 0; t < g.tasks.size() && exported_batch_ > 0 && batch_is_fixed_by_.empty(); ++t) {
    if (std::ranges::find(g.losses, g.writes(t)[0]) != g.losses.end()) continue;
    if (std::ranges::any_of(g.reads(t), counts_samples) && std::ranges::none_of(g.writes(t), counts_samples))
      batch_is_fixed_by_ =
          fmt::format("{} computes over the samples of a batch, and their number may be part of the file",
                      g.layer_name(g.tasks[t].layer));
  }
}

// Ops that leave the dimension as it is leave its parts as they are.
void Importer::inherit_outer(const Node& node) {
  if (probe_ == 0 || node.inputs.empty() || node.op == "Reshape") return;
  const auto extent = [&](const std::string& name) -> std::int64_t {
    const auto it = items_.find(name);
    if (it == items_.end() || it->second.kind != Item::Kind::runtime) return 0;
    for (const std::int64_t d : dims_of(it->second))
      if (d % batch_ == 0) return d;
    return 0;
  };
  for (const std::string& input : node.inputs) {
    const auto merged = outer_.find(input);
    if (merged == outer_.end() || merged->second == 1) continue;
    const std::int64_t outer = merged->second;
    for (const std::string& output : node.outputs)
      if (extent(output) == extent(input)) outer_[output] = outer;
    return;
  }
}

std::optional<std::vector<std::int64_t>> Importer::rebatched(const std::string& name) const {
  const auto place = places_.find(name);
  if (!changes_batch() || place == places_.end()) return {};
  std::vector<std::int64_t> dims = place->second.baked;
  std::int64_t& d = dims[place->second.dimension];
  d = d / exported_batch_ * batch_;
  return dims;
}

}  // namespace overtake::onnx
