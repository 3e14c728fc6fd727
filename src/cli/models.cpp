#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/commands.h"
#include "cli/models/onnx_summary.h"
#include "cli/say.h"
#include "cli/spec_flags.h"
#include "models/onnx/import.h"
#include "passes/recognise.h"
#include "report/table.h"

namespace overtake {
namespace {

struct ModelsFlags {
  std::string model;
  std::string settings;
  bool json = false;
};

struct Listed {
  ZooEntry entry;
  ModelFigures figures;
  std::string input;         // of one sample
  nlohmann::json file = {};  // of an ONNX file: see onnx_summary()
};

// The first input without its batch.
std::string input_of(const Graph& g) {
  for (const Buffer& b : g.buffers)
    if (b.role == Role::input) return to_string(Shape(b.shape.span().subspan(1)));
  return "";
}

// 25557032 -> "25,557,032"
std::string with_commas(std::int64_t count) {
  std::string text = std::to_string(count);
  for (std::ptrdiff_t at = std::ssize(text) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::vector<Listed> listed(const ModelsFlags& flags) {
  std::vector<Listed> all;
  const ModelSettings settings = ModelSettings::parse(flags.settings);
  if (is_onnx_file(flags.model)) {
    // With the loss that takes any output; it has no weights and next to no work.
    const ImportOptions options{.settings = settings, .loss = "mse", .accept_folded = true, .note = print_note};
    const Network network = import_onnx(flags.model, options);
    const Graph g = recognise(network.graph);
    return {{{.name = g.model, .family = "file", .what = "from an ONNX file", .data = "as it takes"},
             figures_of(g),
             input_of(g),
             onnx_summary(onnx::read_file(flags.model), network, g)}};
  }
  for (const ZooEntry& entry : zoo()) {
    if (!flags.model.empty() && entry.name != flags.model) continue;
    const Graph g = build_model(entry.name, settings);
    all.push_back({entry, figures_of(g), input_of(g)});
    for (const auto& [name, value] : settings.all()) all.back().entry.defaults[name] = value;
  }
  if (all.empty()) build_model(flags.model, {});  // says which ones there are
  return all;
}

std::string table_of(const std::vector<Listed>& networks) {
  Table table({"model", "parameters", "FLOPs", "activations", "input", "data"});
  std::string family;
  for (const Listed& n : networks) {
    if (n.entry.family != family) table.add({n.entry.family, "", "", "", "", ""});
    family = n.entry.family;
    table.add({"  " + n.entry.name, with_commas(n.figures.parameters),
               format_count(static_cast<std::int64_t>(n.figures.forward_flops)),
               format_bytes(static_cast<std::int64_t>(n.figures.activation_bytes)), n.input, n.entry.data});
  }
  return table.text();
}

nlohmann::json json_of(const std::vector<Listed>& networks) {
  nlohmann::json all = nlohmann::json::array();
  for (const Listed& n : networks) {
    all.push_back({{"name", n.entry.name},
                   {"family", n.entry.family},
                   {"parameters", n.figures.parameters},
                   {"forward_flops", n.figures.forward_flops},
                   {"activation_bytes", n.figures.activation_bytes},
                   {"settings", n.entry.defaults},
                   {"data", n.entry.data},
                   {"what", n.entry.what}});
    if (!n.file.is_null()) all.back().update(n.file);
  }
  return {{"models", all}};
}

int list_models(const ModelsFlags& flags) {
  const std::vector<Listed> networks = listed(flags);
  if (flags.json) {
    say("{}", dumped(json_of(networks)));
    return 0;
  }
  say("{}", table_of(networks));
  if (flags.model.empty()) {
    say("FLOPs (forward), activations and input are per sample.\n");
    return 0;
  }
  if (!networks[0].file.is_null()) say("{}", text_of(networks[0].file));
  if (networks[0].entry.defaults.empty()) return 0;
  std::vector<std::string> settings;
  for (const auto& [name, value] : networks[0].entry.defaults) settings.push_back(fmt::format("{}={}", name, value));
  say("{}; settings: {}\n", networks[0].entry.what, fmt::join(settings, " "));
  return 0;
}

}  // namespace

void add_models_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ModelsFlags>();
  CLI::App* c = app.add_subcommand("models", "list the networks of the zoo, or look at an ONNX file");
  c->add_option("MODEL", flags->model, "only this one, or an ONNX file, with its settings");
  c->add_option("--set", flags->settings, "settings of the network, for example layers=6");
  c->add_flag("--json", flags->json, "one JSON object as the last line");
  c->footer(
      "Of an ONNX file: what goes in and comes out, what is trained and what is not, and its layers.\n"
      "Example:\n  overtake models resnet-50 --set batch=32,image=160\n  overtake models net.onnx");
  c->callback([flags, &exit_code] { exit_code = list_models(*flags); });
}

}  // namespace overtake
