#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/simulated_runs.h"
#include "cli/workload.h"
#include "cost/roofline.h"
#include "report/perfetto.h"
#include "report/table.h"
#include "sim/chakra/chakra.h"

namespace overtake {
namespace {

struct SimulateFlags : WorkloadSpec {
  std::string synthetic, cluster;
  RunSpec run;
  int steps = 0;
  int first_k = -1;
  std::string memory_cap, bucket = "25M", algorithm = "auto", chunk = "4M", compare, sweep, trace, chakra, chakra_out;
  std::vector<std::string> slow, fail;
  bool no_slowdown = false, json = false;
};

constexpr std::uint64_t kTasksForManySteps = 300'000;  // of a plan; larger ones run one step
constexpr const char* kCluster = "h200";
constexpr int kSteps = 4;  // that follow one another, for the time between two

// "KEY=VALUE,..." with whole or decimal values.
std::map<std::string, double> parse_pairs(const std::string& text, const char* where) {
  std::map<std::string, double> values;
  for (const std::string& item : CLI::detail::split(text, ',')) {
    const std::size_t at = item.find('=');
    double value = 0;
    const char* end = item.data() + item.size();
    if (at == std::string::npos || at == 0 ||
        std::from_chars(item.data() + at + 1, end, value) != std::from_chars_result{end, std::errc{}})
      fail_user("{} {}: '{}' is not NAME=NUMBER", where, text, item);
    values[item.substr(0, at)] = value;
  }
  return values;
}

// "DEVICE:VALUE".
std::pair<std::uint32_t, double> parse_device(const std::string& text, const char* where, std::uint32_t devices) {
  std::uint32_t device = 0;
  double value = 0;
  const char *begin = text.data(), *end = begin + text.size();
  const auto first = std::from_chars(begin, end, device);
  const bool is_good = first.ec == std::errc{} && first.ptr != end && *first.ptr == ':' &&
                       std::from_chars(first.ptr + 1, end, value) == std::from_chars_result{end, std::errc{}};
  if (!is_good) fail_user("{} {}: give DEVICE:NUMBER, for example 3:0.8", where, text);
  if (device >= devices) fail_user("{} {}: the cluster has devices 0 to {}", where, text, devices - 1);
  return {device, value};
}

Algorithm algorithm_of(const std::string& name) {
  for (const Algorithm a : {Algorithm::automatic, Algorithm::ring, Algorithm::tree, Algorithm::halving_doubling,
                            Algorithm::hierarchical, Algorithm::in_network})
    if (to_string(a) == name) return a;
  fail_user("--algorithm {}: choose auto, ring, tree, halving-doubling, hierarchical or in-network", name);
}

Workload synthetic_workload(SimulateFlags& flags) {
  std::map<std::string, double> v = parse_pairs(flags.synthetic, "--synthetic");
  const auto take = [&](const char* name, double fallback) {
    const auto at = v.find(name);
    const double value = at == v.end() ? fallback : at->second;
    if (at != v.end()) v.erase(at);
    if (!(value >= 0)) fail_user("--synthetic {}: {} is {}; it must not be negative", flags.synthetic, name, value);
    return value;
  };
  const auto whole = [&](const char* name, double fallback) {
    const double value = take(name, fallback);
    if (value < 1 || value > 65535 || value != static_cast<double>(static_cast<std::uint32_t>(value)))
      fail_user("--synthetic {}: {} is {}; it must be a whole number of 1 or more", flags.synthetic, name, value);
    return static_cast<std::uint32_t>(value);
  };
  flags.run.stages = whole("stages", flags.run.stages);
  flags.run.micro_batches = whole("micro", flags.run.micro_batches);
  const std::uint32_t blocks = whole("blocks", flags.run.stages * 2.0);  // two each: any schedule can be made
  // A stage's time over its blocks, in nanoseconds.
  const auto ns = [&](const char* name) {
    return static_cast<std::int64_t>(take(name, 1) * 1e6 * flags.run.stages / blocks + 0.5);
  };
  const std::int64_t f = ns("f"), b = ns("b"), w = ns("w");
  if (!v.empty())
    fail_user("--synthetic {}: no setting '{}'; there are stages, micro, blocks, f, b, w (milliseconds)",
              flags.synthetic, v.begin()->first);
  return {.blocks = synthetic_blocks(blocks, f, b, w)};
}

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

struct Shares {
  double busy = 0, exposed = 0, bubble = 0;  // of the step, on average over devices
};
Shares shares_of(const SimulatedRun& run) {
  Shares s;
  const double all = static_cast<double>(run.result.trace.step_ns) * static_cast<double>(run.times.size());
  for (const DeviceTime& t : run.times) {
    s.busy += static_cast<double>(t.busy_ns) / all;
    s.exposed += static_cast<double>(t.exposed_ns) / all;
    s.bubble += static_cast<double>(t.bubble_ns) / all;
  }
  return s;
}

nlohmann::json json_of(const SimulatedRun& run, std::int64_t samples, bool fits) {
  nlohmann::json devices = nlohmann::json::array();
  for (std::size_t d = 0; d < run.times.size(); ++d) {
    nlohmann::json memory;
    for (std::size_t i = 0; i < kMemoryGroups.size(); ++i)
      memory[std::string(kMemoryGroups[i])] = run.peaks[d].groups[i];
    devices.push_back({{"busy_ms", static_cast<double>(run.times[d].busy_ns) * 1e-6},
                       {"exposed_ms", static_cast<double>(run.times[d].exposed_ns) * 1e-6},
                       {"bubble_ms", static_cast<double>(run.times[d].bubble_ns) * 1e-6},
                       {"peak_bytes", run.peaks[d].bytes},
                       {"peak_memory", memory}});
  }
  return {{"schedule", run.name},
          {"reason", run.reason},
          {"step_ms", run.step_ms()},
          {"samples_per_s", samples > 0 ? 1e3 * static_cast<double>(samples) / run.step_ms() : 0},
          {"tasks", run.plan.plan.graph.tasks.size()},
          {"fits", fits},
          {"devices", devices}};
}

std::string table_of(const std::vector<SimulatedRun>& runs, const RunSimulator& runner, std::int64_t samples) {
  Table table(
      {"schedule", "ms/step", "samples/s", "busy", "exposed comm.", "bubble", "peak memory", "weights", "activations"});
  for (const SimulatedRun& run : runs) {
    const Shares s = shares_of(run);
    const SimulatedRun::Peak& peak = run.largest_peak();
    table.add({run.name, fmt::format("{:.3f}", run.step_ms()),
               samples > 0 ? fmt::format("{:.1f}", 1e3 * static_cast<double>(samples) / run.step_ms()) : "",
               percent(s.busy), percent(s.exposed), percent(s.bubble),
               format_bytes(peak.bytes) + (runner.fits(run) ? "" : ", too much"), format_bytes(peak.groups[0]),
               format_bytes(peak.groups[1])});
  }
  return table.text();
}

void check_finished(const SimulatedRun& run) {
  if (run.result.is_finished) return;
  std::string why = run.result.stuck.empty() ? "" : run.result.stuck[0].why;
  fail_user("simulate: {}: the step does not end: {}", run.name, why);
}

// The ways that --compare sets side by side.
std::vector<RunSpec> compared(const RunSpec& spec, const std::string& which) {
  std::vector<RunSpec> all;
  const auto add = [&](auto change) {
    RunSpec s = spec;
    change(s);
    all.push_back(std::move(s));
  };
  const std::vector<std::string> names = which == "all" ? std::vector<std::string>{} : CLI::detail::split(which, ',');
  if (spec.stages > 1) {
    for (const NamedSchedule& named : named_schedules())
      if (names.empty() || std::ranges::find(names, named.name) != names.end())
        add([&](RunSpec& s) { s.schedule = named.name; });
    if (names.empty() || std::ranges::find(names, "search") != names.end())
      add([](RunSpec& s) { s.schedule = "search"; });
  } else {
    for (const char* order : {"buckets", "by-layer", "scatter-gather", "first-k"})
      if (names.empty() || std::ranges::find(names, order) != names.end()) add([&](RunSpec& s) { s.reduce = order; });
  }
  if (all.empty()) fail_user("--compare {}: none of these is known", which);
  return all;
}

class Simulation {
 public:
  explicit Simulation(SimulateFlags flags) : flags_(std::move(flags)) {
    if (flags_.first_k >= 0 && flags_.run.reduce != "first-k" && flags_.compare.empty())
      fail_user("--first-k {}: it is for --reduce first-k, not {}", flags_.first_k, flags_.run.reduce);
    if (flags_.model.empty() == flags_.synthetic.empty())
      fail_user("simulate: give a MODEL, or --synthetic stages=8,micro=16,f=1,b=1,w=1");
    if (!flags_.synthetic.empty()) {
      work_ = synthetic_workload(flags_);
      if (flags_.cluster.empty()) flags_.cluster = fmt::format("ideal:{}", flags_.run.stages * flags_.run.replicas);
    }
    if (flags_.cluster.empty()) flags_.cluster = kCluster;
    cluster_ = load_cluster(flags_.cluster);
    topology_ = make_topology(cluster_);
    if (flags_.synthetic.empty())
      work_ = model_workload(flags_, flags_.run, cluster_.devices[topology_.vertices[0].type]);
    read_options();
  }

  int run() {
    const RunSimulator runner(work_.blocks, cluster_, topology_, options_, memory_);
    std::vector<SimulatedRun> runs;
    std::vector<std::string> left_out;
    const std::vector<RunSpec> specs =
        flags_.compare.empty() ? std::vector{flags_.run} : compared(flags_.run, flags_.compare);
    for (const RunSpec& spec : specs) {
      try {
        SimulatedRun run = runner.run(spec);
        check_finished(run);
        runs.push_back(std::move(run));
      } catch (const UserError& error) {
        if (specs.size() == 1) throw;
        left_out.emplace_back(error.what());
      }
    }
    if (runs.empty()) fail_user("simulate: nothing of this can run: {}", left_out.front());
    std::ranges::stable_sort(runs, {}, [&](const SimulatedRun& r) { return std::pair(!runner.fits(r), r.step_ms()); });
    if (specs.size() == 1 && !runner.fits(runs[0]))
      fail_user(
          "simulate: {} needs {} on a device, which has {}; use more stages (--pp), more micro-batches, --recompute, "
          "or --memory-cap to see it all the same",
          runs[0].name, format_bytes(runs[0].largest_peak().bytes), format_bytes(*memory_));
    if (!flags_.trace.empty())
      write_file_atomically(
          flags_.trace, perfetto_json({{runs[0].name, &runs[0].plan.plan, {runs[0].result.trace}, flags_.cluster}}));
    if (!flags_.chakra_out.empty()) write_chakra(runs[0].plan.plan, runs[0].result.trace, flags_.chakra_out);
    print(runs, runner, left_out);
    return 0;
  }

 private:
  void read_options() {
    RunSpec& run = flags_.run;
    if (flags_.first_k >= 0) run.first_k = static_cast<std::uint32_t>(flags_.first_k);
    run.bucket_bytes = parse_bytes(flags_.bucket, "--bucket");
    const std::uint64_t tasks = std::uint64_t{run.replicas} * run.micro_batches * work_.blocks.blocks.size() * 3;
    run.steps = flags_.steps > 0 ? flags_.steps : !flags_.synthetic.empty() || tasks > kTasksForManySteps ? 1 : kSteps;
    options_.algorithm = algorithm_of(flags_.algorithm);
    options_.chunk_bytes = parse_bytes(flags_.chunk, "--chunk");
    options_.overlap_slows = !flags_.no_slowdown && flags_.synthetic.empty();
    if (cluster_.name == "ideal") options_.protocol = Protocol::ideal;
    if (!flags_.slow.empty()) options_.speeds.assign(topology_.device_count, 1);
    for (const std::string& text : flags_.slow) {
      const auto [device, speed] = parse_device(text, "--slow", topology_.device_count);
      if (!(speed > 0)) fail_user("--slow {}: the speed must be above 0; 1 is as described", text);
      options_.speeds[device] = speed;
    }
    for (const std::string& text : flags_.fail) {
      const auto [device, ms] = parse_device(text, "--fail", topology_.device_count);
      options_.failures.push_back({device, static_cast<std::int64_t>(ms * 1e6)});
    }
    const std::int64_t memory = cluster_.devices[topology_.vertices[0].type].memory_bytes;
    if (!flags_.memory_cap.empty()) {
      memory_ = parse_bytes(flags_.memory_cap, "--memory-cap");
    } else if (flags_.synthetic.empty() && memory > 0) {
      memory_ = memory;
    }
    options_.is_fluid = topology_.device_count > 64;
  }

  void print(const std::vector<SimulatedRun>& runs, const RunSimulator& runner,
             const std::vector<std::string>& left_out) const {
    if (flags_.json) {
      nlohmann::json out = {{"model", work_.blocks.graph.model},
                            {"cluster", cluster_.name},
                            {"dp", flags_.run.replicas},
                            {"pp", flags_.run.stages},
                            {"micro_batches", flags_.run.micro_batches},
                            {"blocks", work_.blocks.blocks.size()},
                            {"runs", nlohmann::json::array()},
                            {"left_out", left_out}};
      for (const SimulatedRun& run : runs) out["runs"].push_back(json_of(run, work_.samples, runner.fits(run)));
      out["step_ms"] = runs[0].step_ms();
      fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      return;
    }
    fmt::print("{}: {} blocks on {} of {} devices of {}, {} x {} (data x pipeline), {} micro-batch{}\n{}",
               work_.blocks.graph.model, work_.blocks.blocks.size(), flags_.run.replicas * flags_.run.stages,
               topology_.device_count, cluster_.name, flags_.run.replicas, flags_.run.stages, flags_.run.micro_batches,
               flags_.run.micro_batches == 1 ? "" : "es", table_of(runs, runner, work_.samples));
    for (const SimulatedRun& run : runs)
      if (!run.reason.empty()) fmt::print("{}: {}\n", run.name, run.reason);
    for (const std::string& text : left_out) fmt::print("left out: {}\n", text);
  }

  SimulateFlags flags_;
  Workload work_;
  Cluster cluster_;
  Topology topology_;
  ClusterOptions options_;
  std::optional<std::int64_t> memory_;
};

// What another program traced, on the cluster.
int replay(const SimulateFlags& flags) {
  const ChakraPlan traced = read_chakra(flags.chakra);
  const Cluster cluster = load_cluster(flags.cluster.empty() ? kCluster : flags.cluster);
  const Topology topology = make_topology(cluster);
  ClusterJob job{.plan = &traced.plan, .work = {}};
  for (const Lane& lane : traced.plan.lanes)
    if (std::ranges::find(job.devices, lane.device) == job.devices.end()) job.devices.push_back(lane.device);
  std::ranges::sort(job.devices);
  if (job.devices.empty() || job.devices.back() >= topology.device_count)
    fail_user("simulate: {} has {} ranks, and cluster {} has {} devices; add nodes (a preset takes them as NAME:4)",
              flags.chakra, job.devices.size(), cluster.name, topology.device_count);
  const DeviceType& device = cluster.devices[topology.vertices[0].type];
  std::vector<TaskWork> work(traced.plan.graph.tasks.size());
  const RooflineOptions part;
  for (TaskId t = 0; t < work.size(); ++t) {
    const auto ns = [](std::int64_t amount, double share, std::int64_t rate) {
      return static_cast<std::int64_t>(1e9 * static_cast<double>(amount) / (share * static_cast<double>(rate)));
    };
    work[t].compute_ns = ns(traced.operations[t], part.matrix_part, device.bf16_flops);
    work[t].memory_ns = ns(traced.bytes[t], part.bandwidth_part, device.memory_bandwidth);
    work[t].ns = traced.durations_ns[t] > 0 ? traced.durations_ns[t] : std::max(work[t].compute_ns, work[t].memory_ns);
    work[t].compute_ns = std::min(work[t].compute_ns, work[t].ns);
    work[t].memory_ns = std::min(work[t].memory_ns, work[t].ns);
  }
  job.work = work;
  ClusterOptions options;
  options.algorithm = algorithm_of(flags.algorithm);
  options.chunk_bytes = parse_bytes(flags.chunk, "--chunk");
  options.overlap_slows = !flags.no_slowdown;
  const JobResult result = simulate(cluster, topology, {&job, 1}, options)[0];
  if (!result.is_finished)
    fail_user("simulate: {} does not end: {}", flags.chakra, result.stuck.empty() ? "" : result.stuck[0].why);
  const std::vector<DeviceTime> times = device_times(traced.plan, result.trace);
  if (!flags.trace.empty())
    write_file_atomically(flags.trace, perfetto_json({{flags.chakra, &traced.plan, {result.trace}, flags.cluster}}));
  if (!flags.chakra_out.empty()) write_chakra(traced.plan, result.trace, flags.chakra_out);
  if (flags.json) {
    nlohmann::json devices = nlohmann::json::array();
    for (const DeviceTime& t : times)
      devices.push_back({{"busy_ms", static_cast<double>(t.busy_ns) * 1e-6},
                         {"exposed_ms", static_cast<double>(t.exposed_ns) * 1e-6},
                         {"bubble_ms", static_cast<double>(t.bubble_ns) * 1e-6}});
    fmt::print("{}\n", nlohmann::json{{"trace", flags.chakra},
                                      {"cluster", cluster.name},
                                      {"step_ms", static_cast<double>(result.trace.step_ns) * 1e-6},
                                      {"recorded_ms", static_cast<double>(traced.recorded.step_ns) * 1e-6},
                                      {"tasks", work.size()},
                                      {"devices", devices}}
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  Table table({"rank", "busy ms", "exposed comm. ms", "bubble ms"});
  for (std::size_t d = 0; d < times.size(); ++d)
    table.add({std::to_string(d), fmt::format("{:.3f}", static_cast<double>(times[d].busy_ns) * 1e-6),
               fmt::format("{:.3f}", static_cast<double>(times[d].exposed_ns) * 1e-6),
               fmt::format("{:.3f}", static_cast<double>(times[d].bubble_ns) * 1e-6)});
  fmt::print("{}: {} tasks, {:.3f} ms on {}{}\n{}", flags.chakra, work.size(),
             static_cast<double>(result.trace.step_ns) * 1e-6, cluster.name,
             traced.recorded.spans.empty()
                 ? ""
                 : fmt::format(", recorded as {:.3f} ms", static_cast<double>(traced.recorded.step_ns) * 1e-6),
             table.text());
  return 0;
}

// One simulation for each value of --sweep.
int simulate_all(const SimulateFlags& flags) {
  if (!flags.trace.empty()) check_writable(flags.trace);
  if (!flags.chakra.empty()) {
    if (!flags.model.empty() || !flags.synthetic.empty())
      fail_user("--chakra {}: it stands instead of a MODEL; give one of the two", flags.chakra);
    return replay(flags);
  }
  if (flags.sweep.empty()) return Simulation(flags).run();
  const std::size_t at = flags.sweep.find('=');
  const std::string name = flags.sweep.substr(0, at);
  const std::vector<std::string> values =
      at == std::string::npos ? std::vector<std::string>{} : CLI::detail::split(flags.sweep.substr(at + 1), ',');
  if (values.empty()) fail_user("--sweep {}: give NAME=VALUE,VALUE,...", flags.sweep);
  for (const std::string& text : values) {
    SimulateFlags one = flags;
    std::int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value) !=
            std::from_chars_result{text.data() + text.size(), std::errc{}} ||
        value < 0 || value > 1'000'000'000)
      fail_user("--sweep {}: '{}' is not a whole number", flags.sweep, text);
    const auto count = static_cast<std::uint32_t>(value);
    if (name == "dp") {
      one.run.replicas = count;
    } else if (name == "pp") {
      one.run.stages = count;
    } else if (name == "micro-batches") {
      one.run.micro_batches = count;
    } else if (name == "batch") {
      one.batch = value;
    } else if (name == "first-k") {
      one.first_k = static_cast<int>(value);
    } else {
      fail_user("--sweep {}: there are dp, pp, micro-batches, batch and first-k", flags.sweep);
    }
    if (value < 1 && name != "first-k") fail_user("--sweep {}: {} must be at least 1", flags.sweep, name);
    if (!flags.json) fmt::print("{} = {}\n", name, value);
    Simulation(one).run();
  }
  return 0;
}

}  // namespace

void add_simulate_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<SimulateFlags>();
  CLI::App* c = app.add_subcommand("simulate", "a training step on a cluster that is only described");
  c->add_option("MODEL", flags->model, "a network of the zoo (`overtake models` lists them) or an ONNX file");
  c->add_option("--set", flags->settings, "settings of the network, for example layers=6,width=512");
  c->add_option("--synthetic", flags->synthetic,
                "instead of a model: equal stages, times in ms, for example stages=8,micro=16,f=1,b=1,w=1");
  c->add_option(
      "--cluster", flags->cluster,
      "a file (docs/clusters.md) or a preset, for example dgx-h100:4; default: h200, or ideal for --synthetic");
  c->add_option("--batch", flags->batch, "samples of a step over all devices; default: the network's for each piece")
      ->check(CLI::NonNegativeNumber);
  c->add_option("--dp", flags->run.replicas, "replicas, data parallel")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  c->add_option("--pp", flags->run.stages, "devices of a pipeline")->check(CLI::Range(1, 65535))->capture_default_str();
  c->add_option("--micro-batches", flags->run.micro_batches, "of each replica")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  std::string schedules = "of the pipeline: search";
  for (const NamedSchedule& named : named_schedules()) schedules += fmt::format(", {}", named.name);
  c->add_option("--schedule", flags->run.schedule, schedules)->capture_default_str();
  c->add_option("--chunks", flags->run.schedule_options.chunks, "per device, of interleaved")->capture_default_str();
  c->add_option("--group", flags->run.schedule_options.group, "blocks per chunk, of modulo")->capture_default_str();
  c->add_option("--search-seconds", flags->run.search_seconds, "for --schedule search")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  c->add_flag("--weights-once", flags->run.weights_once,
              "for --schedule search: no layer on two devices, as dualpipe has them");
  c->add_option("--reduce", flags->run.reduce,
                "how replicas sum their gradients: buckets (as PyTorch DDP), by-layer (priorities), scatter-gather "
                "(across the step), "
                "first-k (by-layer, the first k weight gradients last)")
      ->capture_default_str();
  c->add_option("--first-k", flags->first_k, "k of --reduce first-k; default: the best")->check(CLI::NonNegativeNumber);
  c->add_option("--bucket", flags->bucket, "bytes of a bucket")->capture_default_str();
  c->add_option("--chunk", flags->chunk, "a more urgent collective goes first after so many bytes; 0: never")
      ->capture_default_str();
  c->add_option("--algorithm", flags->algorithm,
                "of collectives: auto (as NCCL), ring, tree, halving-doubling, hierarchical, in-network")
      ->capture_default_str();
  c->add_option("--precision", flags->precision, "f32, tf32 or bf16")->capture_default_str();
  c->add_option(
      "--measure", flags->measure_on,
      "cpu or cuda: measure the tasks here instead of computing what they take from the cluster's description");
  c->add_option("--optimizer", flags->optimizer, "sgd or adamw")->capture_default_str();
  c->add_flag("--recompute", flags->recompute, "activations are computed again for the gradients instead of kept");
  c->add_option("--memory-cap", flags->memory_cap, "most memory of a device, for example 40G; default: what it has");
  c->add_option("--slow", flags->slow, "DEVICE:SPEED, a straggler, for example 3:0.8");
  c->add_option("--fail", flags->fail, "DEVICE:MS, a device that is gone from then on");
  c->add_flag("--no-slowdown", flags->no_slowdown, "as if computation and communication did not slow each other");
  c->add_option("--steps", flags->steps, "that follow one another; default: 4, or 1 for synthetic and very large ones")
      ->check(CLI::Range(1, 1000));
  c->add_option("--compare", flags->compare, "all, or names: schedules side by side, fastest first");
  c->add_option("--sweep", flags->sweep,
                "one after the other: dp, pp, micro-batches, batch or first-k, for example dp=1,2,4");
  c->add_option("--trace", flags->trace, "timeline of the fastest, for `overtake report` and ui.perfetto.dev");
  c->add_option("--chakra", flags->chakra,
                "instead of a model: Chakra execution traces PREFIX.0.et, PREFIX.1.et, ... (docs/chakra.md)");
  c->add_option("--chakra-out", flags->chakra_out, "writes the fastest as Chakra execution traces PREFIX.0.et, ...");
  c->add_flag("--json", flags->json, "one JSON object as the last line");
  c->footer("Example:\n  overtake simulate bert-24 --cluster p3.8xlarge:2 --pp 8 --micro-batches 32 --compare all");
  c->callback([flags, &exit_code] { exit_code = simulate_all(*flags); });
}

}  // namespace overtake
