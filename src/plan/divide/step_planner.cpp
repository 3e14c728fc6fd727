#include "plan/divide/step_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "plan/divide/side_lanes.h"
#include "plan/divide/usual_transfer.h"

namespace overtake {
namespace {

// What each device of a pipeline is. Of replicas, which all follow the same schedule, the slowest and the smallest
// count.
void describe_links(const BlockGraph& blocks, const Machine& machine, const std::vector<std::uint32_t>& devices,
                    PipelineProblem& problem) {
  problem.link_ns =
      usual_transfers_ns(blocks, machine.cluster, machine.topology, machine.options.protocol, devices, problem.devices);
  problem.transfer_ns = problem.link_ns[0][1];
  for (std::uint32_t from = 0; from < problem.devices; ++from)
    for (std::uint32_t to = 0; to < problem.devices; ++to)
      if (from != to && problem.link_ns[from][to] != problem.transfer_ns) return;
  problem.link_ns.clear();
}

void describe_memories(const Machine& machine, const std::vector<std::uint32_t>& devices, PipelineProblem& problem) {
  std::vector<std::int64_t>& caps = problem.memory_caps;
  caps.assign(problem.devices, PipelineProblem::kNoCap);
  for (std::size_t d = 0; d < devices.size(); ++d)
    if (const std::int64_t memory = machine.memory_of(devices[d]); memory > 0)
      caps[d % problem.devices] = std::min(caps[d % problem.devices], memory);
  if (std::ranges::adjacent_find(caps, std::not_equal_to()) != caps.end()) return;
  if (caps[0] != PipelineProblem::kNoCap) problem.memory_cap = caps[0];
  caps.clear();
}

// The speed that a device has, as far as planning may know: it is measured of ranks, and a mishap on machines that are
// described.
double known_speed(const Machine& machine, std::uint32_t device) {
  const bool is_known = machine.kind == Machine::Kind::ranks && !machine.options.speeds.empty();
  return is_known ? machine.options.speeds[device] : 1;
}

// What the slowest of devices of these kinds takes for each block; no kinds: all are alike.
std::vector<BlockCosts> slowest_costs(const Workload& work, const std::set<std::uint32_t>& kinds, double speed) {
  std::vector<BlockCosts> slowest;
  const auto add = [&](const BlockGraph& blocks) {
    const std::vector<BlockCosts> own = block_costs(blocks);
    if (slowest.empty()) slowest = own;
    for (std::size_t b = 0; b < own.size(); ++b)
      for (const auto ns : {&BlockCosts::forward_ns, &BlockCosts::input_grad_ns, &BlockCosts::weight_grad_ns})
        slowest[b].*ns = std::max(slowest[b].*ns, own[b].*ns);
  };
  if (kinds.empty()) add(work.blocks);
  for (const std::uint32_t k : kinds) {
    BlockGraph blocks = work.blocks;
    if (!work.by_kind[k].empty()) blocks.work = work.by_kind[k];
    add(blocks);
  }
  for (BlockCosts& costs : slowest)
    for (const auto ns : {&BlockCosts::forward_ns, &BlockCosts::input_grad_ns, &BlockCosts::weight_grad_ns})
      costs.*ns = std::llround(static_cast<double>(costs.*ns) / speed);
  return slowest;
}

void describe_kinds(const Workload& work, const Machine& machine, const std::vector<std::uint32_t>& devices,
                    PipelineProblem& problem) {
  // The cluster's kinds that a device and its replicas have, and the speed of the slowest of them.
  std::map<std::pair<std::set<std::uint32_t>, double>, std::uint32_t> known;
  for (std::uint32_t i = 0; i < problem.devices; ++i) {
    std::set<std::uint32_t> kinds;
    double speed = std::numeric_limits<double>::infinity();
    for (std::size_t d = i; d < devices.size(); d += problem.devices) {
      if (!work.by_kind.empty()) kinds.insert(machine.topology.vertices[devices[d]].type);
      speed = std::min(speed, known_speed(machine, devices[d]));
    }
    const auto [kind, is_new] = known.try_emplace(std::pair(kinds, speed), static_cast<std::uint32_t>(known.size()));
    problem.kind_of_device.push_back(kind->second);
    if (is_new) problem.blocks_of_kind.push_back(slowest_costs(work, kinds, speed));
  }
  if (known.size() > 1) return;
  problem.kind_of_device.clear();
  problem.blocks_of_kind.clear();
}

}  // namespace

std::string name_of(const PlanChoice& choice, const ParallelOptions& options) {
  std::string text = options.stages > 1 ? choice.schedule.name : "";
  const std::string lanes = choice.side.tasks.empty() ? "" : " + side lanes";
  if (options.replicas == 1) return (text.empty() ? "one device" : text) + lanes;
  if (!text.empty()) text += " + ";
  return text +
         (choice.reduce == "first-k" && choice.first_k.k > 0 ? "first-k " + to_string(choice.first_k)
          : choice.reduce == "first-k"                       ? "by-layer"
                                                             : choice.reduce) +
         lanes;
}

StepPlanner::StepPlanner(const Workload& work, const ParallelOptions& options, const Machine& machine,
                         std::vector<std::uint32_t> devices, int steps)
    : work_(work),
      options_(options),
      machine_(machine),
      devices_(std::move(devices)),
      steps_(steps),
      fold_{.kept = options.replicas} {
  const BlockGraph& blocks = work.blocks;
  if (blocks.blocks.size() < options.stages)
    fail_user("`pp {}`: {} has only {} layers with weights; use fewer stages", options.stages, blocks.graph.model,
              blocks.blocks.size());
  problem_ = {.devices = options.stages, .micro_batches = options.micro_batches, .blocks = block_costs(blocks)};
  if (!machine.has_devices()) return;
  if (devices_.empty()) {
    devices_.resize(options.devices());
    std::iota(devices_.begin(), devices_.end(), 0u);
  }
  // Second lanes are searched over the tasks of all.
  if (!may_use_side_lanes()) fold_ = fold_replicas(options, machine, devices_);
  if (options.stages == 1) return;
  const std::vector<std::uint32_t> kept(devices_.begin(), devices_.begin() + fold_.kept * options.stages);
  describe_links(blocks, machine, kept, problem_);
  if (options.may_repeat_weights || options.pipeline == "dualpipe")
    problem_.copy_sum_ns =
        copy_sums_ns(blocks, machine.cluster, machine.topology, machine.options, kept, options.stages);
  describe_memories(machine, devices_, problem_);
  describe_kinds(work, machine, devices_, problem_);
}

// Which tasks there are does not depend on what they take.
Outline StepPlanner::outline(const PlanChoice& choice, std::uint32_t kept) const {
  const bool is_reverse = choice.reduce == "first-k";
  const OutlineOptions how{.replicas = options_.replicas,
                           .kept_replicas = kept,
                           .order = is_reverse ? ReductionOrder::by_layer : reduction_order_from_string(choice.reduce),
                           .bucket_bytes = options_.bucket_bytes,
                           .first_k = is_reverse ? choice.first_k : FirstK{},
                           .updates_wait_for_all = options_.clip_norm > 0};
  Outline out = make_outline(work_.blocks, problem_, choice.schedule, how);
  put_aside(out, choice.side);
  for (std::uint32_t kind = 0; kind < work_.by_kind.size(); ++kind) {
    if (work_.by_kind[kind].empty()) continue;
    BlockGraph blocks = work_.blocks;
    blocks.work = work_.by_kind[kind];
    const std::vector<TaskCost> costs = make_outline(blocks, problem_, choice.schedule, how).work;
    for (TaskId t = 0; t < costs.size(); ++t)
      if (machine_.topology.vertices[devices_[out.plan.graph.tasks[t].device]].type == kind) out.work[t] = costs[t];
  }
  return out;
}

PredictedStep StepPlanner::predict(const PlanChoice& choice) const {
  // What lies on second lanes are tasks of the whole outline.
  const std::uint32_t kept = choice.side.tasks.empty() ? fold_.kept : options_.replicas;
  const auto end = devices_.begin() + std::min<std::ptrdiff_t>(std::ssize(devices_), kept * options_.stages);
  return predict_step(outline(choice, kept), machine_, {devices_.begin(), end}, steps_,
                      {{end, devices_.end()}, fold_.share_outside});
}

}  // namespace overtake
