// overtake plan: compiles a run without running it.

#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/connect_ranks.h"
#include "cli/say.h"
#include "cli/spec_flags.h"
#include "launch/worker.h"
#include "train/planner.h"
#include "train/run_options.h"

namespace overtake {
namespace {

struct PlanFlags {
  SpecFlags spec;
  std::string output, compare;
};

// For a machine that is only described, nothing of this one is opened; otherwise the processes of a job plan together.
Program planned(Graph model, RunSpec& spec, const CompileOptions& options) {
  if (spec.machine.empty()) {
    WorkplaceOptions there{.note = print_note};
    connect_ranks(spec, there);
    const Workplace place = open_workplace(spec, there);
    return plan_run(std::move(model), spec, place, options).program;
  }
  return compile(std::move(model), spec, machine_of(spec), options);
}

nlohmann::json json_of_program(const Program& program, const std::string& file) {
  const PlanChoice& choice = program.choice();
  nlohmann::json choices = nlohmann::json::array();
  for (const PlanChoice& c : program.choices)
    choices.push_back({{"plan", c.name},
                       {"predicted_ms", static_cast<double>(c.predicted_ns) * 1e-6},
                       {"measured_ms", static_cast<double>(c.measured_ns) * 1e-6},
                       {"peak_bytes", c.most_bytes()},
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
          {"peak_bytes", choice.most_bytes()},
          {"peak_bytes_by_device", choice.peak_bytes},
          {"spec", json_of(program.spec)},
          {"choices", choices}};
}

// What is in a plan file, or in what it differs from another.
int look(const PlanFlags& flags, const std::string& file) {
  if (!flags.output.empty()) fail_user("--out {}: {} is a plan already; leave it out", flags.output, file);
  const std::vector<const Field*> given = flags.spec.given();
  if (flags.spec.saves()) fail_user("--save-spec: {} is planned already; leave it out", file);
  if (given.size() > 1) fail_user("`{}`: {} is planned already; leave it out", given[1]->name, file);
  const Program program = read_program(file, file);
  if (flags.compare.empty()) {
    say("{}", flags.spec.json ? dumped(json_of_program(program, file)) : print(program));
    return 0;
  }
  const std::string text = difference(program, read_program(flags.compare, flags.compare));
  if (flags.spec.json)
    say("{}", dumped({{"plan", file}, {"other", flags.compare}, {"difference", text}}));
  else
    say("{}", text.empty() ? "the two are equal\n" : fmt::format("{} | {}\n{}", file, flags.compare, text));
  return 0;
}

int plan(const PlanFlags& flags) {
  RunSpec spec = flags.spec.spec();
  if (spec.model.ends_with(kPlanEnding)) return look(flags, spec.model);
  if (!flags.compare.empty()) fail_user("--compare {}: it compares two plan files; give one as MODEL", flags.compare);
  if (flags.output.empty()) fail_user("--out: give the file to write, for example -o {}.plan", spec.model);
  const std::optional<Worker> worker = worker_from_environment();
  const bool is_first = !worker || worker->rank == 0;
  check_spec(spec);
  if (is_first) flags.spec.check_outputs({{"--out", flags.output, kPlanFile}});
  CompileOptions options;
  if (flags.spec.print_passes) options.print_passes = [](const std::string& text) { say(stderr, "{}", text); };
  const RunSpec as_given = spec;
  const Program program = planned(load_start(spec, print_note).graph, spec, options);
  if (!is_first) return 0;
  flags.spec.save(as_given);
  write_file_atomically(flags.output, save_json(program));
  if (flags.spec.json)
    say("{}", dumped(json_of_program(program, flags.output)));
  else
    say("{}\nwritten to {}; run it with `overtake train --plan {}`\n", print(program), flags.output, flags.output);
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App* c =
      app.add_subcommand("plan", "compile a training step for a machine, without running it; or show a plan file");
  flags->spec.add_to(*c, Command::plan);
  c->add_option("-o,--out", flags->output, "file to write, for example bert.plan");
  c->add_option("--compare", flags->compare, "of a plan file as MODEL: says in what this other one differs from it");
  c->footer(
      "Example:\n  overtake plan bert-24 --machine p3.8xlarge --pp 4 --micro-batches 8 --pipeline search -o "
      "bert.plan\n  overtake plan bert.plan");
  c->callback([flags, &exit_code] { exit_code = plan(*flags); });
}

}  // namespace overtake
