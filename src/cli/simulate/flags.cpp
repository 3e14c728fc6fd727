#include "cli/simulate/flags.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "machine/kernel_times/calibration.h"

namespace overtake {
namespace {

// The whole text as a number.
template <class Number>
bool reads(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  return std::from_chars(text.data(), end, value) == std::from_chars_result{end, std::errc{}};
}

// "KEY=VALUE,..." with whole or decimal values.
std::map<std::string, double> parse_pairs(const std::string& text, const char* where) {
  std::map<std::string, double> values;
  for (const std::string& item : CLI::detail::split(text, ',')) {
    const std::size_t at = item.find('=');
    double value = 0;
    if (at == std::string::npos || at == 0 || !reads(std::string_view(item).substr(at + 1), value))
      fail_user("{} {}: '{}' is not NAME=NUMBER", where, text, item);
    values[item.substr(0, at)] = value;
  }
  return values;
}

// "DEVICE:VALUE".
std::pair<std::uint32_t, double> parse_device(const std::string& text, const char* where, std::uint32_t devices) {
  const std::size_t at = std::min(text.find(':'), text.size());
  std::uint32_t device = 0;
  double value = 0;
  if (at == text.size() || !reads(std::string_view(text).substr(0, at), device) ||
      !reads(std::string_view(text).substr(at + 1), value))
    fail_user("{} {}: give DEVICE:NUMBER, for example 3:0.8", where, text);
  if (device >= devices) fail_user("{} {}: the cluster has devices 0 to {}", where, text, devices - 1);
  return {device, value};
}

// The settings of --synthetic, each taken out by its name.
class SyntheticSettings {
 public:
  explicit SyntheticSettings(const std::string& text) : text_(text), values_(parse_pairs(text, "--synthetic")) {
    for (const auto& [name, value] : values_)
      if (std::ranges::find(kNames, name) == std::end(kNames))
        fail_user("--synthetic {}: no setting '{}'; there are stages, micro, blocks, f, b, w (milliseconds)", text_,
                  name);
  }
  double number(const std::string& name, double fallback) const {
    const auto at = values_.find(name);
    const double value = at == values_.end() ? fallback : at->second;
    if (!(value >= 0 && value <= kMost))
      fail_user("--synthetic {}: {} is {}; it must be from 0 to {}", text_, name, value, kMost);
    return value;
  }
  std::uint32_t whole(const std::string& name, double fallback) const {
    const double value = number(name, fallback);
    if (value < 1 || value > 65535 || value != static_cast<double>(static_cast<std::uint32_t>(value)))
      fail_user("--synthetic {}: {} is {}; it must be a whole number of 1 or more", text_, name, value);
    return static_cast<std::uint32_t>(value);
  }

 private:
  static constexpr double kMost = 1e9;  // milliseconds
  static constexpr std::string_view kNames[] = {"stages", "micro", "blocks", "f", "b", "w"};
  const std::string& text_;
  std::map<std::string, double> values_;
};

}  // namespace

void JobFlags::add_to(CLI::App& c) {
  spec.add_to(c, Command::simulate);
  c.add_option("--synthetic", synthetic,
               "instead of a model: equal stages, times in ms, for example stages=8,micro=16,f=1,b=1,w=1");
  c.add_option(
      "--measure", measure_on,
      "cpu or cuda: measure the tasks here instead of computing what they take from the machine's description");
}

RunSpec JobFlags::run() const {
  RunSpec run = spec.spec(/*needs_model=*/false);
  if (run.model.empty() == synthetic.empty())
    fail_user("simulate: give a MODEL, or --synthetic stages=8,micro=16,f=1,b=1,w=1");
  if (!synthetic.empty()) {
    const SyntheticSettings settings_of(synthetic);
    run.stages = settings_of.whole("stages", run.stages);
    run.micro_batches = settings_of.whole("micro", run.micro_batches);
  }
  return run;
}

void SimulateFlags::add_to(CLI::App& c) {
  JobFlags::add_to(c);
  c.add_option("--beside", beside,
               "another job on the same machine, as \"MODEL --dp 2 --batch 8\"; on the next free devices, or those of "
               "its --devices; may come several times")
      ->allow_extra_args(false);
  c.add_option("--calibrate", calibrate,
               "a file of a few kernels measured on such a device (docs/machines.md), which correct what tasks are "
               "computed to take");
  c.add_option("--save-profile", save_profile,
               "writes what --measure measured; a machine file then has it as `profile = \"FILE\"` of a device");
  c.add_option("--slow", slow, "DEVICE:SPEED, a straggler, for example 3:0.8")->allow_extra_args(false);
  c.add_option("--fail", fail, "DEVICE:MS, a device that is gone from then on: who waits for whom; exit status 2")
      ->allow_extra_args(false);
  c.add_flag("--no-slowdown", no_slowdown, "as if computation and communication did not slow each other");
  c.add_option("--steps", steps, "that follow one another; default: 4, or 1 for synthetic and very large ones")
      ->check(CLI::Range(1, 1000));
  c.add_option("--compare", compare, "all, or names: schedules side by side, fastest first");
  c.add_option("--sweep", sweep, "one after the other: dp, pp, micro-batches, batch or first-k, for example dp=1,2,4");
  c.add_option("--trace", trace, "timeline of the fastest, for `overtake report` and ui.perfetto.dev");
  c.add_option("--chakra", chakra,
               "instead of a model: Chakra execution traces PREFIX.0.et, PREFIX.1.et, ... (docs/chakra.md)");
  c.add_option("--chakra-out", chakra_out, "writes the fastest as Chakra execution traces PREFIX.0.et, ...");
}

Cluster SimulateFlags::corrected(Cluster cluster) const {
  if (calibrate.empty()) return cluster;
  for (DeviceType& device : cluster.devices) {
    if (device.f32_flops == 0)
      fail_user("--calibrate {}: device {} has no rates that it could correct; describe them in the machine file",
                calibrate, device.name);
    load_calibration(calibrate, device);
    device.calibration = calibrate;
  }
  return cluster;
}

void SimulateFlags::add_scenario(Machine& machine) const {
  const std::uint32_t devices = machine.topology.device_count;
  ClusterOptions& options = machine.options;
  if (no_slowdown || !synthetic.empty()) options.overlap_slows = false;
  if (!slow.empty() && options.speeds.empty()) options.speeds.assign(devices, 1);
  for (const std::string& text : slow) {
    const auto [device, speed] = parse_device(text, "--slow", devices);
    options.speeds[device] *= speed;
    if (!is_speed(options.speeds[device]))
      fail_user("--slow {}: the speed must be from {} to {}; 1 is as described", text, kLeastSpeed, kMostSpeed);
  }
  for (const std::string& text : fail) {
    const auto [device, ms] = parse_device(text, "--fail", devices);
    if (!(ms >= 0 && ms < 1e12)) fail_user("--fail {}: the time must be 0 ms or more", text);
    options.failures.push_back({device, static_cast<std::int64_t>(ms * 1e6)});
  }
}

JobFlags job_from_text(const std::string& text) {
  CLI::App app;
  app.set_help_flag();
  JobFlags job;
  job.add_to(app);
  try {
    app.parse(text, false);
    job.run();
  } catch (const CLI::ParseError& error) {
    fail_user("--beside \"{}\": {}; give a job as on the command line, for example \"resnet-50 --dp 2 --batch 64\"",
              text, error.what());
  } catch (const UserError& error) {
    fail_user("--beside \"{}\": {}", text, error.what());
  }
  return job;
}

Workload synthetic_workload(const std::string& synthetic, const RunSpec& spec) {
  const SyntheticSettings settings(synthetic);
  const std::uint32_t stages = spec.stages;
  const std::uint32_t blocks = settings.whole("blocks", stages * 2.0);  // two each: any schedule can be made
  // A stage's time over its blocks, in nanoseconds.
  const auto ns = [&](const char* name) {
    return static_cast<std::int64_t>(settings.number(name, 1) * 1e6 * stages / blocks + 0.5);
  };
  return {.blocks = synthetic_blocks(blocks, ns("f"), ns("b"), ns("w"))};
}

}  // namespace overtake
