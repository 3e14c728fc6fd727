// Another batch than the file was exported for; see BatchPlaces.

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

void Importer::find_batch(const Node& node, const std::vector<std::int64_t>& from, std::vector<std::int64_t> to) {
  if (!is_probe_ || !changes_batch()) return;
  const auto samples = std::ranges::find_if(from, [&](std::int64_t d) { return d % batch_ == 0; });
  if (samples == from.end()) return;
  const auto at = static_cast<std::size_t>(samples - from.begin());
  std::vector<std::int64_t> before = from;
  before[at] = before[at] / batch_ * exported_batch_;
  if (const auto open = std::ranges::find(to, -1); open != to.end()) {
    *open = 1;
    const std::int64_t rest = checked_product(to);
    if (rest < 1) return;
    *open = checked_product(before) / rest;
  }
  if (checked_product(to) != checked_product(before)) return;
  // Samples lie one after another, with so many elements of other dimensions around them in both shapes.
  const auto merged = outer_.find(node.inputs[0]);
  const std::int64_t around =
      checked_product(std::span(before).first(at)) * (merged == outer_.end() ? 1 : merged->second);
  std::int64_t prefix = 1;
  for (std::size_t j = 0; j < to.size(); prefix *= to[j++]) {
    if (around % prefix != 0 || to[j] % (around / prefix * exported_batch_) != 0) continue;
    places_[node.outputs[0]] = {to, j};
    outer_[node.outputs[0]] = around / prefix;
    return;
  }
}

// Ops that leave the dimension as it is leave its parts as they are.
void Importer::inherit_outer(const Node& node) {
  if (!is_probe_ || node.inputs.empty() || node.op == "Reshape") return;
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
