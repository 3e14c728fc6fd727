#include "models/network.h"

#include "base/error.h"
#include "models/onnx/import.h"

namespace overtake {

bool is_onnx_file(const std::string& model) { return model.ends_with(".onnx") || model.find('/') != std::string::npos; }

Network load_network(const std::string& model, const ImportOptions& options) {
  if (is_onnx_file(model)) return import_onnx(model, options);
  const ImportOptions defaults;
  if (options.loss != defaults.loss || !options.output.empty() || !options.frozen.empty())
    fail_user("model {}: --loss, --output and --freeze are for ONNX files; leave them out for a network of the zoo",
              model);
  return {build_model(model, options.settings), {}};
}

}  // namespace overtake
