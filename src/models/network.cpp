#include "models/network.h"

#include <filesystem>

#include "base/error.h"
#include "models/onnx/import.h"

namespace overtake {

bool is_onnx_file(const std::string& model) {
  std::string ending = std::filesystem::path(model).extension().string();
  for (char& c : ending) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  std::error_code unreadable;
  return ending == ".onnx" || model.find('/') != std::string::npos ||
         std::filesystem::is_regular_file(model, unreadable);
}

void freeze(Graph& g, const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) {
    bool is_used = false;
    for (Parameter& p : g.parameters) {
      if (prefix.empty() || g.buffers[p.buffer].role != Role::weight || !g.buffer_name(p.buffer).starts_with(prefix))
        continue;
      p.is_frozen = is_used = true;
    }
    if (!is_used) fail_user("--freeze '{}': no weight of model {} begins so", prefix, g.model);
  }
}

Network load_network(const std::string& model, const ImportOptions& options) {
  if (is_onnx_file(model)) return import_onnx(model, options);
  const ImportOptions defaults;
  if (options.loss != defaults.loss || !options.output.empty())
    fail_user("model {}: --loss and --output are for ONNX files; leave them out for a network of the zoo", model);
  return {build_model(model, options.settings), {}};
}

}  // namespace overtake
