#include "cli/workload.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "cli/simulated_runs.h"
#include "exec/backend.h"
#include "machine/gpu_target.h"
#include "machine/measured_step.h"
#include "machine/roofline.h"
#include "models/network.h"
#include "passes/training_passes.h"
#include "train/profiling.h"

namespace overtake {
namespace {

constexpr std::uint64_t kMostPlanTasks = 1'500'000;  // of a plan

using Works = std::vector<TaskCost>;  // per task

// The times measured; of what binds a task, and how much, what the description says, if it does.
Works with_times(Works work, const std::vector<std::int64_t>& ns) {
  for (TaskId t = 0; t < work.size(); ++t) {
    work[t].ns = ns[t];
    work[t].compute_ns = std::min(work[t].compute_ns, ns[t]);
    work[t].memory_ns = std::min(work[t].memory_ns, ns[t]);
  }
  return work;
}

// The step of one piece, and what its tasks take on each kind of device that takes part.
class Step {
 public:
  Step(const WorkloadSpec& spec, const SimulatedSpec& run, const Machine& machine)
      : spec_(spec), cluster_(machine.cluster), precision_(precision_from_string(spec.precision)) {
    if (spec.optimizer != "sgd" && spec.optimizer != "adamw")
      fail_user("--optimizer {}: choose sgd or adamw", spec.optimizer);
    const std::vector<std::uint32_t> devices = devices_of(run, machine);
    for (const std::uint32_t d : devices) ++count_[machine.topology.vertices[d].type];
    // One task for the updates of several layers would tie their devices together.
    if (devices.size() > 1 || !spec.save_profile.empty()) left_out_.insert("group_updates");
  }

  void make(Graph network) {
    Hash64 hash;
    hash.add(save_json(network));
    hash.add(fmt::format("{} {}", to_string(precision_), spec_.optimizer));
    key_ = hash_text(hash.value());
    std::int64_t samples = 0;
    for (const Buffer& b : network.buffers)
      if (b.role == Role::input && samples == 0) samples = b.shape[0];
    samples_ = samples;
    of_ = fmt::format("{}{}, {} samples, {}, {}", spec_.model, spec_.settings.empty() ? "" : " " + spec_.settings,
                      samples, to_string(precision_), spec_.optimizer);
    if (spec_.measure_on.empty())
      describe(std::move(network));
    else
      measure(std::move(network));
  }

  const Graph& graph() const { return graph_; }
  std::int64_t samples() const { return samples_; }
  const std::map<std::uint32_t, Works>& works() const { return works_; }
  // Over the devices.
  Works mean() const {
    if (works_.size() == 1) return works_.begin()->second;
    Works mean(graph_.tasks.size());
    std::int64_t devices = 0;
    for (const auto& [kind, count] : count_) devices += count;
    for (TaskId t = 0; t < mean.size(); ++t) {
      for (const auto& [kind, work] : works_) {
        mean[t].ns += count_.at(kind) * work[t].ns;
        mean[t].compute_ns += count_.at(kind) * work[t].compute_ns;
        mean[t].memory_ns += count_.at(kind) * work[t].memory_ns;
      }
      for (std::int64_t* sum : {&mean[t].ns, &mean[t].compute_ns, &mean[t].memory_ns}) *sum /= devices;
    }
    return mean;
  }

 private:
  Graph build(Graph network, const Target& target) const {
    PassRunner runner({.skip = left_out_});
    const auto optimizer = spec_.optimizer == "sgd" ? OptimizerSettings::Kind::sgd : OptimizerSettings::Kind::adamw;
    return build_training_graph(std::move(network), target,
                                {.optimizer = {.kind = optimizer},
                                 .bf16 = precision_ == Precision::bf16,
                                 .parts = available_cores(),
                                 .extra = {}},
                                runner);
  }

  // What the rates of a kind say; nothing where it has none.
  Works from_rates(const DeviceType& device) const {
    if (device.f32_flops == 0 || device.memory_bytes_per_s() == 0) return Works(graph_.tasks.size());
    return roofline(graph_, device, {.tf32 = precision_ == Precision::tf32});
  }

  void measure(Graph network) {
    for (const auto& [kind, count] : count_)
      if (const DeviceType& device = cluster_.devices[kind]; !device.profile.empty())
        fail_user("--measure {}: device {} has measured times already (profile = {}); leave out one of the two",
                  spec_.measure_on, device.name, device.profile);
    if (count_.size() > 1)
      fail_user(
          "--measure {}: the run has devices of {} kinds, and one is at hand; measure each where it is with "
          "--save-profile FILE, and name the files in a machine file (profile = \"FILE\")",
          spec_.measure_on, count_.size());
    const auto backend = open_backend(spec_.measure_on, {.precision = precision_});
    graph_ = build(std::move(network), backend->target());
    const std::uint32_t kind = count_.begin()->first;
    const std::vector<std::int64_t> ns = measure_alone(graph_, *backend).alone_ns;
    works_[kind] = with_times(from_rates(cluster_.devices[kind]), ns);
    if (!spec_.save_profile.empty())
      write_file_atomically(
          spec_.save_profile,
          save_json(MeasuredStep{.key = key_, .of = of_, .device = backend->identity(), .step = graph_, .ns = ns}));
  }

  // By profiles and rates.
  void describe(Graph network) {
    std::map<std::uint32_t, std::vector<std::int64_t>> times;
    const DeviceType* first = nullptr;  // that has a profile
    for (const auto& [kind, count] : count_) {
      const DeviceType& device = cluster_.devices[kind];
      if (device.profile.empty()) continue;
      MeasuredStep measured = load_measured_step(device.profile);
      if (measured.key != key_)
        fail_user(
            "device {}: profile {} is of {}, measured on {}; this step is of {} (samples of one replica's "
            "micro-batch); measure that there with --measure and --save-profile",
            device.name, device.profile, measured.of, measured.device, of_);
      times[kind] = std::move(measured.ns);
      if (first == nullptr) {
        first = &device;
        graph_ = std::move(measured.step);
      } else if (!has_the_same_tasks(measured.step)) {
        fail_user(
            "devices {} and {}: they run this step as different tasks (profiles {} and {}); simulate them apart, or "
            "describe one by its rates",
            first->name, device.name, first->profile, device.profile);
      }
    }
    if (first == nullptr) graph_ = build(std::move(network), GpuTarget());
    for (const auto& [kind, count] : count_) {
      Works work = from_rates(cluster_.devices[kind]);
      works_[kind] = times.contains(kind) ? with_times(std::move(work), times.at(kind)) : std::move(work);
    }
  }

  bool has_the_same_tasks(const Graph& other) const {
    return std::ranges::equal(graph_.tasks, other.tasks, [&](const Task& a, const Task& b) {
      return a.op == b.op && a.kind == b.kind && graph_.layer_name(a.layer) == other.layer_name(b.layer);
    });
  }

  const WorkloadSpec& spec_;
  const Cluster& cluster_;
  Precision precision_;
  std::map<std::uint32_t, std::int64_t> count_;  // devices of each kind
  std::set<std::string> left_out_;               // passes
  std::string key_, of_;
  std::int64_t samples_ = 0;
  Graph graph_;
  std::map<std::uint32_t, Works> works_;  // by kind
};

// What the tasks of blocks take on one kind of device. Blocks are cut by `ns` alone, and each has the sum of its tasks'
// work: so the other two numbers may be of whatever is to be summed.
Works sums_by_block(const Graph& step, Works cut_by, const Works& work, std::uint32_t most, bool recomputes) {
  const auto blocks = [&] {
    BlockGraph cut = make_blocks(step, cut_by, most);
    return recomputes ? recompute(std::move(cut)) : cut;
  };
  for (TaskId t = 0; t < work.size(); ++t) cut_by[t].compute_ns = work[t].ns;
  const Works times = blocks().work;
  for (TaskId t = 0; t < work.size(); ++t) {
    cut_by[t].compute_ns = work[t].compute_ns;
    cut_by[t].memory_ns = work[t].memory_ns;
  }
  Works sums = blocks().work;
  for (TaskId t = 0; t < sums.size(); ++t) sums[t].ns = times[t].compute_ns;
  return sums;
}

}  // namespace

Workload model_workload(const WorkloadSpec& spec, const SimulatedSpec& run, const Machine& machine) {
  const ParallelOptions& parallel = run.parallel;
  ModelSettings settings = ModelSettings::parse(spec.settings);
  const auto pieces = static_cast<std::int64_t>(parallel.replicas) * parallel.micro_batches;
  if (spec.batch > 0) {
    if (spec.batch % pieces != 0)
      fail_user("--batch {}: it must be a multiple of --dp {} x --micro-batches {}", spec.batch, parallel.replicas,
                parallel.micro_batches);
    settings.set("batch", static_cast<double>(spec.batch / pieces));
  }
  Step step(spec, run, machine);
  step.make(load_network(spec.model, {.settings = settings}).graph);
  const std::uint64_t wanted = spec.blocks > 0 ? spec.blocks : block_limit(parallel, spec.recompute);
  const std::uint64_t affordable = kMostPlanTasks / (5 * static_cast<std::uint64_t>(pieces));
  const auto most =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(2 * parallel.stages, std::min(wanted, affordable)));
  const Works mean = step.mean();
  Workload out{.blocks = make_blocks(step.graph(), mean, most), .samples = step.samples() * pieces};
  if (spec.recompute) out.blocks = recompute(std::move(out.blocks));
  if (step.works().size() > 1) {
    out.by_kind.resize(machine.cluster.devices.size());
    for (const auto& [kind, work] : step.works())
      out.by_kind[kind] = sums_by_block(step.graph(), mean, work, most, spec.recompute);
  }
  return out;
}

}  // namespace overtake
