#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/simulate/collective_table.h"
#include "cli/simulate/simulation.h"
#include "sim/chakra/files.h"
#include "train/run_options.h"

namespace overtake {
namespace {

// One simulation for each value of --sweep.
int sweep(const SimulateFlags& flags, RunSpec spec) {
  if (!flags.save_profile.empty())
    fail_user("--save-profile {}: one file holds one measurement; leave out --sweep", flags.save_profile);
  if (flags.spec.saves_plan()) fail_user("--save-plan: one file holds one plan; leave out --sweep");
  const std::size_t at = flags.sweep.find('=');
  const std::string name = flags.sweep.substr(0, at);
  const std::vector<std::string> values =
      at == std::string::npos ? std::vector<std::string>{} : CLI::detail::split(flags.sweep.substr(at + 1), ',');
  if (values.empty()) fail_user("--sweep {}: give NAME=VALUE,VALUE,...", flags.sweep);
  for (const std::string& text : values) {
    std::int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value) !=
            std::from_chars_result{text.data() + text.size(), std::errc{}} ||
        value < 0 || value > 1'000'000'000)
      fail_user("--sweep {}: '{}' is not a whole number", flags.sweep, text);
    const auto count = static_cast<std::uint32_t>(value);
    if (name == "dp") {
      spec.replicas = count;
    } else if (name == "pp") {
      spec.stages = count;
    } else if (name == "micro-batches") {
      spec.micro_batches = count;
    } else if (name == "batch") {
      spec.batch = value;
    } else if (name == "first-k") {
      spec.first_k = text;
    } else {
      fail_user("--sweep {}: there are dp, pp, micro-batches, batch and first-k", flags.sweep);
    }
    if (value < 1 && name != "first-k") fail_user("--sweep {}: {} must be at least 1", flags.sweep, name);
    if (!flags.spec.json) say("{} = {}\n", name, value);
    run_simulation(flags, spec);
  }
  return 0;
}

// The files of a set are one trace.
void check_chakra_out(const SimulateFlags& flags) {
  if (flags.chakra_out.empty() || flags.spec.overwrite) return;
  std::filesystem::path stem = flags.chakra_out;
  const auto old = chakra::find_files(stem);
  if (!old.empty())
    fail_user("--chakra-out {}: {} is there already; give another name, or replace it with --overwrite",
              flags.chakra_out, old.begin()->second.string());
}

int simulate_all(const SimulateFlags& flags) {
  flags.spec.check_outputs({{"--trace", flags.trace, kTimeline}, {"--save-profile", flags.save_profile, kProfile}});
  check_chakra_out(flags);
  if (!flags.collective.empty()) return simulate_collective(flags, flags.spec.spec(/*needs_model=*/false));
  if (!flags.bytes.empty() || flags.devices_per_process > 0)
    fail_user("simulate: --bytes and --devices-per-process are of --collective; give it, for example all-reduce");
  if (!flags.chakra.empty()) return replay_chakra(flags, flags.spec.spec(/*needs_model=*/false));
  const RunSpec spec = flags.run();
  const bool is_plan = spec.model.ends_with(kPlanEnding);
  if (!is_plan) check_spec(spec);
  const int exit_code = is_plan               ? simulate_plan(flags, spec.model)
                        : flags.sweep.empty() ? run_simulation(flags, spec)
                                              : sweep(flags, spec);
  flags.spec.save(spec);
  return exit_code;
}

}  // namespace

void add_simulate_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<SimulateFlags>();
  CLI::App* c = app.add_subcommand("simulate", "a training step on a cluster that is only described");
  flags->add_to(*c);
  c->footer(
      "Example:\n  overtake simulate bert-24 --machine p3.8xlarge:2 --pp 8 --micro-batches 32 --compare all\n"
      "  overtake simulate --collective all-reduce --bytes 8:8G:8 --machine dgx-h100 --devices 0-3");
  c->callback([flags, &exit_code] { exit_code = simulate_all(*flags); });
}

}  // namespace overtake
