#include "plan/divide/outline.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "plan/divide/outline_compute.h"
#include "plan/divide/outline_reduce.h"
#include "plan/divide/outline_step.h"

namespace overtake {
namespace {

struct OrderName {
  std::string_view name;
  ReductionOrder order;
};
constexpr OrderName kOrders[] = {{"buckets", ReductionOrder::buckets},
                                 {"by-layer", ReductionOrder::by_layer},
                                 {"scatter-gather", ReductionOrder::scatter_gather}};

// Each device computes on one lane and has others for its sends, for what each device sends it, and for reductions.
void add_lanes(std::vector<OutlineStep::Message> messages, const ComputeLanes& compute, Reductions reductions,
               Plan& plan) {
  using Message = OutlineStep::Message;
  const Graph& graph = plan.graph;
  const std::vector<std::vector<TaskId>>& lanes = compute.lanes;
  std::vector<std::uint32_t> place(graph.tasks.size(), 0);
  for (const std::vector<TaskId>& lane : lanes)
    for (std::uint32_t i = 0; i < lane.size(); ++i) place[lane[i]] = i;
  const auto add_lane = [&](std::uint32_t device, std::vector<TaskId> tasks, bool is_asynchronous) {
    if (!tasks.empty()) plan.lanes.push_back({static_cast<std::uint16_t>(device), std::move(tasks), is_asynchronous});
  };
  // Also where a device has nothing to do.
  for (std::uint32_t d = 0; d < lanes.size(); ++d) plan.lanes.push_back({static_cast<std::uint16_t>(d), lanes[d]});

  // Sends in the order in which what they send is made; receives likewise, a lane for each sender.
  std::vector<TaskId> writer(graph.buffers.size(), kNone);
  for (const std::vector<TaskId>& lane : lanes)
    for (const TaskId t : lane)
      for (const BufferId b : graph.writes(t)) writer[b] = t;
  const auto made_by = [&](const Message& m) {
    const bool is_early = is_persistent(graph.buffers[m.made].role) || graph.tasks[m.send].is_delayed;
    if (is_early) return std::pair{TaskId{kNone}, std::uint32_t{0}};
    const TaskId t = writer[m.made];
    if (t == kNone) return std::pair{TaskId{kNone}, std::uint32_t{kNone}};  // reduced gradients: after all else
    const auto held = compute.held_by.find(t);
    const TaskId by = held == compute.held_by.end() ? t : held->second;
    return std::pair{by, place[by] + 1};
  };
  std::ranges::stable_sort(messages, {},
                           [&](const Message& m) { return std::tuple(m.from, made_by(m).second, m.send); });
  std::vector<std::vector<TaskId>> sends(lanes.size());
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<TaskId>> recvs;
  for (const Message& m : messages) {
    sends[m.from].push_back(m.send);
    recvs[{m.to, m.from}].push_back(m.recv);
    const TaskId by = made_by(m).first;
    if (by != kNone && by != writer[m.made]) plan.waits.push_back({by, m.send});
  }
  for (const Message& m : messages) writer[graph.writes(m.recv)[0]] = m.recv;
  for (const auto& [buffer, first] : compute.needs) {
    const TaskId w = writer[buffer];
    const bool is_ordered = w == kNone || graph.tasks[w].op != Op::transfer;  // on the same lane
    if (!is_ordered) plan.waits.push_back({w, first});
  }
  for (std::uint32_t d = 0; d < lanes.size(); ++d) add_lane(d, std::move(sends[d]), true);
  for (auto& [ends, tasks] : recvs) add_lane(ends.first, std::move(tasks), true);
  for (auto& [device, tasks] : reductions.sums) add_lane(device, std::move(tasks), true);
  for (auto& [device, tasks] : reductions.gathers) add_lane(device, std::move(tasks), true);
}

}  // namespace

ReductionOrder reduction_order_from_string(std::string_view name) {
  for (const OrderName& known : kOrders)
    if (known.name == name) return known.order;
  fail_user("`reduce {}`: no such order; choose buckets, by-layer or scatter-gather", name);
}

Outline make_outline(const BlockGraph& blocks, const PipelineProblem& problem, const PipelineSchedule& schedule,
                     const OutlineOptions& options) {
  const OutlineProblem what(blocks, problem, schedule, options);
  Outline out;
  out.plan.schedule = schedule.name;
  out.replicas = options.replicas;
  out.micro_batches = problem.micro_batches;
  out.devices = what.devices;
  OutlineStep step(what, out);
  ComputeLanes compute = compute_lanes(what, step);
  Reductions reductions = reduce_and_update(what, step, compute);
  add_lanes(step.messages(), compute, std::move(reductions), out.plan);
  std::ranges::sort(out.plan.waits);
  std::ranges::sort(out.plan.shares);
  return out;
}

std::vector<BlockCosts> block_costs(const BlockGraph& blocks) {
  const Graph& g = blocks.graph;
  std::vector<char> is_kept(g.buffers.size(), 0);  // by forward, for gradients
  for (const BlockGraph::Block& block : blocks.blocks)
    for (const TaskId t : {block.input_grad, block.weight_grad})
      for (const BufferId b : t == kNone ? std::span<const BufferId>{} : g.reads(t)) is_kept[b] = 1;
  std::vector<BlockCosts> costs;
  for (const BlockGraph::Block& block : blocks.blocks) {
    BlockCosts c;
    const auto ns = [&](TaskId t) { return t == kNone ? 0 : blocks.work[t].ns; };
    c.forward_ns = ns(block.forward);
    c.input_grad_ns = ns(block.input_grad);
    c.weight_grad_ns = ns(block.weight_grad);
    for (const BufferId b : g.writes(block.forward))
      if (is_kept[b] && g.buffers[b].role == Role::activation) c.activation_bytes += g.bytes(b);
    for (const TaskId t : {block.forward, block.update})
      for (const BufferId b : t == kNone ? std::span<const BufferId>{} : g.reads(t))
        if ((t == block.update || g.buffers[b].role != Role::weight) && is_persistent(g.buffers[b].role))
          c.weight_bytes += g.bytes(b);
    for (const BufferId b : block.gradients) c.weight_bytes += g.bytes(b);
    if (block.weight_grad != kNone)
      for (const BufferId b : g.reads(block.weight_grad))
        if (!is_persistent(g.buffers[b].role)) c.gradient_bytes += g.bytes(b);
    costs.push_back(c);
  }
  return costs;
}

}  // namespace overtake
