// overtake plan: compiles a run without running it.

#include <cstdio>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/spec_flags.h"
#include "train/planner.h"
#include "train/run_options.h"

namespace overtake {
namespace {

struct PlanFlags {
  SpecFlags spec;
  std::string output;
};

// For a machine that is only described, nothing of this one is opened.
Program planned(Graph model, const RunSpec& spec, const CompileOptions& options) {
  if (spec.machine.empty()) {
    const Workplace place = open_workplace(spec, {.note = print_note});
    return plan_run(std::move(model), spec, place, options).program;
  }
  return compile(std::move(model), spec, machine_of(spec), options);
}

nlohmann::json json_of(const Program& program, const std::string& file) {
  const PlanChoice& choice = program.choice();
  nlohmann::json choices = nlohmann::json::array();
  for (const PlanChoice& c : program.choices)
    choices.push_back({{"plan", c.name},
                       {"predicted_ms", static_cast<double>(c.predicted_ns) * 1e-6},
                       {"measured_ms", static_cast<double>(c.measured_ns) * 1e-6},
                       {"peak_bytes", c.peak_bytes},
                       {"fits", c.fits}});
  return {{"plan", file},
          {"model", program.spec.model},
          {"machine", program.machine.name()},
          {"dp", program.spec.replicas},
          {"pp", program.spec.stages},
          {"micro_batches", program.spec.micro_batches},
          {"tasks", program.step.tasks.size()},
          {"chosen", choice.name},
          {"reason", program.reason.empty() ? choice.reason : program.reason},
          {"predicted_ms", static_cast<double>(choice.predicted_ns) * 1e-6},
          {"peak_bytes", choice.peak_bytes},
          {"choices", choices}};
}

int plan(const PlanFlags& flags) {
  const RunSpec spec = flags.spec.spec();
  check_writable(flags.output);
  flags.spec.check_saving();
  check_spec(spec);
  CompileOptions options;
  if (flags.spec.print_passes) options.print_passes = [](const std::string& text) { fmt::print(stderr, "{}", text); };
  const Program program = planned(load_start(spec, print_note).graph, spec, options);
  flags.spec.save(spec);
  write_file_atomically(flags.output, save_json(program));
  if (flags.spec.json)
    fmt::print("{}\n", json_of(program, flags.output).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    fmt::print("{}\nwritten to {}; run it with `overtake train --plan {}`\n", print(program), flags.output,
               flags.output);
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App* c = app.add_subcommand("plan", "compile a training step for a machine, without running it");
  flags->spec.add_to(*c, Command::plan);
  c->add_option("-o,--out", flags->output, "file to write, for example bert.plan")->required();
  c->footer(
      "Example:\n  overtake plan bert-24 --machine p3.8xlarge --pp 4 --micro-batches 8 --pipeline search -o bert.plan");
  c->callback([flags, &exit_code] { exit_code = plan(*flags); });
}

}  // namespace overtake
