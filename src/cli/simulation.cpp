#include "cli/simulation.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/simulated_tables.h"
#include "report/perfetto.h"
#include "report/table.h"
#include "sim/chakra/chakra.h"

namespace overtake {
namespace {

constexpr std::uint64_t kTasksForManySteps = 300'000;  // of a plan; larger ones run one step
constexpr int kSteps = 4;                              // that follow one another, for the time between two
constexpr std::size_t kMostWaiting = 16;               // of devices that wait

// The ways that --compare sets side by side.
std::vector<SimulatedSpec> compared(const SimulatedSpec& spec, const std::string& which) {
  std::vector<SimulatedSpec> all;
  const auto add = [&](auto change) {
    SimulatedSpec s = spec;
    change(s);
    all.push_back(std::move(s));
  };
  const std::vector<std::string> names = which == "all" ? std::vector<std::string>{} : CLI::detail::split(which, ',');
  if (spec.parallel.stages > 1) {
    for (const NamedSchedule& named : named_schedules())
      if (names.empty() || std::ranges::find(names, named.name) != names.end())
        add([&](SimulatedSpec& s) { s.parallel.pipeline = named.name; });
    if (names.empty() || std::ranges::find(names, "search") != names.end())
      add([](SimulatedSpec& s) { s.parallel.pipeline = "search"; });
  } else {
    for (const char* order : {"buckets", "by-layer", "scatter-gather", "first-k"})
      if (names.empty() || std::ranges::find(names, order) != names.end())
        add([&](SimulatedSpec& s) { s.parallel.reduce = order; });
  }
  if (all.empty()) fail_user("--compare {}: none of these is known", which);
  return all;
}

class Simulation {
 public:
  explicit Simulation(SimulateFlags flags) : flags_(std::move(flags)) {
    check_flags();
    flags_.complete();
    jobs_.push_back({flags_, {}});
    for (const std::string& text : flags_.beside) jobs_.push_back({job_from_text(text), {}});
    if (flags_.cluster.empty() && !flags_.synthetic.empty()) {
      std::uint32_t devices = 0;
      for (const Job& job : jobs_) devices += job.flags.run.parallel.devices();
      flags_.cluster = fmt::format("ideal:{}", devices);
    }
    if (flags_.cluster.empty()) flags_.cluster = kUsualCluster;
    machine_ = described_machine(load_cluster(flags_.cluster));
    machine_.options = flags_.cluster_options(machine_.cluster, machine_.topology);
    for (Job& job : jobs_) prepare(job);
    if (!flags_.memory_cap.empty())
      machine_.memory.assign(machine_.topology.device_count, parse_bytes(flags_.memory_cap, "--memory-cap"));
    else if (flags_.synthetic.empty())
      for (std::uint32_t d = 0; d < machine_.topology.device_count; ++d)
        machine_.memory.push_back(machine_.cluster.devices[machine_.topology.vertices[d].type].memory_bytes());
  }

  int run() {
    if (jobs_.size() > 1) return run_beside();
    const SimulatedSpec& spec = jobs_[0].flags.run;
    std::vector<SimulatedRun> runs;
    std::vector<std::string> left_out;
    const std::vector<SimulatedSpec> specs =
        flags_.compare.empty() ? std::vector{spec} : compared(spec, flags_.compare);
    for (const SimulatedSpec& one : specs) {
      try {
        SimulatedRun run = simulate_run(jobs_[0].work, one, machine_);
        if (!run.step.result.is_finished) {
          if (specs.size() == 1)
            tell_stuck(run.name, run.step.job(spec.steps), run.step.result, machine_.topology, flags_.json);
          fail_user("simulate: {}: the step does not end: {}", run.name, run.step.result.stuck[0].why);
        }
        runs.push_back(std::move(run));
      } catch (const UserError& error) {
        if (specs.size() == 1) throw;
        left_out.emplace_back(error.what());
      }
    }
    if (runs.empty()) fail_user("simulate: nothing of this can run: {}", left_out.front());
    std::ranges::stable_sort(runs, {},
                             [&](const SimulatedRun& r) { return std::pair(!r.fits(machine_), r.step_ms()); });
    if (specs.size() == 1) check_room(runs[0]);
    if (!flags_.trace.empty())
      write_file_atomically(flags_.trace,
                            perfetto_json({{runs[0].name, &runs[0].plan(), {runs[0].trace()}, flags_.cluster}}));
    if (!flags_.chakra_out.empty()) write_chakra(runs[0].plan(), runs[0].trace(), flags_.chakra_out);
    print(runs, left_out);
    return 0;
  }

 private:
  struct Job {
    JobFlags flags;
    Workload work;
  };

  void check_flags() const {
    if (!flags_.first_k.empty() && flags_.run.parallel.reduce != "first-k" && flags_.compare.empty())
      fail_user("--first-k {}: it is for --reduce first-k, not {}", flags_.first_k, flags_.run.parallel.reduce);
    if (!flags_.save_profile.empty() && flags_.measure_on.empty())
      fail_user("--save-profile {}: nothing is measured; add --measure cpu or --measure cuda", flags_.save_profile);
    if (!flags_.save_profile.empty()) check_writable(flags_.save_profile);
    if (flags_.beside.empty()) return;
    if (!flags_.compare.empty()) fail_user("--compare: it compares ways of one job; leave out --beside");
    if (!flags_.chakra_out.empty()) fail_user("--chakra-out: it writes one job; leave out --beside");
  }

  // Devices, what is to be computed, and how many steps.
  void prepare(Job& job) {
    SimulatedSpec& run = job.flags.run;
    const ParallelOptions& parallel = run.parallel;
    if (&job != &jobs_[0] && run.devices.empty()) run.devices = free_devices(parallel.devices());
    devices_of(run, machine_);
    job.work = job.flags.synthetic.empty() ? model_workload(job.flags, run, machine_) : synthetic_workload(job.flags);
    const std::uint64_t tasks =
        std::uint64_t{parallel.replicas} * parallel.micro_batches * job.work.blocks.blocks.size() * 3;
    const bool is_one = !job.flags.synthetic.empty() || tasks > kTasksForManySteps;
    run.steps = flags_.steps > 0 ? flags_.steps : is_one ? 1 : kSteps;
    for (const std::uint32_t d : devices_of(run, machine_)) in_use_.push_back(d);
  }
  std::vector<std::uint32_t> free_devices(std::uint32_t wanted) const {
    std::vector<std::uint32_t> free;
    for (std::uint32_t d = 0; d < machine_.topology.device_count && free.size() < wanted; ++d)
      if (std::ranges::find(in_use_, d) == in_use_.end()) free.push_back(d);
    if (free.size() < wanted)
      fail_user("--beside: it needs {} devices, and {} of {} are free; add nodes, or say which to share with --devices",
                wanted, free.size(), machine_.topology.device_count);
    return free;
  }

  void check_room(const SimulatedRun& run) const {
    if (const auto d = run.too_small(machine_))
      fail_user(
          "simulate: {} needs {} on a device, which has {}; use more stages (--pp), more micro-batches, --recompute, "
          "or --memory-cap to see it all the same",
          run.name, format_bytes(run.peaks[*d].bytes), format_bytes(machine_.memory_of(run.step.devices[*d])));
  }

  void check_room_together(const std::vector<SimulatedRun>& runs) const {
    const std::vector<std::int64_t>& memory = machine_.memory;
    std::vector<std::int64_t> bytes(memory.size(), 0);
    for (const SimulatedRun& run : runs)
      for (std::size_t d = 0; d < run.step.devices.size() && !memory.empty(); ++d)
        bytes[run.step.devices[d]] += run.peaks[d].bytes;
    for (std::uint32_t d = 0; d < bytes.size(); ++d)
      if (memory[d] > 0 && bytes[d] > memory[d])
        fail_user("--beside: on device {} the jobs need {} together, and it has {}; give them others with --devices", d,
                  format_bytes(bytes[d]), format_bytes(memory[d]));
  }

  // Each alone, where every device is well, then all at once.
  int run_beside() {
    Machine undisturbed = machine_;
    undisturbed.options.failures.clear();
    std::vector<SimulatedRun> alone;
    std::vector<int> steps;
    for (const Job& job : jobs_) {
      alone.push_back(simulate_run(job.work, job.flags.run, undisturbed));
      check_room(alone.back());
      steps.push_back(job.flags.run.steps);
    }
    check_room_together(alone);
    const SharedRun shared = run_together(alone, steps, machine_);
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (!shared.results[j].is_finished)
        tell_stuck(jobs_[j].work.blocks.graph.model, alone[j].step.job(shared.steps[j]), shared.results[j],
                   machine_.topology, flags_.json);
    if (!flags_.trace.empty()) {
      std::vector<TracedRun> traced;
      for (std::size_t j = 0; j < jobs_.size(); ++j)
        traced.push_back(
            {jobs_[j].work.blocks.graph.model, &alone[j].plan(), {shared.results[j].trace}, flags_.cluster});
      write_file_atomically(flags_.trace, perfetto_json(traced));
    }
    nlohmann::json rows = nlohmann::json::array();
    Table table({"job", "devices", "schedule", "alone ms/step", "beside ms/step", "slower"});
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      const double before = alone[j].step_ms(), after = shared.step_ms[j];
      rows.push_back({{"model", jobs_[j].work.blocks.graph.model},
                      {"devices", alone[j].step.devices},
                      {"schedule", alone[j].name},
                      {"alone_ms", before},
                      {"step_ms", after}});
      table.add({jobs_[j].work.blocks.graph.model, fmt::format("{}", fmt::join(alone[j].step.devices, ",")),
                 alone[j].name, fmt::format("{:.3f}", before), fmt::format("{:.3f}", after),
                 fmt::format("{:.1f} %", 100 * (after / before - 1))});
    }
    if (flags_.json)
      fmt::print("{}", dumped({{"cluster", machine_.cluster.name}, {"step_ms", shared.step_ms[0]}, {"jobs", rows}}));
    else
      fmt::print("{} jobs on {} devices of {}\n{}", jobs_.size(), machine_.topology.device_count, machine_.cluster.name,
                 table.text());
    return 0;
  }

  void print(const std::vector<SimulatedRun>& runs, const std::vector<std::string>& left_out) const {
    const Workload& work = jobs_[0].work;
    const ParallelOptions& spec = jobs_[0].flags.run.parallel;
    if (flags_.json) {
      nlohmann::json out = {{"model", work.blocks.graph.model},
                            {"cluster", machine_.cluster.name},
                            {"dp", spec.replicas},
                            {"pp", spec.stages},
                            {"micro_batches", spec.micro_batches},
                            {"blocks", work.blocks.blocks.size()},
                            {"runs", nlohmann::json::array()},
                            {"left_out", left_out}};
      for (const SimulatedRun& run : runs) out["runs"].push_back(json_of(run, work.samples, run.fits(machine_)));
      out["step_ms"] = runs[0].step_ms();
      fmt::print("{}", dumped(out));
      return;
    }
    fmt::print("{}: {} blocks on {} of {} devices of {}, {} x {} (data x pipeline), {} micro-batch{}\n{}",
               work.blocks.graph.model, work.blocks.blocks.size(), spec.replicas * spec.stages,
               machine_.topology.device_count, machine_.cluster.name, spec.replicas, spec.stages, spec.micro_batches,
               spec.micro_batches == 1 ? "" : "es", table_of(runs, machine_, work.samples));
    for (const SimulatedRun& run : runs)
      if (!run.reason.empty()) fmt::print("{}: {}\n", run.name, run.reason);
    for (const std::string& text : left_out) fmt::print("left out: {}\n", text);
  }

  SimulateFlags flags_;
  std::vector<Job> jobs_;  // the first is the one of the command line
  Machine machine_;
  std::vector<std::uint32_t> in_use_;  // devices
};

}  // namespace

int run_simulation(SimulateFlags flags) { return Simulation(std::move(flags)).run(); }

void tell_stuck(const std::string& name, const ClusterJob& job, const JobResult& result, const Topology& topology,
                bool as_json) {
  const std::vector<StuckDevice> devices = stuck_devices(job, result, topology);
  const double ms = static_cast<double>(result.makespan_ns) * 1e-6;
  if (as_json)
    fmt::print("{}", dumped({{"job", name},
                             {"is_finished", false},
                             {"steps_done", result.step_ends_ns.size()},
                             {"steps", job.steps},
                             {"last_ms", ms},
                             {"devices", json_of(devices)}}));
  else
    fmt::print("{}: {} of {} steps done, nothing more after {:.3f} ms\n{}", name, result.step_ends_ns.size(), job.steps,
               ms, table_of(devices, kMostWaiting));
  std::fflush(stdout);
  fail_user("simulate: {}: the step does not end: {}", name, result.stuck.empty() ? "" : result.stuck[0].why);
}

}  // namespace overtake
