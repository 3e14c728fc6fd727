#include "train/parallel.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ops/check_task.h"
#include "plan/divide/clip.h"
#include "plan/divide/micro_batch_sums.h"
#include "plan/divide/step_planner.h"
#include "plan/divide/sync_batch_norm.h"
#include "train/core_shares.h"
#include "train/measure_link.h"
#include "train/parallel_trial.h"
#include "train/profiling.h"
#include "train/tags.h"
#include "train/timing.h"

namespace overtake {
namespace {

constexpr double kTrialLastsMs = 300;  // how long the steps of a trial are to take at least
constexpr int kLeastTrial = 3, kMostTrial = 30;

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

std::vector<TaskCost> measured_work(const Graph& step, const ParallelSetting& setting, std::uint32_t micro_batches) {
  const unsigned gpus = setting.devices.virtual_gpus;
  const Target& target = setting.backend.target();
  const bool has_sums = micro_batches > 1;
  const Graph measured = has_sums ? with_micro_batch_sums(step, target) : step;
  Profile profile = gpus > 1 ? measure_beside_others(measured, setting.backend, gpus, setting.note)
                             : measure_alone(measured, setting.backend);
  if (has_sums) profile.alone_ns = with_sums_counted(step, profile.alone_ns, micro_batches, target);
  std::vector<TaskCost> work;
  for (const std::int64_t ns : profile.alone_ns) work.push_back({.ns = ns});
  return work;
}

std::string to_text(const std::vector<TaskCost>& work) {
  nlohmann::json ns = nlohmann::json::array();
  for (const TaskCost& w : work) ns.push_back(w.ns);
  return ns.dump();
}

std::vector<TaskCost> work_from_text(const std::string& text) {
  std::vector<TaskCost> work;
  for (const auto& ns : nlohmann::json::parse(text)) work.push_back({.ns = ns.get<std::int64_t>()});
  return work;
}

// Of all ranks at once, where each has cores of its own: then what else they share counts. Rank 0's are taken.
std::vector<TaskCost> shared_work(const Graph& step, const ParallelSetting& setting,
                                  const std::vector<double>& core_shares, std::uint32_t micro_batches) {
  const bool is_at_once = std::ranges::all_of(core_shares, [](double share) { return share == 1; });
  const RankGroups* const groups = setting.groups();
  std::vector<TaskCost> own;
  if (groups == nullptr || groups->world->rank() == 0 || is_at_once) own = measured_work(step, setting, micro_batches);
  return work_from_text(shared_text(groups, [&] { return to_text(own); }));
}

Machine find_machine(const ParallelOptions& options, const ParallelSetting& setting,
                     const std::vector<double>& core_shares) {
  if (setting.devices.virtual_gpus > 1) return machine_of_virtual_gpus(options.devices(), setting.devices.virtual_link);
  if (setting.groups() == nullptr) return {};
  Group& world = *setting.groups()->world;
  LinkTimes link = measure_link(world, options.replicas > 1 ? LinkUse::sums : LinkUse::messages);
  return machine_of_ranks(link, core_shares, setting.threads());
}

struct Chosen {
  std::size_t index = 0;
  std::optional<Plan> placed = {};
};

// Which of the candidates, by a few real steps of each where there are several. GPUs of several ranks are not connected
// yet: there the best predicted is taken.
Chosen choose(std::vector<ParallelCandidate>& candidates, const ParallelSetting& setting,
              const std::function<Detail(const ParallelCandidate&)>& plan_of) {
  if (candidates.size() == 1 || setting.devices.device_groups) return {};
  const int steps =
      steps_lasting(kTrialLastsMs, static_cast<double>(candidates[0].predicted_ns) * 1e-6, kLeastTrial, kMostTrial);
  std::vector<std::optional<Plan>> placed(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    std::optional<TimedPlan> timed = time_plan(plan_of(candidates[i]), steps, setting);
    if (!timed) continue;
    candidates[i].measured_ns = timed->step_ns;
    placed[i] = std::move(timed->placed);
  }
  const auto is_slower = [](const ParallelCandidate& a, const ParallelCandidate& b) {
    return std::pair(a.measured_ns == 0, a.measured_ns) < std::pair(b.measured_ns == 0, b.measured_ns);
  };
  const auto fastest = std::ranges::min_element(candidates, is_slower) - candidates.begin();
  const std::size_t index = std::stoul(shared_text(setting.groups(), [&] { return std::to_string(fastest); }));
  return {index, std::move(placed[index])};
}

}  // namespace

ParallelPlan plan_in_parallel(const Graph& step, const ParallelOptions& options, const ParallelSetting& setting) {
  RankGroups* const groups = setting.groups();
  std::vector<double> shares;
  if (groups != nullptr) shares = core_shares(*groups->world, setting.threads());
  const Workload work{.blocks = make_blocks(step, shared_work(step, setting, shares, options.micro_batches),
                                            block_limit(options, /*recomputes=*/false))};
  Machine machine;
  const bool is_open = options.searches() || options.chooses_reduction();
  if (options.stages > 1 || is_open || options.predict) machine = find_machine(options, setting, shares);
  const StepPlanner planner(work, options, machine);
  std::vector<ParallelCandidate> candidates =
      candidates_from_text(shared_text(groups, [&] { return to_text(planner.candidates()); }));
  const Target& target = setting.backend.target();
  const auto plan_of = [&](const ParallelCandidate& c) {
    Detail whole = make_detail(step, work.blocks, planner.outline(c), {.groups = options.groups, .target = &target});
    if (options.sync_batch_norm && !synchronise_batch_norms(whole, target))
      fail_user("`sync_batch_norm`: {} has no batch norm; leave it out", step.model);
    if (options.clip_norm > 0) clip_gradients(whole, step, options.clip_norm, target);
    return whole;
  };
  Chosen best = choose(candidates, setting, plan_of);
  if (candidates.size() > 1 && setting.note) setting.note(table_of(candidates, best.index, options, machine));

  const ParallelCandidate& chosen = candidates[best.index];
  ParallelPlan out{.whole = plan_of(chosen), .options = options, .predicted = {}, .placed = std::move(best.placed)};
  out.options.reduce = chosen.reduce;
  if (chosen.reduce == "first-k") out.options.first_k = chosen.first_k;
  if (options.searches()) out.options.pipeline = chosen.schedule.name;
  if (options.predict && (groups == nullptr || groups->world->rank() == 0)) out.predicted = planner.predict(chosen);
  verify(out.whole.plan);
  check_tasks(out.whole.plan.graph);
  return out;
}

Detail own_part(const Detail& whole, const BackendOptions& devices) {
  if (devices.groups) return part_of(whole, static_cast<std::uint32_t>(devices.groups->world->rank()));
  Detail mine = whole;
  // Devices that are parts of a GPU have streams of their own; on CPUs one lane does it all.
  if (devices.virtual_gpus < 2) mine.plan = in_one_lane(std::move(mine.plan));
  return mine;
}

Plan forward_part(Plan plan) {
  Graph& g = plan.graph;
  std::vector<char> is_forward(g.tasks.size(), 0);
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    const Task& task = g.tasks[t];
    is_forward[t] = (task.kind == Kind::forward && task.op != Op::batch_moments) ||
                    (task.op == Op::transfer && g.attrs_of(task).integer("forward", 0) != 0);
  }
  plan.skipped.assign(g.tasks.size(), 0);
  for (Lane& lane : plan.lanes) std::erase_if(lane.tasks, [&](TaskId t) { return !is_forward[t]; });
  std::erase_if(plan.waits, [&](const Wait& w) { return !is_forward[w.before] || !is_forward[w.after]; });
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    plan.skipped[t] = !is_forward[t];
    if (!is_forward[t] || !g.attrs_of(g.tasks[t]).has("training")) continue;
    drop_moments(g, t);
    Attrs attrs = g.attrs_of(g.tasks[t]);
    attrs.set("training", std::int64_t{0});
    g.tasks[t].attrs = g.add_attrs(attrs);
  }
  plan.schedule = "forward";
  return plan;
}

}  // namespace overtake
