#include "plan/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/available_cores.h"
#include "base/error.h"
#include "passes/keep.h"
#include "passes/training_passes.h"
#include "plan/detail_of.h"
#include "plan/lanes/lane_choices.h"
#include "plan/own_order.h"
#include "run/field.h"

namespace overtake {
namespace {

// "0-3,8".
std::vector<std::uint32_t> devices_from_text(const std::string& text) {
  constexpr std::uint32_t kMost = 65535;
  std::vector<std::uint32_t> devices;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const auto number = [&](std::string_view digits) {
      std::uint32_t value = 0;
      const char* const end = digits.data() + digits.size();
      const bool is_whole = std::from_chars(digits.data(), end, value) == std::from_chars_result{end, std::errc{}};
      return is_whole ? std::int64_t{value} : std::int64_t{-1};
    };
    const std::size_t dash = std::min(item.find('-'), item.size());
    const std::int64_t first = number(item.substr(0, dash));
    const std::int64_t last = dash < item.size() ? number(item.substr(dash + 1)) : first;
    if (first < 0 || last < first || last > kMost)
      fail_user("`devices {}`: '{}' is no device and no range; give for example 0-3,8", text, item);
    for (std::int64_t d = first; d <= last; ++d) devices.push_back(static_cast<std::uint32_t>(d));
  }
  return devices;
}

OptimizerSettings optimizer_of(const RunSpec& spec) {
  if (spec.nesterov && spec.momentum == 0) fail_user("`nesterov`: it needs `momentum` above 0");
  return {.kind = spec.optimizer == "sgd" ? OptimizerSettings::Kind::sgd : OptimizerSettings::Kind::adamw,
          .momentum = spec.momentum,
          .nesterov = spec.nesterov,
          .weight_decay = spec.weight_decay,
          .beta1 = spec.beta1,
          .beta2 = spec.beta2,
          .eps = spec.eps,
          .clip_norm = spec.clip_norm};
}

std::vector<std::uint32_t> kind_ids(const Program& program) {
  std::vector<std::uint32_t> ids;
  for (const KindCount& k : kinds_of(program.machine, program.devices)) ids.push_back(k.kind);
  return ids;
}

// A cost model may be the user's own.
void check_costs(const std::vector<TaskCost>& costs, const Graph& graph, const Machine& machine) {
  if (costs.size() != graph.tasks.size())
    fail_user(
        "`costs`: the cost model of {} gives {} costs for the {} tasks of {}; give one for each task, in their order",
        machine.name(), costs.size(), graph.tasks.size(), graph.model);
  for (TaskId t = 0; t < costs.size(); ++t)
    if (costs[t].ns < 0 || !(costs[t].load >= 0))
      fail_user("`costs`: the cost model of {} gives task {} {} ns with a load of {}; give no negative ones",
                machine.name(), graph.task_name(t), costs[t].ns, costs[t].load);
}

// Some plans follow from what tasks take.
void check_known(const Program& p) {
  if (p.machine.costs) return;
  const bool is_ordered = p.spec.schedule == "ooo";
  if (p.is_outlined() || is_ordered)
    fail_user(
        "`costs`: nothing is known of what tasks take on {}, and {} follows from that; take a machine from "
        "measured_machine(), or give it a cost model",
        p.machine.name(), p.is_outlined() ? "how a step is divided" : "an order of schedule ooo");
}

Program ask_costs(Program p) {
  const Graph graph = costed_graph(p);
  const std::vector<std::uint32_t> kinds = kind_ids(p);
  p.costs.resize(std::ranges::max(kinds) + 1);
  for (const std::uint32_t kind : kinds) {
    p.costs[kind] = p.machine.costs->costs(graph, kind);
    check_costs(p.costs[kind], graph, p.machine);
  }
  return p;
}

Program divide(Program p) {
  const ParallelOptions parallel = parallel_options(p.spec);
  if (p.has_several_devices() && !p.machine.has_devices() && p.spec.schedule == "ooo")
    fail_user(
        "`schedule ooo`: here one process does what all {} devices would, one after the other, so nothing runs beside "
        "anything; start a process for each with `overtake launch -n {}`, or leave it out",
        parallel.devices(), parallel.devices());
  const OutlinePlanner planner(p);
  p.choices = planner->choices();
  for (PlanChoice& c : p.choices) c.name = name_of(c, parallel);
  return p;
}

Program put_on_lanes(Program p, const std::function<bool()>& is_out_of_time) {
  LaneOptions options{.schedule = p.spec.schedule,
                      .most_lanes = p.machine.most_lanes,
                      .memory_cap = memory_cap_of(p.spec),
                      .is_cancelled = is_out_of_time};
  if (p.spec.search_tries > 0) options.search_tries = p.spec.search_tries;
  static const std::vector<TaskCost> kNothing;
  const std::vector<TaskCost>& costs = p.costs.empty() ? kNothing : p.costs[kind_ids(p)[0]];
  p.choices = lane_choices(costed_graph(p), costs, options, p.reason);
  return p;
}

// Of choices of which it is not known yet, what a step takes and the memory it needs.
Program predict(Program p) {
  const OutlinePlanner planner(p);
  for (PlanChoice& c : p.choices) {
    const PredictedStep step = planner->predict(c);
    if (!step.result.is_finished) continue;
    c.predicted_ns = step.step_ns();
    c.fits = c.fits && first_without_room(step, p.machine) == kNone;
    const std::vector<std::int64_t> peaks = peak_memory(step);
    c.peak_bytes.clear();
    for (std::size_t copy = 0; copy < step.alike(); ++copy)
      c.peak_bytes.insert(c.peak_bytes.end(), peaks.begin(), peaks.end());
  }
  return p;
}

// The passes behind the graph's, in order.
std::vector<Pass<Program>> program_passes(const Program& p, const CompileOptions& options) {
  std::vector<Pass<Program>> passes;
  // What tasks take is asked once, of the graph that is planned.
  if (p.machine.costs) passes.push_back({"costs", ask_costs});
  if (options.own_order) {
    passes.push_back(
        {"own_order", [&options](Program program) { return take_own_order(std::move(program), options.own_order); }});
    return passes;
  }
  check_known(p);
  // Across devices first: it is what other devices wait for.
  if (p.is_outlined()) {
    passes.push_back({"divide", divide});
    passes.push_back({"predict", predict});
  } else {
    // Within a device, with all its micro-batches.
    passes.push_back(
        {"lanes", [&options](Program program) { return put_on_lanes(std::move(program), options.is_out_of_time); }});
  }
  passes.push_back({"choose", [](Program program) {
                      choose(program);
                      return program;
                    }});
  return passes;
}

// What is for one device and a batch in one piece only.
void check_undivided(const RunSpec& spec, const CompileOptions& options) {
  if (!parallel_options(spec).is_used()) return;
  const auto check = [&](bool is_given, std::string_view name) {
    if (is_given)
      fail_user(
          "`{}`: it is for one device and a batch in one piece, and this run has {} x {} devices with {} pieces "
          "each; leave it out",
          name, spec.replicas, spec.stages, spec.micro_batches);
  };
  check(options.own_order != nullptr, "own_order");
  check(!options.readable.empty(), "readable");
}

// The user's own passes, and what keeps the tensors that are to be readable.
std::vector<Pass<Graph>> with_readable(const CompileOptions& options) {
  std::vector<Pass<Graph>> passes = options.extra_passes;
  if (!options.readable.empty()) passes.push_back(keep_readable(options.readable));
  return passes;
}

}  // namespace

RunSpec completed_for(RunSpec spec, const Machine& machine, unsigned cores) {
  if (machine.target == nullptr)
    fail_user("`target`: what the kernels of {} want is not known; take a machine from machine_of(), or set its target",
              machine.name());
  if (spec.precision.empty()) spec.precision = machine.kernels == DeviceTarget::gpu ? "bf16" : "f32";
  if (spec.parts == 0) spec.parts = spec.threads > 0 ? spec.threads : cores;
  return spec;
}

std::vector<std::uint32_t> named_devices(const RunSpec& spec, const Machine& machine) {
  const std::uint32_t there = machine.topology.device_count;
  const std::vector<std::uint32_t> devices = devices_from_text(spec.devices);
  std::vector<std::uint32_t> sorted = devices;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    fail_user("`devices`: device {} is given twice", *twice);
  if (!sorted.empty() && sorted.back() >= there)
    fail_user("`devices`: there is no device {}; machine {} has devices 0 to {}", sorted.back(), machine.name(),
              there - 1);
  return devices;
}

std::vector<std::uint32_t> devices_for(const RunSpec& spec, const Machine& machine) {
  const std::uint64_t wanted = std::uint64_t{spec.replicas} * spec.stages;
  if (!machine.has_devices()) return {};
  const std::uint32_t there = machine.topology.device_count;
  if (wanted > there)
    fail_user(
        "`dp {}` x `pp {}`: they are {} devices, and machine {} has {}; add nodes (a preset takes them as NAME:4)",
        spec.replicas, spec.stages, wanted, machine.name(), there);
  if (const std::size_t given = devices_from_text(spec.devices).size(); given > 0 && given != wanted)
    fail_user("`devices`: {} are given, and `dp {}` x `pp {}` are {}", given, spec.replicas, spec.stages, wanted);
  std::vector<std::uint32_t> devices = named_devices(spec, machine);
  if (devices.empty()) {
    devices.resize(wanted);
    std::iota(devices.begin(), devices.end(), 0u);
  }
  return devices;
}

Program compile_step(Graph model, const RunSpec& spec, const Machine& machine, PassRunner& runner,
                     const CompileOptions& options) {
  check_fields(spec);
  const bool is_divided = parallel_options(spec).is_used();
  Program p{.spec = deciding_part(spec),
            .machine = machine,
            .devices = devices_for(spec, machine),
            .model = std::move(model),
            .step = {},
            .costs = {},
            .choices = {},
            .reason = {}};
  check_undivided(spec, options);
  if (machine.costs)
    if (std::optional<Graph> measured = machine.costs->measured_step(p.model, p.spec, kind_ids(p))) {
      if (!options.extra_passes.empty() || !options.readable.empty())
        fail_user(
            "`{}`: machine {} has times of another step, which was measured without it; leave it out, or take a "
            "machine that has none",
            options.readable.empty() ? "extra_passes" : "readable", machine.name());
      p.step = std::move(*measured);
      return p;
    }
  OptimizerSettings optimizer = optimizer_of(spec);
  // Gradients are clipped where all devices' are known: behind dividing.
  if (is_divided) optimizer.clip_norm = 0;
  // Updates of a stage's weights are its own, and what is sent lies in a buffer of its own.
  std::vector<std::string> skipped = spec.skip_passes;
  if (is_divided) skipped.insert(skipped.end(), {"group_updates", "share_concats"});
  PassRunner graph_runner = runner.without(skipped);
  p.step = build_training_graph(p.model, *machine.target,
                                {.optimizer = optimizer,
                                 .bf16 = spec.precision == "bf16",
                                 .propagate_layouts = spec.layouts,
                                 .parts = std::max(1u, spec.parts),
                                 .extra = with_readable(options)},
                                graph_runner);
  return p;
}

Program compile_order(Program p, PassRunner& runner, const CompileOptions& options) {
  for (const Pass<Program>& pass : program_passes(p, options)) p = runner.run(pass, std::move(p));
  return p;
}

Program compile(Graph model, const RunSpec& spec, const Machine& machine, PassRunner& runner,
                const CompileOptions& options) {
  return compile_order(compile_step(std::move(model), spec, machine, runner, options), runner, options);
}

Program compile(Graph model, const RunSpec& spec, const Machine& machine, const CompileOptions& options) {
  PassRunner runner({.skip = {}, .print = options.print_passes});
  return compile(std::move(model), completed_for(spec, machine, available_cores()), machine, runner, options);
}

}  // namespace overtake
