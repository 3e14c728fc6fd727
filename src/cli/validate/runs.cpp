#include "cli/validate/runs.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/available_cores.h"
#include "base/error.h"
#include "plan/compile.h"
#include "run/field.h"
#include "train/planner.h"
#include "train/run_options.h"

namespace overtake {
namespace {

// Collectives of more ranks go as one flow each, which takes a few percent off the accuracy and most of the time.
constexpr std::uint32_t kMostRanksStepByStep = 8;

Cluster cluster_of(const std::string& name_or_text) {
  return name_or_text.find('\n') == std::string::npos ? load_cluster(name_or_text)
                                                      : parse_cluster(name_or_text, "validate");
}

std::string key_of(const Setting& s) {
  return fmt::format("{}|{}|{}", json_of(s.spec).dump(), s.steps, s.overlap_slows);
}

// On every device a member of an all-reduce, and a task that begins when that is well under way.
struct SideBySide {
  Plan plan;
  std::vector<TaskCost> work;
  TaskId task = kNone, collective = kNone;  // of device 0

  SideBySide(std::uint32_t devices, std::int64_t bytes, const TaskCost& of_task) {
    Graph& g = plan.graph;
    for (std::uint16_t d = 0; d < devices; ++d) {
      const BufferId x = g.add_buffer("x", {bytes}, DType::u8, Role::input);
      const BufferId y = g.add_buffer("y", {bytes}, DType::u8, Role::activation);
      const TaskId c = add(d, Kind::all_reduce, Op::transfer, {}, x, y);
      if (d == 0) collective = c;
      if (of_task.ns == 0) continue;
      const TaskId before = add(d, Kind::forward, Op::block, {.ns = 1'000'000}, kNone, kNone);
      const TaskId t = add(d, Kind::forward, Op::block, of_task, kNone, kNone);
      plan.lanes.pop_back();
      plan.lanes.back().tasks = {before, t};
      if (d == 0) task = t;
    }
  }

  JobResult simulate_on(const Cluster& cluster, const ClusterOptions& options) const {
    ClusterJob job{.plan = &plan, .work = work};
    for (std::uint32_t d = 0; d < plan.lanes.back().device + 1u; ++d) job.devices.push_back(d);
    return simulate(cluster, make_topology(cluster), {&job, 1}, options)[0];
  }

 private:
  TaskId add(std::uint16_t device, Kind kind, Op op, const TaskCost& w, BufferId read, BufferId written) {
    Graph& g = plan.graph;
    std::vector<BufferId> reads, writes;
    if (read != kNone) reads.push_back(read);
    if (written != kNone) writes.push_back(written);
    const AttrsId attrs = op == Op::transfer ? g.add_attrs({{"collective", 0}, {"priority", 0}}) : 0;
    const TaskId t =
        g.add_task(kind, op, g.add_layer(op == Op::transfer ? "all-reduce" : "task"), attrs, reads, writes);
    g.tasks[t].device = device;
    for (const BufferId b : reads) g.buffers[b].device = device;
    for (const BufferId b : writes) g.buffers[b].device = device;
    plan.lanes.push_back({.device = device, .tasks = {t}, .is_asynchronous = op == Op::transfer});
    work.push_back(w);
    return t;
  }
};

double ms_of(const Trace& trace, TaskId task) {
  for (const Span& s : trace.spans)
    if (s.task == task) return static_cast<double>(s.end_ns - s.begin_ns) * 1e-6;
  OVERTAKE_CHECK(false, "task {} did not run", task);
  return 0;
}

Measured measured(const Setting& setting) {
  Machine machine = machine_of(setting.spec, cluster_of(setting.spec.machine), setting.steps);
  machine.memory.clear();  // publications say what fits
  machine.folds_replicas = false;
  machine.options.is_fluid = setting.spec.replicas > kMostRanksStepByStep;
  machine.options.overlap_slows = setting.overlap_slows;
  PassRunner runner;
  const RunSpec spec = completed_for(setting.spec, machine, available_cores());
  const Program program = compile(load_start(spec, {}).graph, spec, machine, runner);
  const SimulatedRun run(simulated_step(program));
  OVERTAKE_CHECK(run.step.result.is_finished, "{} does not end", run.name);
  Measured out{.step_ms = run.step_ms()};
  out.samples_per_s = 1e3 * static_cast<double>(spec.batch) / out.step_ms;
  for (const DeviceTime& t : run.times)
    out.busy_ms += static_cast<double>(t.busy_ns) * 1e-6 / static_cast<double>(run.times.size());
  out.peak_bytes = static_cast<double>(run.largest_peak().bytes);
  return out;
}

}  // namespace

const Measured& Laboratory::run(const Setting& setting) {
  std::shared_future<Measured> result;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = known_.try_emplace(key_of(setting));
    // Deferred: whoever asks first simulates it, the others wait.
    if (is_new) at->second = std::async(std::launch::deferred, measured, setting).share();
    result = at->second;
  }
  return result.get();
}

double Laboratory::cost_of_pipeline(const StageTimes& times, std::uint32_t devices, std::uint32_t micro_batches,
                                    const std::string& schedule, std::uint32_t chunks) {
  const std::uint32_t parts = schedule == "interleaved" ? chunks : 1;
  const auto ns = [&](double ms) { return static_cast<std::int64_t>(ms * 1e6 / parts + 0.5); };
  // One hop from each device to the switch: half of the transfer.
  Machine machine =
      described_machine(cluster_of(fmt::format(R"([device.d]
f32 = "1 TFLOP/s"
memory = [{{ capacity = "1 TB", bandwidth = "1 TB/s" }}]
[node.n]
count = {}
devices = {{ d = 1 }}
[switch.s]
[[link]]
between = ["n/d", "s"]
kind = "NVLink"
bandwidth = "1000000 TB/s"
latency = "{} ns"
)",
                                               devices, static_cast<std::int64_t>(times.transfer * 1e6 / 2))));
  const Workload work{
      .blocks = synthetic_blocks(devices * parts, ns(times.forward), ns(times.input_grad), ns(times.weight_grad))};
  machine.options = {.protocol = Protocol::ideal, .overlap_slows = false};
  RunSpec spec;
  spec.stages = devices;
  spec.micro_batches = micro_batches;
  spec.pipeline = schedule;
  spec.chunks = chunks;
  machine.steps = 1;
  const SimulatedRun run(simulated_step(work, spec, machine));
  std::vector<std::int64_t> first(devices, std::numeric_limits<std::int64_t>::max()), last(devices, 0);
  for (const Span& s : run.trace().spans) {
    const Task& t = run.plan().graph.tasks[s.task];
    if (t.op == Op::transfer || t.kind == Kind::update) continue;
    first[t.device] = std::min(first[t.device], s.begin_ns);
    last[t.device] = std::max(last[t.device], s.end_ns);
  }
  std::int64_t longest = 0;
  for (std::uint32_t d = 0; d < devices; ++d) longest = std::max(longest, last[d] - first[d]);
  return static_cast<double>(longest) * 1e-6 / (micro_batches * (times.forward + times.input_grad + times.weight_grad));
}

double all_reduce_ms(const std::string& cluster, std::uint32_t devices, std::int64_t bytes, Algorithm algorithm,
                     Protocol protocol) {
  const SideBySide plan(devices, bytes, {});
  const JobResult r = plan.simulate_on(cluster_of(cluster), {.algorithm = algorithm, .protocol = protocol});
  return ms_of(r.trace, plan.collective);
}

CollectiveTime timed(const std::string& machine_name, std::uint32_t devices, const CollectiveCase& what,
                     Algorithm algorithm) {
  RunSpec spec;
  spec.machine = machine_name;
  Machine machine = machine_of(spec, 0);
  machine.options.algorithm = algorithm;
  std::vector<std::uint32_t> first(devices);
  std::iota(first.begin(), first.end(), 0u);
  return time_alone(machine.cluster, machine.topology, first, what, machine.options);
}

double slowdown_beside_ring(const std::string& cluster, std::uint32_t devices, const TaskCost& work) {
  constexpr std::int64_t kLongEnough = std::int64_t{4} << 30;  // bytes
  const SideBySide plan(devices, kLongEnough, work);
  const JobResult r =
      plan.simulate_on(cluster_of(cluster), {.algorithm = Algorithm::ring, .protocol = Protocol::simple});
  OVERTAKE_CHECK(ms_of(r.trace, plan.collective) > ms_of(r.trace, plan.task), "the all-reduce ends before the task");
  return ms_of(r.trace, plan.task) * 1e6 / static_cast<double>(work.ns);
}

}  // namespace overtake
