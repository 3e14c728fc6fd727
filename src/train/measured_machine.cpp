#include "train/measured_machine.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "machine/described_costs.h"
#include "machine/measured_costs.h"
#include "machine/measured_step.h"
#include "plan/compile.h"
#include "plan/detail_of.h"
#include "plan/divide/micro_batch_sums.h"
#include "plan/in_order.h"
#include "plan/memory.h"
#include "train/core_shares.h"
#include "train/measure_link.h"
#include "train/tags.h"

namespace overtake {
namespace {

// What the tasks of several devices take, each by itself. All ranks measure at once where each has cores of its own, so
// that contention counts; otherwise rank 0 measures alone. Only rank 0's result counts. It is made anew for every run:
// stages are cut by it, and it would carry the load of another hour into this one.
std::optional<Profile> times_over_devices(const Graph& graph, const Workplace& place,
                                          const std::vector<double>& core_shares) {
  const bool is_at_once = std::ranges::all_of(core_shares, [](double share) { return share == 1; });
  if (place.rank() != 0 && !is_at_once) return {};
  const unsigned gpus = place.devices.virtual_gpus;
  return gpus > 1 ? measure_beside_others(graph, *place.backend, gpus, place.note, place.time)
                  : measure_alone(graph, *place.backend, place.time);
}

// How much of a device each task needs, where more than one lane may run there; none: all of it.
std::vector<double> loads_of_tasks(const Program& p, const Workplace& place) {
  const bool has_devices = place.groups() != nullptr || place.devices.virtual_gpus > 1;
  if (!has_devices || p.spec.schedule == "in-order" || place.backend->most_lanes() < 2) return {};
  return profile_of(p.step, *place.backend, place.profiling).load;
}

// Of a step of several devices, with what it costs to add up micro-batches.
std::vector<TaskCost> costs_over_devices(const Program& p, const Workplace& place,
                                         const std::vector<double>& core_shares) {
  const Target& target = place.backend->target();
  const bool has_sums = p.spec.micro_batches > 1;
  const std::optional<Profile> times =
      times_over_devices(has_sums ? with_micro_batch_sums(p.step, target) : p.step, place, core_shares);
  const auto measured = [&] {
    const std::vector<std::int64_t> ns =
        has_sums ? with_sums_counted(p.step, times->alone_ns, p.spec.micro_batches, target) : times->alone_ns;
    return nlohmann::json{{"ns", ns}, {"load", loads_of_tasks(p, place)}}.dump();
  };
  const nlohmann::json all = parse_json(shared_text(place.groups(), measured));
  const auto loads = all.at("load").get<std::vector<double>>();
  std::vector<TaskCost> costs;
  for (const auto& one : all.at("ns")) {
    costs.push_back({.ns = one.get<std::int64_t>()});
    if (!loads.empty()) costs.back().load = loads[costs.size() - 1];
  }
  return costs;
}

Machine machine_between(const Program& p, const Workplace& place, const std::vector<double>& core_shares) {
  const std::uint32_t devices = p.spec.replicas * p.spec.stages;
  if (place.devices.virtual_gpus > 1) return machine_of_virtual_gpus(devices, place.devices.virtual_link);
  if (place.groups() == nullptr) return {};
  const LinkTimes link = measure_link(*place.groups()->world, p.spec.replicas > 1 ? LinkUse::sums : LinkUse::messages);
  return machine_of_ranks(link, core_shares, place.cores());
}

}  // namespace

std::string shared_text(const RankGroups* groups, const std::function<std::string()>& make) {
  if (groups == nullptr) return make();
  Group& world = *groups->world;
  std::string text = world.rank() == 0 ? make() : "";
  std::int64_t size = std::ssize(text);
  world.wait(world.broadcast(0, &size, sizeof size, DType::u8, {.tag = kPlanningTag}));
  text.resize(static_cast<std::size_t>(size));
  if (size > 0) world.wait(world.broadcast(0, text.data(), text.size(), DType::u8, {.tag = kPlanningTag + 1}));
  return text;
}

Machine with_measured_tasks(Machine machine, const Graph& model, const RunSpec& spec, const std::string& device,
                            const std::string& save_profile) {
  const std::vector<KindCount> kinds = kinds_of(machine, devices_for(spec, machine));
  for (const KindCount& k : kinds)
    if (const DeviceType& type = machine.cluster.devices[k.kind]; !type.profile.empty())
      fail_user("`measure {}`: device {} has measured times already (profile = {}); leave out one of the two", device,
                type.name, type.profile);
  if (kinds.size() > 1)
    fail_user(
        "`measure {}`: the run has devices of {} kinds, and one is at hand; measure each where it is with "
        "`save_profile FILE`, and name the files in a machine file (profile = \"FILE\")",
        device, kinds.size());
  const std::shared_ptr<Backend> backend = open_backend(device, {.precision = precision_from_string(spec.precision)});
  machine.target = std::shared_ptr<const Target>(backend, &backend->target());
  machine.kernels = backend->kernels();
  machine.costs = nullptr;
  // One task for the updates of several layers would tie their devices together.
  PassRunner runner({.skip = {"group_updates"}});
  Program program = compile_step(model, spec, machine, runner);
  const Graph graph = costed_graph(program);
  const std::vector<std::int64_t> ns = measure_alone(graph, *backend).alone_ns;
  const std::uint32_t kind = kinds[0].kind;
  std::vector<std::vector<TaskCost>> costs(kind + 1);
  costs[kind] = with_times(costs_by_rates(graph, machine.cluster.devices[kind], spec.precision == "tf32"), ns);
  machine.costs = std::make_shared<MeasuredCosts>(graph, std::move(costs));
  if (save_profile.empty()) return machine;
  const StepIdentity identity = identity_of(model, spec);
  write_file_atomically(
      save_profile,
      save_json(MeasuredStep{
          .key = identity.key, .of = identity.of, .device = backend->identity(), .step = graph, .ns = ns}));
  return machine;
}

Machine measured_machine(const Graph& model, const RunSpec& spec, const CompileOptions& options) {
  const Workplace place = open_workplace(spec);
  const Machine here = unmeasured_machine(place);
  PassRunner runner;
  const Program step = compile_step(model, completed_for(spec, here, place.cores()), here, runner, options);
  return measured_machine(step, place, /*predicts=*/true);
}

Machine unmeasured_machine(const Workplace& place) {
  Machine machine;
  // The target is the backend's, which it keeps.
  machine.target = std::shared_ptr<const Target>(place.backend, &place.backend->target());
  machine.kernels = place.backend->kernels();
  machine.most_lanes = place.backend->most_lanes();
  return machine;
}

Machine measured_machine(const Program& p, const Workplace& place, bool predicts) {
  const Machine here = unmeasured_machine(place);
  Machine machine = here;
  if (!p.has_several_devices()) {
    const bool is_open = p.spec.schedule == "ooo" || (p.spec.schedule == "auto" && (here.most_lanes > 1 || predicts));
    if (!is_open) return machine;
    const Graph graph = costed_graph(p);
    // What is too large even in order is refused before anything is measured.
    place_memory(schedule_in_order(graph), memory_cap_of(p.spec));
    const Profile profile = profile_of(graph, *place.backend, place.profiling);
    if (place.time->is_worthwhile())
      machine.costs = std::make_shared<MeasuredCosts>(graph, std::vector<std::vector<TaskCost>>{costs_of(profile)});
    return machine;
  }
  std::vector<double> shares;
  if (place.groups() != nullptr) shares = core_shares(*place.groups()->world, place.cores());
  const std::vector<TaskCost> costs = costs_over_devices(p, place, shares);
  machine = machine_between(p, place, shares);
  machine.target = here.target;
  machine.kernels = here.kernels;
  machine.most_lanes = here.most_lanes;
  machine.costs = std::make_shared<MeasuredCosts>(p.step, std::vector<std::vector<TaskCost>>{costs});
  return machine;
}

}  // namespace overtake
