#include "overtake/zoo.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/nearest_word.h"
#include "models/families.h"
#include "models/settings.h"
#include "ops/op.h"

namespace overtake {

const std::vector<ZooEntry>& zoo() {
  static const std::vector<ZooEntry> entries = [] {
    std::vector<ZooEntry> all;
    for (const auto& family :
         {small_networks(), vgg_networks(), residual_networks(), densenets(), mobilenets(), inception_v3_networks(),
          inception_v4_networks(), vision_transformers(), recurrent_networks(), gpt_networks(), bert_networks()})
      all.insert(all.end(), family.begin(), family.end());
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
        fail_user("model {}: it has no setting '{}'; it has {}{}", name, key, fmt::join(known, ", "),
                  did_you_mean(key, known));
      }
      values[key] = value;
    }
    return entry.build(Settings(name, std::move(values)));
  }
  fail_user("model '{}': no such network, and no file; known are {}; `overtake models` says more{}", name,
            fmt::join(names, ", "), did_you_mean(name, names));
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
