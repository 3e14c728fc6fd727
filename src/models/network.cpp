#include "models/network.h"

#include <algorithm>
#include <cmath>
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
    if (!is_used) fail_user("`freeze {}`: no weight of model {} begins so", prefix, g.model);
  }
}

std::int64_t samples_of_a_piece(std::int64_t batch, std::int64_t pieces, bool is_given) {
  if (is_given && batch % pieces != 0)
    fail_user("`batch {}`: it must be a multiple of {}, which is `dp` x `micro_batches`", batch, pieces);
  return (batch + pieces - 1) / pieces;
}

Network load_network(const std::string& model, const ImportOptions& options) {
  if (is_onnx_file(model)) return import_onnx(model, options);
  const ImportOptions defaults;
  if (options.loss != defaults.loss || !options.output.empty() || !options.train_tensors.empty())
    fail_user(
        "model {}: `loss`, `output` and `train_tensors` are for ONNX files; leave them out for a network of the zoo",
        model);
  ModelSettings settings = options.settings;
  const auto entry = std::ranges::find(zoo(), model, &ZooEntry::name);
  if (options.pieces > 1 && entry != zoo().end()) {
    const bool is_given = settings.has("batch");
    const double batch = is_given ? settings.all().at("batch") : entry->defaults.at("batch");
    // What is no number of samples is refused below.
    if (batch >= 1 && batch == std::floor(batch))
      settings.set("batch",
                   static_cast<double>(samples_of_a_piece(static_cast<std::int64_t>(batch), options.pieces, is_given)));
  }
  return {build_model(model, settings), {}};
}

}  // namespace overtake
