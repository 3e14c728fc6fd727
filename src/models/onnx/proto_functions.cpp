// Calls of the file's own functions, replaced by the nodes they stand for.

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "models/onnx/proto_parts.h"

namespace overtake::onnx {
namespace {

constexpr std::size_t kMostDepth = 64;  // calls inside calls

// Rough; what matters is that it grows with what a copy takes.
std::size_t memory_of(const Attribute& attribute) {
  std::size_t bytes = sizeof(Attribute) + attribute.name.size() + attribute.text.size() + attribute.tensor.name.size() +
                      8 * (attribute.reals.size() + attribute.integers.size() + attribute.tensor.dims.size());
  for (const std::string& text : attribute.texts) bytes += sizeof(std::string) + text.size();
  return bytes;
}

const Attribute* find_attribute(const std::vector<Attribute>& attributes, std::string_view name) {
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [&](const Attribute& attribute) { return attribute.name == name; });
  return found == attributes.end() ? nullptr : &*found;
}

class Inliner {
 public:
  Inliner(const std::vector<Function>& functions, std::unordered_set<std::string> taken, std::int64_t file_bytes,
          const std::string& path)
      : path_(path), taken_(std::move(taken)), memory_left_((std::size_t{1} << 20) + 32 * to_size(file_bytes)) {
    for (const Function& function : functions) {
      if (!functions_.emplace(std::pair(std::string_view(function.domain), std::string_view(function.op)), &function)
               .second) {
        fail_user("{}: function {} is defined twice; export the model again", path_, printable_name(function.op));
      }
    }
  }

  void add(Node node) {
    if (const Function* function = function_of(node)) {
      expand(node, *function);
    } else {
      nodes_.push_back(std::move(node));
    }
  }

  std::vector<Node> take_nodes() { return std::move(nodes_); }

 private:
  // One call being replaced.
  struct Call {
    const Node& node;
    const Function& function;
    std::string prefix;                                    // of the names inside
    std::unordered_map<std::string, std::string> names;    // of a value inside: in the graph
    std::unordered_map<std::string, std::string> results;  // of an output not made yet: in the graph
  };

  static std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

  const Function* function_of(const Node& node) const {
    const auto found = functions_.find(std::pair(std::string_view(node.domain), std::string_view(node.op)));
    return found == functions_.end() ? nullptr : found->second;
  }

  // Comes before every copy: functions that call each other twice can double at every level.
  void charge(std::size_t bytes) {
    if (bytes > memory_left_) {
      fail_user(
          "{}: its functions call each other so often that the model would become much larger than the file; "
          "export the model with its functions inlined",
          path_);
    }
    memory_left_ -= bytes;
  }

  std::string copy_of(const std::string& text) {
    charge(sizeof(std::string) + text.size());
    return text;
  }

  // prefix/name, made different from every name there is.
  std::string unused_name(const std::string& prefix, const std::string& name) {
    charge(2 * (sizeof(std::string) + prefix.size() + name.size()));
    const std::string wanted = prefix + "/" + name;
    std::string unused = wanted;
    for (int copy = 2; !taken_.insert(unused).second; ++copy) unused = fmt::format("{}~{}", wanted, copy);
    return unused;
  }

  void check(const Node& node, const Function& function) const {
    const std::string label = node.label();
    if (std::find(active_.begin(), active_.end(), &function) != active_.end()) {
      fail_user("{}: node {}: function {} calls itself, which Overtake does not read; export a model without recursion",
                path_, label, printable_name(function.op));
    }
    if (active_.size() == kMostDepth) {
      fail_user("{}: node {}: functions are nested more than {} deep; export the model with its functions inlined",
                path_, label, kMostDepth);
    }
    if (node.inputs.size() > function.inputs.size() || node.outputs.size() > function.outputs.size()) {
      fail_user("{}: node {}: {} inputs and {} outputs for a function of {} and {}; export the model again", path_,
                label, node.inputs.size(), node.outputs.size(), function.inputs.size(), function.outputs.size());
    }
    if (function.opset != 0) check_opset(function.opset, path_);
  }

  void expand(const Node& node, const Function& function) {
    check(node, function);
    active_.push_back(&function);
    Call call{.node = node,
              .function = function,
              .prefix = unused_prefix(node.name.empty() ? node.op : node.name),
              .names = {},
              .results = {}};
    bind_values(call);
    for (const Node& inner : function.nodes) add(instantiate(inner, call));
    finish_results(call);
    active_.pop_back();
  }

  std::string unused_prefix(const std::string& wanted) {
    charge(sizeof(std::string) + wanted.size());
    const int copy = ++prefixes_[wanted];
    return copy == 1 ? wanted : fmt::format("{}~{}", wanted, copy);
  }

  // Inputs and outputs of the function are values that the call names; outputs it leaves out get names of their own.
  void bind_values(Call& call) {
    const std::vector<std::string>&inputs = call.node.inputs, &outputs = call.node.outputs;
    for (std::size_t i = 0; i < call.function.inputs.size(); ++i) {
      const std::string& formal = call.function.inputs[i];
      std::string actual = i < inputs.size() ? copy_of(inputs[i]) : std::string();
      if (!call.names.emplace(copy_of(formal), std::move(actual)).second) fail_twice(call, formal);
    }
    for (std::size_t i = 0; i < call.function.outputs.size(); ++i) {
      const std::string& formal = call.function.outputs[i];
      const bool is_wanted = i < outputs.size() && !outputs[i].empty();
      std::string actual = is_wanted ? copy_of(outputs[i]) : unused_name(call.prefix, formal);
      if (!call.results.emplace(copy_of(formal), std::move(actual)).second) fail_twice(call, formal);
    }
  }

  [[noreturn]] void fail_twice(const Call& call, const std::string& value) const {
    fail_user("{}: function {} makes value '{}' twice; export the model again", path_, printable_name(call.function.op),
              printable_name(value));
  }

  // A node of the function as a node of the graph.
  Node instantiate(const Node& inner, Call& call) {
    charge(sizeof(Node) + 2 * (call.prefix.size() + inner.name.size() + inner.op.size()) + inner.domain.size());
    Node node;
    node.name = call.prefix + "/" + (inner.name.empty() ? inner.op : inner.name);
    node.op = inner.op;
    node.domain = inner.domain;
    for (const std::string& input : inner.inputs) node.inputs.push_back(copy_of(name_of(input, inner, call)));
    for (const std::string& output : inner.outputs) node.outputs.push_back(make_value(output, call));
    for (const Attribute& attribute : inner.attributes) add_attribute(attribute, call, node);
    return node;
  }

  const std::string& name_of(const std::string& value, const Node& inner, const Call& call) const {
    if (value.empty()) return value;
    const auto found = call.names.find(value);
    if (found == call.names.end()) {
      fail_user("{}: function {}: node {} reads value '{}', which nothing before it makes; export the model again",
                path_, printable_name(call.function.op), inner.label(), printable_name(value));
    }
    return found->second;
  }

  std::string make_value(const std::string& value, Call& call) {
    if (value.empty()) return value;
    auto result = call.results.extract(value);
    std::string actual = result.empty() ? unused_name(call.prefix, value) : std::move(result.mapped());
    if (!call.names.emplace(copy_of(value), copy_of(actual)).second) fail_twice(call, value);
    return actual;
  }

  // A reference takes the attribute of the call, else the function's default, else there is none.
  void add_attribute(const Attribute& attribute, const Call& call, Node& node) {
    const Attribute* actual = &attribute;
    if (attribute.kind == Attribute::Kind::reference) {
      charge(call.node.attributes.size() + call.function.defaults.size());  // for the time to look through them
      actual = find_attribute(call.node.attributes, attribute.text);
      if (actual == nullptr) actual = find_attribute(call.function.defaults, attribute.text);
      if (actual == nullptr) return;
    }
    charge(memory_of(*actual) + attribute.name.size());
    node.attributes.push_back(*actual);
    node.attributes.back().name = attribute.name;
  }

  // Outputs that no node of the function has made must be inputs too; an Identity passes their value on.
  void finish_results(const Call& call) {
    for (const std::string& output : call.function.outputs) {
      const auto result = call.results.find(output);
      if (result == call.results.end()) continue;
      const auto input = call.names.find(output);
      if (input == call.names.end() || input->second.empty()) {
        fail_user("{}: node {}: function {} does not make its output '{}'; export the model again", path_,
                  call.node.label(), printable_name(call.function.op), printable_name(output));
      }
      charge(sizeof(Node) + 2 * (call.prefix.size() + input->second.size() + result->second.size()));
      nodes_.push_back({.name = call.prefix + "/Identity",
                        .op = "Identity",
                        .domain = {},
                        .inputs = {input->second},
                        .outputs = {result->second},
                        .attributes = {}});
    }
  }

  const std::string& path_;
  std::map<std::pair<std::string_view, std::string_view>, const Function*> functions_;  // by domain and op
  std::unordered_set<std::string> taken_;                                               // names of values
  std::unordered_map<std::string, int> prefixes_;  // how many calls have asked for it
  std::size_t memory_left_;
  std::vector<const Function*> active_;  // the calls we are in, outermost first
  std::vector<Node> nodes_;
};

}  // namespace

std::vector<Node> inline_functions(std::vector<Node> nodes, const std::vector<Function>& functions,
                                   const std::vector<std::string>& taken, std::int64_t file_bytes,
                                   const std::string& path) {
  if (functions.empty()) return nodes;
  std::unordered_set<std::string> names(taken.begin(), taken.end());
  for (const Node& node : nodes) names.insert(node.outputs.begin(), node.outputs.end());
  Inliner inliner(functions, std::move(names), file_bytes, path);
  for (Node& node : nodes) inliner.add(std::move(node));
  return inliner.take_nodes();
}

}  // namespace overtake::onnx
