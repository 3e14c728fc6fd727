// Nodes that cannot be trained: all of them are listed in one error, so the walk goes on behind the first.

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "models/onnx/dims.h"
#include "models/onnx/importer.h"
#include "models/onnx/torch_name.h"

namespace overtake::onnx {
namespace {

// "'/up1/Resize' in module up1"
std::string name_and_module(const Node& node) {
  const std::string name = printable_name(node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name);
  return fmt::format("'{}'{}", name, node.scope.empty() ? "" : " in module " + printable_name(node.scope));
}

}  // namespace

void Importer::refuse(const Node& node, std::string reason) {
  const auto [kind, is_new] = kinds_.try_emplace({node.op, reason}, unsupported_.size());
  if (is_new) unsupported_.push_back({node.op, std::move(reason), torch_name(node), name_and_module(node)});
  ++unsupported_[kind->second].nodes;
  for (const std::string& name : node.outputs) stand_in(name);
}

void Importer::refuse_op(const Node& node, bool can_fold) {
  refuse(node, std::string(can_fold ? "of values that are not known before the run" : ""));
}

void Importer::pass_over(const Node& node, bool can_lower, bool can_fold) {
  const bool is_of_data = std::ranges::any_of(node.inputs, [&](const std::string& name) {
    return !name.empty() && item(name).kind == Item::Kind::broken && item(name).depends_on_data;
  });
  if (!can_lower && (!can_fold || is_of_data)) return refuse_op(node, can_fold);
  const bool is_shape = node.op == "Shape" || node.op == "Size";
  for (const std::string& name : node.outputs) items_[name] = {.depends_on_data = is_of_data && !is_shape};
}

// What the file says of a result takes the place of the result, so that the nodes behind it can be looked at.
void Importer::stand_in(const std::string& name) {
  items_[name] = {.depends_on_data = true};
  if (described_.empty())
    for (const ValueInfo& value : file_.values) described_[value.name] = &value;
  const auto found = described_.find(name);
  if (found == described_.end() || changes_batch()) return;
  const ValueInfo& info = *found->second;
  if (!info.has_shape || !is_real(info.type)) return;
  std::vector<std::int64_t> dims;
  for (const Dimension& d : info.dims) {
    const auto symbol = symbols_.find(d.symbol);
    dims.push_back(d.value >= 0 ? d.value : symbol == symbols_.end() ? 0 : symbol->second);
  }
  const auto elements = count_elements(dims);
  if (dims.empty() || dims.size() > Shape::kMaxRank || elements.value_or(0) < 1) return;
  items_[name] = {.kind = Item::Kind::runtime, .value = model_.parameter(dims, {}, name)};
}

void Importer::fail_unsupported() const {
  constexpr std::size_t kMost = 30;
  std::vector<std::string> listed;
  std::size_t nodes = 0;
  for (const Refusal& r : unsupported_) {
    nodes += r.nodes;
    if (listed.size() == kMost) continue;
    listed.push_back(
        fmt::format("{}{}{} {}{}", printable_name(r.op),
                    r.torch_name.empty() ? "" : fmt::format(" (PyTorch: {})", printable_name(r.torch_name)),
                    r.nodes > 1 ? fmt::format(", {} times, first", r.nodes) : "", r.first,
                    r.reason.empty() ? "" : ": " + r.reason));
  }
  const std::size_t left = unsupported_.size() - listed.size();
  fail_user(
      "{}: {} of its nodes cannot be trained: {}{}; replace these ops, or export a part of the model without them",
      file_.path, nodes, fmt::join(listed, "; "), left > 0 ? fmt::format("; and {} more kinds", left) : "");
}

}  // namespace overtake::onnx
