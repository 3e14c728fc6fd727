#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/commands.h"
#include "models/zoo.h"
#include "report/table.h"

namespace overtake {
namespace {

struct ModelsFlags {
  std::string model;
  std::string settings;
  bool json = false;
};

std::string input_text(const Graph& g) {
  for (const Buffer& b : g.buffers)
    if (b.role == Role::input) return to_string(b.shape);
  return "";
}

int list_models(const ModelsFlags& flags) {
  nlohmann::json out = nlohmann::json::array();
  Table table({"model", "parameters", "FLOPs/sample", "activations", "input", "what"});
  bool is_known = flags.model.empty();
  for (const ZooEntry& entry : zoo()) {
    if (!flags.model.empty() && entry.name != flags.model) continue;
    is_known = true;
    const Graph g = build_model(entry.name, ModelSettings::parse(flags.settings));
    const ModelFigures f = figures_of(g);
    table.add({entry.name, format_count(f.parameters), format_count(static_cast<std::int64_t>(f.forward_flops)),
               format_bytes(static_cast<std::int64_t>(f.activation_bytes)), input_text(g), entry.what});
    out.push_back({{"name", entry.name},
                   {"parameters", f.parameters},
                   {"forward_flops", f.forward_flops},
                   {"activation_bytes", f.activation_bytes},
                   {"settings", entry.defaults},
                   {"data", entry.data},
                   {"what", entry.what}});
  }
  if (!is_known) build_model(flags.model, {});  // says which ones there are
  if (flags.json)
    fmt::print("{}\n", nlohmann::json{{"models", out}}.dump());
  else
    fmt::print("{}", table.text());
  return 0;
}

}  // namespace

void add_models_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ModelsFlags>();
  CLI::App* c = app.add_subcommand("models", "list the networks of the zoo");
  c->add_option("MODEL", flags->model, "only this one");
  c->add_option("--set", flags->settings, "settings of the network, for example layers=6");
  c->add_flag("--json", flags->json, "one JSON object as the last line");
  c->footer("Example:\n  overtake models resnet-50 --set batch=32,image=160");
  c->callback([flags, &exit_code] { exit_code = list_models(*flags); });
}

}  // namespace overtake
