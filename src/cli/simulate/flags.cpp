#include "cli/simulate/flags.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "cli/simulate/synthetic.h"
#include "machine/kernel_times/calibration.h"

namespace overtake {
namespace {

// The whole text as a number.
template <class Number>
bool reads(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  return std::from_chars(text.data(), end, value) == std::from_chars_result{end, std::errc{}};
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

}  // namespace

void JobFlags::add_to(CLI::App& c) {
  spec.add_to(c, Command::simulate);
  c.add_option("--synthetic", synthetic,
               "instead of a model: stages with their times in ms, for example stages=8,micro=16,f=1,b=1,w=1, or each "
               "with its own: f=1/2/1,b=1/1/2,w=1, and with bytes: kept (activations), sent, weights");
  c.add_option(
      "--measure", measure_on,
      "cpu or cuda: measure the tasks here instead of computing what they take from the machine's description");
}

RunSpec JobFlags::run() const {
  RunSpec run = spec.spec(/*needs_model=*/false);
  if (run.model.empty() == synthetic.empty())
    fail_user("simulate: give a MODEL, or --synthetic stages=8,micro=16,f=1,b=1,w=1");
  if (!synthetic.empty()) {
    const Synthetic pipeline(synthetic, run.stages, run.micro_batches);
    run.stages = pipeline.stages();
    run.micro_batches = pipeline.micro_batches();
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
  c.add_option(
      "--network", network,
      "ideal: transfers take no time on whatever machine; modelled: as its links say; default: as the machine's "
      "file has it");
  c.add_flag("--no-slowdown", no_slowdown, "as if computation and communication did not slow each other");
  c.add_flag("--no-fold", no_fold,
             "simulates every replica, also where those of the first nodes stand for all that do the same");
  c.add_option("--steps", steps, "that follow one another; default: 4, or 1 for synthetic and very large ones")
      ->check(CLI::Range(1, 1000));
  c.add_option("--compare", compare, "all, or names: schedules side by side, fastest first");
  c.add_option("--sweep", sweep, "one after the other: dp, pp, micro-batches, batch or first-k, for example dp=1,2,4");
  c.add_option("--trace", trace, "timeline of the fastest, for `overtake report` and ui.perfetto.dev");
  c.add_option("--chakra", chakra,
               "instead of a model: Chakra execution traces PREFIX.0.et, PREFIX.1.et, ... (docs/chakra.md)");
  c.add_option("--collective", collective,
               "instead of a model: all-reduce, reduce-scatter, all-gather, broadcast, all-to-all or send-recv alone "
               "on the devices, in nccl-tests' terms");
  c.add_option("--bytes", bytes, "of --collective: a size, a list 8,1M,1G, or FIRST:LAST:FACTOR, for example 8:8G:2");
  c.add_option("--devices-per-process", devices_per_process,
               "of --collective, nccl-tests' -g: a process launches the kernels of so many devices in turn; default: "
               "all of a single node of up to eight, otherwise 1")
      ->check(CLI::Range(1, 65535));
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
  if (!network.empty()) {
    const bool is_ideal = network == to_string(NetworkKind::ideal);
    if (!is_ideal && network != to_string(NetworkKind::modelled))
      fail_user("--network {}: it is none of ideal, modelled; leave it out for what the machine has", network);
    if (!machine.has_devices() || machine.kind != Machine::Kind::described)
      fail_user("--network {}: {} has no described network; leave it out", network, machine.name());
    set_network(machine, is_ideal ? NetworkKind::ideal : NetworkKind::modelled);
  }
  const std::uint32_t devices = machine.topology.device_count;
  ClusterOptions& options = machine.options;
  if (no_slowdown || !synthetic.empty()) options.overlap_slows = false;
  // Jobs beside each other share devices and links, and other programs want the trace of every rank.
  machine.folds_replicas = !no_fold && beside.empty() && chakra_out.empty();
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

}  // namespace overtake
