#include "train/parallel.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "passes/pipeline/named.h"
#include "passes/pipeline/search.h"
#include "train/profiling.h"

namespace overtake {
namespace {

constexpr std::uint32_t kBlocksOfAPipeline = 64, kMostBlocks = 400;
constexpr std::uint64_t kPlanningTag = std::uint64_t{1} << 60;

// What rank 0 has, on all.
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

std::vector<TaskWork> measured_work(const Graph& step, Backend& backend) {
  const Profile profile = measure_profile(step, backend, 0);  // nothing side by side
  std::vector<TaskWork> work(step.tasks.size());
  for (TaskId t = 0; t < work.size(); ++t) work[t].ns = profile.alone_ns[t];
  return work;
}

std::string to_text(const std::vector<TaskWork>& work) {
  nlohmann::json ns = nlohmann::json::array();
  for (const TaskWork& w : work) ns.push_back(w.ns);
  return ns.dump();
}

std::vector<TaskWork> work_from_text(const std::string& text) {
  std::vector<TaskWork> work;
  for (const auto& ns : nlohmann::json::parse(text)) work.push_back({.ns = ns.get<std::int64_t>()});
  return work;
}

std::string to_text(const PipelineSchedule& s) {
  nlohmann::json orders = nlohmann::json::array();
  for (const auto& order : s.orders) {
    nlohmann::json blocks = nlohmann::json::array();
    for (const Block& b : order) blocks.push_back({static_cast<int>(b.kind), b.is_joined, b.chunk, b.micro_batch});
    orders.push_back(std::move(blocks));
  }
  return nlohmann::json{{"name", s.name},
                        {"first_stage", s.layout.first_stage},
                        {"device_of", s.layout.device_of},
                        {"route_of", s.layout.route_of},
                        {"orders", std::move(orders)}}
      .dump();
}

PipelineSchedule schedule_from_text(const std::string& text) {
  const auto in = nlohmann::json::parse(text);
  PipelineSchedule s;
  s.name = in.at("name").get<std::string>();
  s.layout.first_stage = in.at("first_stage").get<std::vector<std::uint32_t>>();
  s.layout.device_of = in.at("device_of").get<std::vector<std::vector<std::uint32_t>>>();
  s.layout.route_of = in.at("route_of").get<std::vector<std::uint32_t>>();
  for (const auto& order : in.at("orders")) {
    s.orders.emplace_back();
    for (const auto& b : order)
      s.orders.back().push_back({static_cast<BlockKind>(b[0].get<int>()), b[1].get<bool>(), b[2].get<std::uint32_t>(),
                                 b[3].get<std::uint32_t>()});
  }
  return s;
}

PipelineSchedule make_pipeline(const PipelineProblem& problem, const ParallelOptions& options) {
  if (options.stages == 1 || options.pipeline != "search")
    return make_schedule(options.stages == 1 ? "1f1b" : options.pipeline, problem);
  // On two devices at once a weight would get its gradients in another order.
  return search_schedule(problem, {.seconds = options.search_seconds, .may_repeat_weights = false}).schedule;
}

}  // namespace

void check(const ParallelOptions& o) {
  if (o.groups > 1 && o.replicas > 1)
    fail_user("--gradient-groups {}: with --dp {} every replica is a group already; use one of the two", o.groups,
              o.replicas);
  if (o.micro_batches % o.groups != 0)
    fail_user("--gradient-groups {}: --micro-batches {} is no multiple of it", o.groups, o.micro_batches);
  if (o.reduce != "first-k") reduction_order_from_string(o.reduce);
  if (o.reduce == "first-k" && o.first_k == 0) fail_user("--reduce first-k: say how many layers with --first-k");
  if (o.reduce != "first-k" && o.first_k > 0) fail_user("--first-k {}: it is for --reduce first-k", o.first_k);
}

ParallelPlan plan_in_parallel(const Graph& step, Backend& backend, const ParallelOptions& options,
                              const RankGroups* groups) {
  const std::vector<TaskWork> work =
      work_from_text(shared_text(groups, [&] { return to_text(measured_work(step, backend)); }));
  const std::uint32_t most = options.stages > 1 ? std::max(kBlocksOfAPipeline, 4 * options.stages) : kMostBlocks;
  const BlockGraph blocks = make_blocks(step, work, most);
  if (blocks.blocks.size() < options.stages)
    fail_user("--pp {}: {} has only {} layers with weights; use fewer stages", options.stages, step.model,
              blocks.blocks.size());
  const PipelineProblem problem{
      .devices = options.stages, .micro_batches = options.micro_batches, .stages = stage_costs(blocks)};
  const PipelineSchedule schedule =
      schedule_from_text(shared_text(groups, [&] { return to_text(make_pipeline(problem, options)); }));
  const bool is_reverse = options.reduce == "first-k";
  ParallelPlan out;
  out.cluster = spread(blocks, problem, schedule,
                       {.replicas = options.replicas,
                        .order = is_reverse ? ReductionOrder::by_layer : reduction_order_from_string(options.reduce),
                        .bucket_bytes = options.bucket_bytes,
                        .first_k = is_reverse ? options.first_k : 0});
  out.whole = unfold(step, blocks, out.cluster, {.groups = options.groups});
  verify(out.whole.plan);
  return out;
}

Plan forward_part(Plan plan) {
  Graph& g = plan.graph;
  std::vector<char> is_forward(g.tasks.size(), 0);
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    const Task& task = g.tasks[t];
    is_forward[t] =
        task.kind == Kind::forward || (task.op == Op::transfer && g.attrs_of(task).integer("forward", 0) != 0);
  }
  plan.skipped.assign(g.tasks.size(), 0);
  for (Lane& lane : plan.lanes) std::erase_if(lane.tasks, [&](TaskId t) { return !is_forward[t]; });
  std::erase_if(plan.waits, [&](const Wait& w) { return !is_forward[w.before] || !is_forward[w.after]; });
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    plan.skipped[t] = !is_forward[t];
    if (!is_forward[t] || !g.attrs_of(g.tasks[t]).has("training")) continue;
    Attrs attrs = g.attrs_of(g.tasks[t]);
    attrs.set("training", std::int64_t{0});
    g.tasks[t].attrs = g.add_attrs(attrs);
  }
  plan.schedule = "forward";
  return plan;
}

}  // namespace overtake
