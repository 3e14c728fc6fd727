// Traces of other programs on a cluster.

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "cli/say.h"
#include "cli/simulate/simulation.h"
#include "cli/simulate/tables.h"
#include "machine/kernel_times/kernel_table.h"
#include "report/perfetto.h"
#include "report/table.h"
#include "sim/chakra/chakra.h"
#include "train/planner.h"

namespace overtake {
namespace {

// As traced; what the trace does not tell of, by the rates of the task's own device.
std::vector<TaskCost> work_of(const ChakraPlan& traced, const Cluster& cluster, const Topology& topology) {
  std::vector<TaskCost> work(traced.plan.graph.tasks.size());
  for (TaskId t = 0; t < work.size(); ++t) {
    const auto ns = [](std::int64_t amount, double share, std::int64_t rate) {
      if (rate == 0) return std::int64_t{0};
      return static_cast<std::int64_t>(1e9 * static_cast<double>(amount) / (share * static_cast<double>(rate)));
    };
    const DeviceType& device = cluster.devices[topology.vertices[traced.plan.graph.tasks[t].device].type];
    const KernelTable& table = kernel_table(device);
    const double of_products = table.product_part[static_cast<std::size_t>(MatrixRate::bf16)];
    const bool needs_rates = traced.durations_ns[t] == 0 && traced.operations[t] + traced.bytes[t] > 0;
    if (needs_rates && device.f32_flops == 0)
      fail_user("simulate: the trace has no time for {}, and device {} no rates; give them in the machine file",
                traced.plan.graph.task_name(t), device.name);
    work[t].compute_ns = ns(traced.operations[t], of_products, device.bf16_flops);
    work[t].memory_ns = ns(traced.bytes[t], table.bandwidth_part, device.memory_bytes_per_s());
    work[t].ns = traced.durations_ns[t] > 0 ? traced.durations_ns[t] : std::max(work[t].compute_ns, work[t].memory_ns);
    work[t].compute_ns = std::min(work[t].compute_ns, work[t].ns);
    work[t].memory_ns = std::min(work[t].memory_ns, work[t].ns);
  }
  return work;
}

}  // namespace

int replay_chakra(const SimulateFlags& flags, const RunSpec& spec) {
  if (!spec.model.empty() || !flags.synthetic.empty())
    fail_user("--chakra {}: it stands instead of a MODEL; give one of the two", flags.chakra);
  if (flags.spec.saves_plan()) fail_user("--save-plan: a trace is no plan; leave out --chakra or --save-plan");
  if (!flags.beside.empty()) fail_user("--chakra {}: nothing can be set beside it; leave out --beside", flags.chakra);
  const ChakraPlan traced = read_chakra(flags.chakra);
  const std::string machine_name = spec.machine.empty() ? kUsualMachine : spec.machine;
  RunSpec of_machine = spec;
  of_machine.machine = machine_name;
  of_machine.replicas = of_machine.stages = 1;
  of_machine.devices.clear();
  Machine machine = machine_of(of_machine);
  flags.add_scenario(machine);
  const Cluster& cluster = machine.cluster;
  const Topology& topology = machine.topology;
  ClusterJob job{.plan = &traced.plan, .work = {}};
  for (const Lane& lane : traced.plan.lanes)
    if (std::ranges::find(job.devices, lane.device) == job.devices.end()) job.devices.push_back(lane.device);
  std::ranges::sort(job.devices);
  if (job.devices.empty() || job.devices.back() >= topology.device_count)
    fail_user("simulate: {} has {} ranks, and cluster {} has {} devices; add nodes (a preset takes them as NAME:4)",
              flags.chakra, job.devices.size(), cluster.name, topology.device_count);
  const std::vector<TaskCost> work = work_of(traced, cluster, topology);
  job.work = work;
  const ClusterOptions& options = machine.options;
  const JobResult result = simulate(cluster, topology, {&job, 1}, options)[0];
  if (!result.is_finished) tell_stuck(flags.chakra, job, result, topology, flags.spec.json);
  if (result.trace.step_ns == 0 && !traced.has_times)
    fail_user("simulate: {}: nothing in it takes time: {}", flags.chakra, traced.notes.back());
  if (!flags.spec.json)
    for (const std::string& note : traced.notes) print_note(note);
  const std::vector<DeviceTime> times = device_times(traced.plan, result.trace);
  if (!flags.trace.empty())
    write_file_atomically(
        flags.trace,
        perfetto_json(
            {{flags.chakra, &traced.plan, {result.trace}, machine_name, StepTime{result.trace.step_ns, "simulated"}}}));
  if (!flags.chakra_out.empty()) write_chakra(traced.plan, result.trace, flags.chakra_out);
  const double step_ms = static_cast<double>(result.trace.step_ns) * 1e-6,
               recorded_ms = static_cast<double>(traced.recorded.step_ns) * 1e-6;
  if (flags.spec.json) {
    say("{}", dumped({{"trace", flags.chakra},
                      {"machine", cluster.name},
                      {"step_ms", step_ms},
                      {"recorded_ms", recorded_ms},
                      {"tasks", work.size()},
                      {"notes", traced.notes},
                      {"devices", json_of(times)}}));
    return 0;
  }
  Table table({"rank", "busy ms", "exposed comm. ms", "bubble ms"});
  for (std::size_t d = 0; d < times.size(); ++d)
    table.add({std::to_string(d), fmt::format("{:.3f}", static_cast<double>(times[d].busy_ns) * 1e-6),
               fmt::format("{:.3f}", static_cast<double>(times[d].exposed_ns) * 1e-6),
               fmt::format("{:.3f}", static_cast<double>(times[d].bubble_ns) * 1e-6)});
  say("{}: {} tasks, {:.3f} ms on {}{}\n{}", flags.chakra, work.size(), step_ms, cluster.name,
      traced.recorded.spans.empty() ? "" : fmt::format(", recorded as {:.3f} ms", recorded_ms), table.text());
  return 0;
}

}  // namespace overtake
