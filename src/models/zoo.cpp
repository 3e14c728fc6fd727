#include "models/zoo.h"

#include <fmt/ranges.h>

#include <charconv>

#include "base/error.h"
#include "models/families.h"
#include "ops/op.h"

namespace overtake {

ModelSettings ModelSettings::parse(const std::string& text) {
  std::map<std::string, double> given;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const std::size_t equals = word.find('=');
    double value = 0;
    const char* first = word.data() + std::min(equals + 1, word.size());
    const char* last = word.data() + word.size();
    const auto [stop, error] = std::from_chars(first, last, value);
    if (equals == std::string::npos || equals == 0 || error != std::errc() || stop != last || first == last)
      fail_user("--set {}: '{}' is no NAME=NUMBER; write for example --set layers=6,width=512", text, word);
    given[word.substr(0, equals)] = value;
    at = end + 1;
  }
  return ModelSettings(given);
}

const std::vector<ZooEntry>& zoo() {
  static const std::vector<ZooEntry> entries = [] {
    std::vector<ZooEntry> all;
    for (const auto& family : {convnets(), sequence_models()}) all.insert(all.end(), family.begin(), family.end());
    return all;
  }();
  return entries;
}

Graph build_model(const std::string& name, const ModelSettings& settings) {
  std::vector<std::string> names;
  for (const ZooEntry& entry : zoo()) {
    names.push_back(entry.name);
    if (entry.name != name) continue;
    std::map<std::string, double> values = entry.defaults;
    for (const auto& [key, value] : settings.all()) {
      if (!values.contains(key)) {
        std::vector<std::string> known;
        for (const auto& [k, v] : values) known.push_back(k);
        fail_user("model {}: it has no setting '{}'; it has {}", name, key, fmt::join(known, ", "));
      }
      values[key] = value;
    }
    return entry.build(values);
  }
  fail_user("model '{}': no such network; known are {}; `overtake models` says more", name, fmt::join(names, ", "));
}

ModelFigures figures_of(const Graph& g) {
  ModelFigures figures;
  std::int64_t batch = 1;
  for (const Buffer& b : g.buffers)
    if (b.role == Role::input) batch = b.shape[0];
  for (const Parameter& p : g.parameters)
    if (g.buffers[p.buffer].role == Role::weight) figures.parameters += g.buffers[p.buffer].shape.elements();
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].kind != Kind::forward) continue;
    figures.forward_flops += work_of(g, t).flops / static_cast<double>(batch);
    for (const BufferId b : g.writes(t))
      if (b != kNone && g.buffers[b].role == Role::activation && g.tasks[t].op != Op::reshape)
        figures.activation_bytes += static_cast<double>(g.bytes(b)) / static_cast<double>(batch);
  }
  return figures;
}

}  // namespace overtake
