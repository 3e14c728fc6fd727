#include "cli/simulate/simulation.h"

#include <algorithm>
#include <cmath>

#include "base/available_cores.h"
#include "base/error.h"
#include "base/file.h"
#include "base/nearest_word.h"
#include "base/units.h"
#include "cli/say.h"
#include "cli/simulate/room.h"
#include "cli/simulate/synthetic.h"
#include "cli/simulate/tables.h"
#include "exec/described_target.h"
#include "plan/compile.h"
#include "plan/pipeline/named.h"
#include "report/perfetto.h"
#include "report/table.h"
#include "sim/chakra/chakra.h"
#include "train/measured_machine.h"
#include "train/planner.h"
#include "train/run_options.h"

namespace overtake {
namespace {

constexpr std::size_t kMostWaiting = 16;  // of devices that wait
constexpr std::string_view kTwoWay = "dualpipe";

// The ways that --compare sets side by side; what is left out of "all", and why.
std::vector<RunSpec> compared(const RunSpec& spec, const std::string& which, std::vector<std::string>& left_out) {
  std::vector<RunSpec> all;
  const std::vector<std::string> names = which == "all" ? std::vector<std::string>{} : CLI::detail::split(which, ',');
  std::vector<std::string> known{"all"};
  const auto add = [&](std::string_view name, std::string RunSpec::*member) {
    known.emplace_back(name);
    if (!names.empty() && std::ranges::find(names, name) == names.end()) return;
    if (names.empty() && name == kTwoWay && !spec.two_way) {
      left_out.push_back(fmt::format("{}: it puts every layer on two devices; add --two-way", name));
      return;
    }
    all.emplace_back(spec).*member = name;
  };
  if (spec.stages > 1) {
    add("search", &RunSpec::pipeline);
    for (const NamedSchedule& named : named_schedules()) add(named.name, &RunSpec::pipeline);
  } else {
    for (const char* order : {"buckets", "by-layer", "scatter-gather", "first-k"}) add(order, &RunSpec::reduce);
  }
  for (const std::string& name : names)
    if (std::ranges::find(known, name) == known.end())
      fail_user("--compare {}: '{}' is none of {}{}", which, name, fmt::join(known, ", "), did_you_mean(name, known));
  // What an order has no use for.
  for (RunSpec& one : all)
    if (one.reduce != "first-k") one.first_k.clear();
  return all;
}

class Simulation {
 public:
  explicit Simulation(const SimulateFlags& flags, const RunSpec& spec) : flags_(flags) {
    jobs_.push_back({spec, flags.synthetic, flags.measure_on, {}, {}});
    for (const std::string& text : flags.beside) {
      const JobFlags job = job_from_text(text);
      jobs_.push_back({job.run(), job.synthetic, job.measure_on, {}, {}});
    }
    check_flags();
    std::string machine = spec.machine;
    if (machine.empty() && !flags.synthetic.empty()) machine = fmt::format("ideal:{}", devices_of_all());
    if (machine.empty()) machine = kUsualMachine;
    for (Job& job : jobs_) {
      job.spec.machine = machine;
      job.spec.algorithm = spec.algorithm;
      job.spec.chunk = spec.chunk;
      job.spec.memory_cap = spec.memory_cap;
    }
    for (Job& job : jobs_) prepare(job);
  }

  int run() {
    if (jobs_.size() > 1) return run_beside();
    const Job& job = jobs_[0];
    if (job.synthetic.empty()) check_floor(job.step, job.machine);
    std::vector<SimulatedRun> runs;
    std::vector<std::string> left_out;
    const std::vector<RunSpec> specs =
        flags_.compare.empty() ? std::vector{job.spec} : compared(job.spec, flags_.compare, left_out);
    for (const RunSpec& spec : specs) {
      if (specs.size() > 1 || (spec.stages > 1 && spec.pipeline == "search"))
        say_progress(spec, 1 + static_cast<std::size_t>(&spec - specs.data()), specs.size());
      try {
        SimulatedRun run(simulated(job, spec, job.machine));
        if (!run.step.result.is_finished) {
          if (specs.size() == 1)
            tell_stuck(run.name, run.step.job(std::max(1, flags_.steps)), run.step.result, job.machine.topology,
                       flags_.spec.json);
          fail_user("simulate: {}: the step does not end: {}", run.name, run.step.result.stuck[0].why);
        }
        runs.push_back(std::move(run));
      } catch (const UserError& error) {
        if (specs.size() == 1) throw;
        left_out.emplace_back(with_flags(error.what()));
      }
    }
    if (runs.empty()) fail_user("simulate: nothing of this can run: {}", left_out.front());
    std::ranges::stable_sort(runs, {},
                             [&](const SimulatedRun& r) { return std::pair(!r.fits(job.machine), r.step_ms()); });
    if (specs.size() == 1) check_room(runs[0], job.machine);
    if (!flags_.trace.empty()) write_file_atomically(flags_.trace, perfetto_json({runs[0].traced(job.spec.machine)}));
    if (!flags_.chakra_out.empty()) write_chakra(runs[0].plan(), runs[0].trace(), flags_.chakra_out);
    print(runs, left_out);
    return 0;
  }

 private:
  struct Job {
    RunSpec spec;
    std::string synthetic, measure_on;
    Machine machine;  // for this job's devices
    Program step;     // compiled but for the order; of a model

    std::string name() const { return synthetic.empty() ? step.step.model : "synthetic"; }
    std::int64_t samples() const {
      return synthetic.empty() ? samples_of(step.step) * spec.replicas * spec.micro_batches : 0;
    }
  };

  void check_flags() const {
    const RunSpec& spec = jobs_[0].spec;
    if (!spec.first_k.empty() && spec.reduce != "first-k" && flags_.compare.empty())
      fail_user("`first_k {}`: it is for `reduce first-k`, not {}", spec.first_k, spec.reduce);
    if (!flags_.save_profile.empty() && flags_.measure_on.empty())
      fail_user("--save-profile {}: nothing is measured; add --measure cpu or --measure cuda", flags_.save_profile);
    if (flags_.spec.saves_plan() && !(flags_.compare.empty() && flags_.synthetic.empty()))
      fail_user("--save-plan: it is for one schedule of a model; leave out {}",
                flags_.compare.empty() ? "--synthetic" : "--compare");
    if (!flags_.calibrate.empty() && !flags_.synthetic.empty())
      fail_user("--calibrate {}: --synthetic gives the times of all tasks; leave out one of the two", flags_.calibrate);
    if (flags_.beside.empty()) return;
    if (!flags_.compare.empty()) fail_user("--compare: it compares ways of one job; leave out --beside");
    if (!flags_.chakra_out.empty()) fail_user("--chakra-out: it writes one job; leave out --beside");
  }

  std::uint32_t devices_of_all() const {
    std::uint32_t devices = 0;
    for (const Job& job : jobs_) devices += job.spec.replicas * job.spec.stages;
    return devices;
  }

  // Its devices, and what is to be computed.
  void prepare(Job& job) {
    const bool is_synthetic = !job.synthetic.empty();
    const int steps = flags_.steps > 0 ? flags_.steps : is_synthetic ? 1 : 0;
    if (&job != &jobs_[0] && job.spec.devices.empty()) take_free_devices(job);
    job.machine = machine_of(job.spec, flags_.corrected(load_cluster(job.spec.machine)), steps);
    flags_.add_scenario(job.machine);
    if (is_synthetic && job.spec.memory_cap.empty()) job.machine.memory.clear();
    for (const std::uint32_t d : devices_for(job.spec, job.machine)) in_use_.push_back(d);
    if (is_synthetic) return;
    const std::string devices = job.spec.devices;
    job.spec = completed_for(job.spec, job.machine, available_cores());
    const Graph model = load_start(job.spec, print_note).graph;
    if (!job.measure_on.empty())
      job.machine = with_measured_tasks(job.machine, model, job.spec, job.measure_on, flags_.save_profile);
    PassRunner runner;
    job.step = compile_step(model, job.spec, job.machine, runner);
  }

  void take_free_devices(Job& job) const {
    const std::uint32_t wanted = job.spec.replicas * job.spec.stages,
                        there = make_topology(load_cluster(job.spec.machine)).device_count;
    std::vector<std::uint32_t> free;
    for (std::uint32_t d = 0; d < there && free.size() < wanted; ++d)
      if (std::ranges::find(in_use_, d) == in_use_.end()) free.push_back(d);
    if (free.size() < wanted)
      fail_user("--beside: it needs {} devices, and {} of {} are free; add nodes, or say which to share with --devices",
                wanted, free.size(), there);
    job.spec.devices = fmt::format("{}", fmt::join(free, ","));
  }

  // The job as it stands, or with another schedule or reduction.
  SimulatedStep simulated(const Job& job, const RunSpec& spec, const Machine& machine) const {
    if (!job.synthetic.empty()) {
      const Synthetic pipeline(job.synthetic, spec.stages, spec.micro_batches);
      return simulated_step(pipeline.workload(spec.blocks), spec, machine);
    }
    Program program = job.step;
    program.machine = machine;
    program.spec = deciding_part(spec);
    PassRunner runner;
    program = compile_order(std::move(program), runner);
    if (&job == &jobs_[0] && flags_.compare.empty()) flags_.spec.save_plan(program);
    return simulated_step(program);
  }

  // A comparison may take minutes, of which nobody would hear anything.
  static void say_progress(const RunSpec& spec, std::size_t number, std::size_t of) {
    print_note(fmt::format("{} of {}: {}", number, of, spec.stages > 1 ? spec.pipeline : spec.reduce));
  }

  // Each alone, where every device is well, then all at once.
  int run_beside() {
    std::vector<SimulatedRun> alone;
    std::vector<int> steps;
    for (const Job& job : jobs_) {
      Machine undisturbed = job.machine;
      undisturbed.options.failures.clear();
      alone.emplace_back(simulated(job, job.spec, undisturbed));
      check_room(alone.back(), jobs_[0].machine);
      steps.push_back(alone.back().step.steps_in_a_row);
    }
    const Machine& machine = jobs_[0].machine;
    check_room_together(alone, machine);
    const SharedRun shared = run_together(alone, steps, machine);
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (!shared.results[j].is_finished)
        tell_stuck(jobs_[j].name(), alone[j].step.job(shared.steps[j]), shared.results[j], machine.topology,
                   flags_.spec.json);
    if (!flags_.trace.empty()) {
      std::vector<TracedRun> traced;
      for (std::size_t j = 0; j < jobs_.size(); ++j)
        traced.push_back({jobs_[j].name(),
                          &alone[j].plan(),
                          {shared.results[j].trace},
                          jobs_[j].spec.machine,
                          StepTime{std::llround(shared.step_ms[j] * 1e6), "simulated, beside the others"}});
      write_file_atomically(flags_.trace, perfetto_json(traced));
    }
    nlohmann::json rows = nlohmann::json::array();
    Table table({"job", "devices", "schedule", "alone ms/step", "beside ms/step", "slower"});
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      const double before = alone[j].step_ms(), after = shared.step_ms[j];
      rows.push_back({{"model", jobs_[j].name()},
                      {"devices", alone[j].step.devices},
                      {"schedule", alone[j].name},
                      {"alone_ms", before},
                      {"step_ms", after}});
      table.add({jobs_[j].name(), fmt::format("{}", fmt::join(alone[j].step.devices, ",")), alone[j].name,
                 fmt::format("{:.3f}", before), fmt::format("{:.3f}", after),
                 fmt::format("{:.1f} %", 100 * (after / before - 1))});
    }
    if (flags_.spec.json)
      say("{}", dumped({{"machine", machine.cluster.name}, {"step_ms", shared.step_ms[0]}, {"jobs", rows}}));
    else
      say("{} jobs on {} devices of {}\n{}", jobs_.size(), machine.topology.device_count, machine.cluster.name,
          table.text());
    return 0;
  }

  void print(const std::vector<SimulatedRun>& runs, const std::vector<std::string>& left_out) const {
    const Job& job = jobs_[0];
    const RunSpec& spec = job.spec;
    if (flags_.spec.json) {
      nlohmann::json out = {
          {"model", job.name()}, {"machine", job.machine.cluster.name}, {"dp", spec.replicas},
          {"pp", spec.stages},   {"micro_batches", spec.micro_batches}, {"runs", nlohmann::json::array()},
          {"left_out", left_out}};
      if (job.synthetic.empty()) out["spec"] = json_of(spec);
      for (const SimulatedRun& run : runs) out["runs"].push_back(json_of(run, job.samples(), run.fits(job.machine)));
      out["step_ms"] = runs[0].step_ms();
      say("{}", dumped(out));
      return;
    }
    say("{} on {} of {} devices of {}, {} x {} (data x pipeline), {} micro-batch{}\n{}", job.name(),
        spec.replicas * spec.stages, job.machine.topology.device_count, job.machine.cluster.name, spec.replicas,
        spec.stages, spec.micro_batches, spec.micro_batches == 1 ? "" : "es",
        table_of(runs, job.machine, job.samples()));
    for (const SimulatedRun& run : runs)
      if (!run.reason.empty()) say("{}: {}\n", run.name, run.reason);
    say("{}", note_of_folding(runs[0], spec.replicas, !flags_.trace.empty()));
    for (const std::string& text : left_out) say("left out: {}\n", text);
  }

  const SimulateFlags& flags_;
  std::vector<Job> jobs_;              // the first is the one of the command line
  std::vector<std::uint32_t> in_use_;  // devices
};

}  // namespace

int simulate_plan(const SimulateFlags& flags, const std::string& file) {
  if (!flags.compare.empty() || !flags.beside.empty() || !flags.measure_on.empty() || !flags.sweep.empty() ||
      !flags.save_profile.empty())
    fail_user(
        "simulate {}: a plan is one job with one schedule; leave out --compare, --beside, --sweep, --measure and "
        "--save-profile",
        file);
  if (flags.spec.saves_plan()) fail_user("--save-plan: {} is the plan already; leave it out", file);
  Program program = read_program(file, file);
  RunSpec spec = flags.spec.spec();
  spec.model = program.spec.model;
  check_agrees(program, file, spec, flags.spec.given());
  if (flags.steps > 0) program.machine.steps = flags.steps;
  if (!program.machine.has_devices() && !(flags.slow.empty() && flags.fail.empty()))
    fail_user("simulate {}: it is for one device; leave out --slow and --fail", file);
  if (program.machine.has_devices() || !flags.network.empty()) flags.add_scenario(program.machine);
  const SimulatedRun run(simulated_step(program));
  if (!run.step.result.is_finished)
    tell_stuck(run.name, run.step.job(run.step.steps_in_a_row), run.step.result, program.machine.topology,
               flags.spec.json);
  if (!flags.trace.empty()) write_file_atomically(flags.trace, perfetto_json({run.traced(program.machine.name())}));
  if (!flags.chakra_out.empty()) write_chakra(run.plan(), run.trace(), flags.chakra_out);
  const std::int64_t samples =
      samples_of(program.step) * program.spec.replicas * std::int64_t{program.spec.micro_batches};
  if (flags.spec.json)
    say("{}", dumped({{"model", program.step.model},
                      {"machine", program.machine.name()},
                      {"dp", program.spec.replicas},
                      {"pp", program.spec.stages},
                      {"micro_batches", program.spec.micro_batches},
                      {"runs", {json_of(run, samples, run.fits(program.machine))}},
                      {"left_out", nlohmann::json::array()},
                      {"spec", json_of(program.spec)},
                      {"step_ms", run.step_ms()}}));
  else
    say("{}{}{}", print(program), table_of({run}, program.machine, samples),
        note_of_folding(run, program.spec.replicas, !flags.trace.empty()));
  return 0;
}

int run_simulation(const SimulateFlags& flags, const RunSpec& spec) { return Simulation(flags, spec).run(); }

void tell_stuck(const std::string& name, const ClusterJob& job, const JobResult& result, const Topology& topology,
                bool as_json) {
  const std::vector<StuckDevice> devices = stuck_devices(job, result, topology);
  const double ms = static_cast<double>(result.makespan_ns) * 1e-6;
  if (as_json)
    say("{}", dumped({{"job", name},
                      {"is_finished", false},
                      {"steps_done", result.step_ends_ns.size()},
                      {"steps", job.steps},
                      {"last_ms", ms},
                      {"devices", json_of(devices)}}));
  else
    say("{}: {} of {} steps done, nothing more after {:.3f} ms\n{}", name, result.step_ends_ns.size(), job.steps, ms,
        table_of(devices, kMostWaiting));
  std::fflush(stdout);
  fail_user("simulate: {}: the step does not end: {}", name, result.stuck.empty() ? "" : result.stuck[0].why);
}

}  // namespace overtake
