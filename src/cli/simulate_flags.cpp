#include "cli/simulate_flags.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "base/units.h"
#include "sim/collective_lanes.h"

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

// "0-3,8".
std::vector<std::uint32_t> parse_devices(const std::string& text) {
  constexpr std::uint32_t kMost = 65535;
  std::vector<std::uint32_t> devices;
  for (const std::string& item : CLI::detail::split(text, ',')) {
    const std::size_t at = std::min(item.find('-'), item.size());
    std::uint32_t first = 0, last = 0;
    bool is_good = reads(std::string_view(item).substr(0, at), first);
    last = first;
    if (at < item.size()) is_good = is_good && reads(std::string_view(item).substr(at + 1), last);
    if (!is_good || last < first || last > kMost)
      fail_user("--devices {}: '{}' is no device and no range; give for example 0-3,8", text, item);
    for (std::uint32_t d = first; d <= last; ++d) devices.push_back(d);
  }
  return devices;
}

Algorithm algorithm_of(const std::string& name) {
  for (const Algorithm a : {Algorithm::automatic, Algorithm::ring, Algorithm::tree, Algorithm::halving_doubling,
                            Algorithm::hierarchical, Algorithm::in_network})
    if (to_string(a) == name) return a;
  fail_user("--algorithm {}: choose auto, ring, tree, halving-doubling, hierarchical or in-network", name);
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
    if (!(value >= 0)) fail_user("--synthetic {}: {} is {}; it must not be negative", text_, name, value);
    return value;
  }
  std::uint32_t whole(const std::string& name, double fallback) const {
    const double value = number(name, fallback);
    if (value < 1 || value > 65535 || value != static_cast<double>(static_cast<std::uint32_t>(value)))
      fail_user("--synthetic {}: {} is {}; it must be a whole number of 1 or more", text_, name, value);
    return static_cast<std::uint32_t>(value);
  }

 private:
  static constexpr std::string_view kNames[] = {"stages", "micro", "blocks", "f", "b", "w"};
  const std::string& text_;
  std::map<std::string, double> values_;
};

}  // namespace

void JobFlags::add_to(CLI::App& c) {
  c.add_option("MODEL", model, "a network of the zoo (`overtake models` lists them) or an ONNX file");
  c.add_option("--set", settings, "settings of the network, for example layers=6,width=512");
  c.add_option("--synthetic", synthetic,
               "instead of a model: equal stages, times in ms, for example stages=8,micro=16,f=1,b=1,w=1");
  c.add_option("--batch", batch, "samples of a step over all devices; default: the network's for each piece")
      ->check(CLI::NonNegativeNumber);
  c.add_option("--dp", run.parallel.replicas, "replicas, data parallel")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  c.add_option("--pp", run.parallel.stages, "devices of a pipeline")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  c.add_option("--devices", devices, "which of the cluster, replica by replica, for example 0-3,8; default: the first");
  c.add_option("--micro-batches", run.parallel.micro_batches, "of each replica")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  std::string schedules = "of the pipeline: search";
  for (const NamedSchedule& named : named_schedules()) schedules += fmt::format(", {}", named.name);
  c.add_option("--pipeline", run.parallel.pipeline, schedules)->capture_default_str();
  c.add_option("--chunks", run.parallel.schedule_options.chunks, "per device, of interleaved")->capture_default_str();
  c.add_option("--group", run.parallel.schedule_options.group, "blocks per chunk, of modulo")->capture_default_str();
  c.add_option("--search-tries", run.parallel.search_tries,
               "for --pipeline search: schedules to try; default: what takes about two seconds");
  c.add_flag("--weights-once", weights_once, "for --pipeline search: no layer on two devices, as dualpipe has them");
  c.add_option("--reduce", run.parallel.reduce,
               "how replicas sum their gradients: buckets (as PyTorch DDP), by-layer (priorities), scatter-gather "
               "(across the step), "
               "first-k (by-layer, the first k weight gradients last)")
      ->capture_default_str();
  c.add_option("--first-k", first_k, "k of --reduce first-k, or 12@30: the 12 after the first 30; default: the best");
  c.add_option("--bucket", bucket, "bytes of a bucket")->capture_default_str();
  c.add_option("--precision", precision, "f32, tf32 or bf16")->capture_default_str();
  c.add_option(
      "--measure", measure_on,
      "cpu or cuda: measure the tasks here instead of computing what they take from the cluster's description");
  c.add_option("--optimizer", optimizer, "sgd or adamw")->capture_default_str();
  c.add_flag("--recompute", recompute, "activations are computed again for the gradients instead of kept");
}

void JobFlags::complete() {
  if (model.empty() == synthetic.empty())
    fail_user("simulate: give a MODEL, or --synthetic stages=8,micro=16,f=1,b=1,w=1");
  if (!synthetic.empty()) {
    const SyntheticSettings settings_of(synthetic);
    run.parallel.stages = settings_of.whole("stages", run.parallel.stages);
    run.parallel.micro_batches = settings_of.whole("micro", run.parallel.micro_batches);
  }
  if (!first_k.empty()) run.parallel.first_k = first_k_from_string(first_k);
  run.parallel.bucket_bytes = parse_bytes(bucket, "--bucket");
  run.parallel.may_repeat_weights = !weights_once;
  if (!devices.empty()) run.devices = parse_devices(devices);
}

void SimulateFlags::add_to(CLI::App& c) {
  JobFlags::add_to(c);
  c.add_option(
      "--machine,--cluster", cluster,
      "a file (docs/machines.md) or a preset, for example dgx-h100:4; default: h200, or ideal for --synthetic");
  c.add_option("--beside", beside,
               "another job on the same cluster, as \"MODEL --dp 2 --batch 8\"; on the next free devices, or those of "
               "its --devices; may come several times")
      ->allow_extra_args(false);
  c.add_option("--save-profile", save_profile,
               "writes what --measure measured; a machine file then has it as `profile = \"FILE\"` of a device");
  c.add_option("--chunk", chunk, "a more urgent collective goes first after so many bytes; 0: never")
      ->capture_default_str();
  c.add_option("--algorithm", algorithm,
               "of collectives: auto (as NCCL), ring, tree, halving-doubling, hierarchical, in-network")
      ->capture_default_str();
  c.add_option("--memory-cap", memory_cap, "most memory of a device, for example 40G; default: what it has");
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
  c.add_flag("--json", json, "one JSON object as the last line");
}

ClusterOptions SimulateFlags::cluster_options(const Cluster& description, const Topology& topology) const {
  ClusterOptions options;
  options.algorithm = algorithm_of(algorithm);
  options.chunk_bytes = parse_bytes(chunk, "--chunk");
  options.overlap_slows = !no_slowdown && synthetic.empty();
  if (description.name == "ideal") options.protocol = Protocol::ideal;
  if (!slow.empty()) options.speeds.assign(topology.device_count, 1);
  for (const std::string& text : slow) {
    const auto [device, speed] = parse_device(text, "--slow", topology.device_count);
    if (!(speed > 0)) fail_user("--slow {}: the speed must be above 0; 1 is as described", text);
    options.speeds[device] = speed;
  }
  for (const std::string& text : fail) {
    const auto [device, ms] = parse_device(text, "--fail", topology.device_count);
    if (!(ms >= 0 && ms < 1e12)) fail_user("--fail {}: the time must be 0 ms or more", text);
    options.failures.push_back({device, static_cast<std::int64_t>(ms * 1e6)});
  }
  options.is_fluid = topology.device_count > 64;
  return options;
}

JobFlags job_from_text(const std::string& text) {
  CLI::App app;
  app.set_help_flag();
  JobFlags job;
  job.add_to(app);
  try {
    app.parse(text, false);
    job.complete();
  } catch (const CLI::ParseError& error) {
    fail_user("--beside \"{}\": {}; give a job as on the command line, for example \"resnet-50 --dp 2 --batch 64\"",
              text, error.what());
  } catch (const UserError& error) {
    fail_user("--beside \"{}\": {}", text, error.what());
  }
  return job;
}

Workload synthetic_workload(const JobFlags& job) {
  const SyntheticSettings settings(job.synthetic);
  const std::uint32_t stages = job.run.parallel.stages;
  const std::uint32_t blocks = settings.whole("blocks", stages * 2.0);  // two each: any schedule can be made
  // A stage's time over its blocks, in nanoseconds.
  const auto ns = [&](const char* name) {
    return static_cast<std::int64_t>(settings.number(name, 1) * 1e6 * stages / blocks + 0.5);
  };
  return {.blocks = synthetic_blocks(blocks, ns("f"), ns("b"), ns("w"))};
}

}  // namespace overtake
