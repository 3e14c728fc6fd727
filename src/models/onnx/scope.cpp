// The module a node comes from, where only the node's name says so.

#include <set>

#include "models/onnx/importer.h"

namespace overtake::onnx {
namespace {

// A container's children carry its name already: "/features/features.1/Conv" is features.1, where features is a
// Sequential; it is features.features.1 where it is a module that has a list of the same name.
std::string collapsed(std::string_view node_name) {
  std::string module, last;
  node_name.remove_prefix(1);
  for (std::size_t slash; (slash = node_name.find('/')) != std::string_view::npos; node_name.remove_prefix(slash + 1)) {
    const std::string part(node_name.substr(0, slash));
    if (!last.empty() && part.starts_with(last + "."))
      module.replace(module.size() - last.size(), last.size(), part);
    else
      module += (module.empty() ? "" : ".") + part;
    last = part;
  }
  return module;
}

}  // namespace

void resolve_scopes(File& file) {
  std::set<std::string> names;
  for (const Tensor& t : file.initializers) names.insert(t.name);
  const auto is_module = [&](const std::string& module) {
    const auto next = names.lower_bound(module + ".");
    return next != names.end() && next->starts_with(module + ".");
  };
  for (Node& node : file.nodes)
    if (node.origin.empty() && !node.scope.empty() && node.name.starts_with('/') && !is_module(node.scope))
      node.scope = collapsed(node.name);
}

}  // namespace overtake::onnx
