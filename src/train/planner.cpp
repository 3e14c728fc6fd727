#include "train/planner.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "exec/described_target.h"
#include "plan/detail_of.h"
#include "sim/collective_lanes.h"
#include "train/kept_plans.h"
#include "train/measured_machine.h"
#include "train/trials.h"

namespace overtake {
namespace {

constexpr std::uint32_t kMostDevicesStepByStep = 64;  // on larger machines a collective goes as one flow

Algorithm algorithm_of(const std::string& name) {
  for (const Algorithm a : {Algorithm::automatic, Algorithm::ring, Algorithm::tree, Algorithm::halving_doubling,
                            Algorithm::hierarchical, Algorithm::in_network, Algorithm::nvls_tree, Algorithm::torus})
    if (to_string(a) == name) return a;
  OVERTAKE_CHECK(false, "no algorithm {}", name);
  return Algorithm::automatic;
}

// Of the devices in the run: they must agree.
DeviceTarget kernels_of(const Machine& machine, const std::vector<std::uint32_t>& devices) {
  std::optional<DeviceTarget> kernels;
  for (const KindCount& k : kinds_of(machine, devices)) {
    const DeviceType& device = machine.cluster.devices[k.kind];
    if (kernels && *kernels != device.target)
      fail_user(
          "machine {}: the run has devices with kernels of GPUs and of CPUs (target of device {}); a step is planned "
          "for "
          "one kind, so choose its devices with `devices`",
          machine.name(), device.name);
    kernels = device.target;
  }
  return kernels.value_or(DeviceTarget::gpu);
}

void check_place(const Machine& machine, const Workplace& place, const std::string& what) {
  if (machine.kernels == place.backend->kernels()) return;
  const bool is_gpu = machine.kernels == DeviceTarget::gpu;
  fail_user("{}: it is for {}, and this run's device has kernels of {}; use another `device`, or another machine", what,
            is_gpu ? "GPUs" : "CPUs", is_gpu ? "CPUs" : "GPUs");
}

// What rank 0 compiled, on all ranks.
void share(Program& program, const Workplace& place) {
  if (place.groups() == nullptr) return;
  const std::string text = shared_text(place.groups(), [&] { return save_choices(program); });
  take_choices(program, text);
}

// Searches end in time for trials.
CompileOptions within_time(CompileOptions options, const Workplace& place) {
  if (!options.is_out_of_time)
    options.is_out_of_time = [time = place.time] { return time->is_over(PlanningTime::kSearchPart); };
  return options;
}

// Before anything takes long.
void say_planning(const Program& program, const Workplace& place) {
  const bool is_open =
      program.has_several_devices() || (program.spec.schedule != "in-order" && (place.backend->most_lanes() > 1));
  if (!place.note || !is_open) return;
  const std::string promise = place.time->promise();
  place.note(promise.empty() ? "planning: measuring tasks, searching, and trying schedules"
                             : fmt::format("planning, {}; `schedule in-order` needs none", promise));
}

void tell_of_time(const Program& program, const Workplace& place) {
  constexpr double kLong = 1;  // seconds; less is not worth a word
  if (!place.note || program.costs.empty()) return;
  if (place.time->is_cut() || place.time->spent() > kLong) place.note(place.time->summary());
}

void tell(const Program& program, const Workplace& place) {
  if (!place.note) return;
  if (!program.machine.text.empty() && program.choices.size() > 1) place.note(program.machine.text);
  if (program.has_several_devices()) {
    if (program.choices.size() > 1) place.note(table_of_choices(program));
  } else if (!program.reason.empty()) {
    place.note(program.reason);
  }
}

}  // namespace

Machine machine_of(const RunSpec& spec) {
  return spec.machine.empty() ? unmeasured_machine(open_workplace(spec)) : machine_of(spec, 0);
}

Machine machine_of(const RunSpec& spec, int steps) { return machine_of(spec, load_cluster(spec.machine), steps); }

Machine machine_of(const RunSpec& spec, Cluster cluster, int steps) {
  Machine machine = described_machine(std::move(cluster), spec.precision == "tf32");
  machine.steps = steps;
  machine.folds_replicas = true;
  machine.options.algorithm = algorithm_of(spec.algorithm);
  machine.options.chunk_bytes = parse_bytes(spec.chunk, "`chunk`");
  machine.options.is_fluid = machine.topology.device_count > kMostDevicesStepByStep;
  if (!spec.memory_cap.empty())
    machine.memory.assign(machine.topology.device_count, parse_bytes(spec.memory_cap, "`memory_cap`"));
  else
    for (std::uint32_t d = 0; d < machine.topology.device_count; ++d)
      machine.memory.push_back(machine.cluster.devices[machine.topology.vertices[d].type].memory_bytes());
  machine.kernels = kernels_of(machine, devices_for(spec, machine));
  machine.target = described_target(machine.kernels);
  constexpr std::size_t kLanesOfAGpu = 4;
  const std::uint32_t first = devices_for(spec, machine)[0];
  machine.most_lanes =
      machine.kernels == DeviceTarget::gpu
          ? kLanesOfAGpu
          : static_cast<std::size_t>(std::max(1, machine.cluster.devices[machine.topology.vertices[first].type].sms));
  return machine;
}

PlannedRun plan_run(Graph model, const RunSpec& spec, const Workplace& place, const CompileOptions& options) {
  PassRunner runner({.skip = {}, .print = options.print_passes});
  const bool is_described = !spec.machine.empty();
  Machine machine = is_described ? machine_of(spec) : unmeasured_machine(place);
  if (is_described) check_place(machine, place, fmt::format("`machine {}`", spec.machine));
  const RunSpec completed = completed_for(spec, machine, place.cores());
  Program program = compile_step(std::move(model), completed, machine, runner, options);
  const KeptPlans kept(program, spec, place, options);
  if (kept.take(program)) {
    tell(program, place);
    return {std::move(program), runner.records()};
  }
  say_planning(program, place);
  if (!is_described) {
    program.machine = measured_machine(program, place, spec.predict);
    program.devices = devices_for(completed, program.machine);
  }
  if (place.rank() == 0) program = compile_order(std::move(program), runner, within_time(options, place));
  if (place.time->is_over(PlanningTime::kSearchPart)) place.time->leave_out("the search for schedules was cut short");
  share(program, place);
  if (spec.trials) try_choices(program, place);
  if (!place.time->is_worthwhile()) program.reason = "schedule: in order; " + place.time->why_not();
  tell(program, place);
  tell_of_time(program, place);
  kept.keep(program);
  return {std::move(program), runner.records()};
}

Program read_program(const std::string& path, const std::string& where) {
  Program program = load_program_json(read_file(path), where);
  program.machine.target = described_target(program.machine.kernels);
  try {
    if (const TaskOrder& order = program.choice().order; order.is_given() && !program.is_outlined())
      verify(with_order(costed_graph(program), order));
  } catch (const InternalError& e) {
    fail_user("{}: its content does not hold together: {}; write it again with `overtake plan`", where, e.reason());
  }
  return program;
}

Program load_program(const std::string& path, const Workplace& place) {
  const std::string where = fmt::format("`plan {}`", path), text = read_file(path);
  // Every process reads the file where it is.
  if (shared_text(place.groups(), [&] { return text; }) != text)
    fail_user("{}: rank {} has another plan in this file than rank 0; give all hosts the same", where, place.rank());
  return fit_to_place(read_program(path, where), place, where);
}

Program fit_to_place(Program program, const Workplace& place, const std::string& where) {
  check_place(program.machine, place, where);
  const std::uint32_t devices = program.spec.replicas * program.spec.stages;
  if (place.groups() != nullptr && place.groups()->world->size() != static_cast<int>(devices))
    fail_user("{}: it is for {} devices, and this job has {} processes; start `overtake launch -n {}`", where, devices,
              place.groups()->world->size(), devices);
  // A program that was compiled in this process may have gone through passes of the user's, which are not known here:
  // what its target wants is compared, and otherwise, of one that was read, the step itself.
  PassRunner runner;
  const auto step_there = [&] {
    return program.machine.target ? compile_step(program.model, program.spec, program.machine, runner).step
                                  : program.step;
  };
  const Fingerprint there = fingerprint(step_there());
  program.machine.target = std::shared_ptr<const Target>(place.backend, &place.backend->target());
  program.machine.costs = nullptr;
  if (fingerprint(compile_step(program.model, program.spec, program.machine, runner).step) != there)
    fail_user(
        "{}: the kernels of this device want another step than the one that is planned there; plan it here with "
        "`overtake plan`",
        where);
  return program;
}

}  // namespace overtake
