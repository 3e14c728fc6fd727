#include "plan/divide/step_planner.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/error.h"
#include "plan/divide/usual_transfer.h"
#include "plan/pipeline/named.h"
#include "plan/pipeline/search.h"

namespace overtake {
namespace {

constexpr std::size_t kMostCandidates = 3;
// Those closer to the best one than this part of all layers are no other plan.
constexpr std::uint32_t kPartsOfLayers = 8;

constexpr std::uint32_t kBlocksOfAPipeline = 64, kRecomputedBlocks = 32, kMostBlocks = 400;

bool is_better(const ParallelCandidate& a, const ParallelCandidate& b) {
  return std::pair(!a.fits, a.predicted_ns) < std::pair(!b.fits, b.predicted_ns);
}
void sort(std::vector<ParallelCandidate>& all) { std::ranges::stable_sort(all, is_better); }

nlohmann::json to_json(const PipelineSchedule& s) {
  nlohmann::json orders = nlohmann::json::array();
  for (const auto& order : s.orders) {
    nlohmann::json blocks = nlohmann::json::array();
    for (const ChunkTask& b : order) blocks.push_back({static_cast<int>(b.kind), b.is_joined, b.chunk, b.micro_batch});
    orders.push_back(std::move(blocks));
  }
  return {{"name", s.name},
          {"first_block", s.layout.first_block},
          {"device_of", s.layout.device_of},
          {"route_of", s.layout.route_of},
          {"orders", std::move(orders)}};
}

PipelineSchedule schedule_from_json(const nlohmann::json& in) {
  PipelineSchedule s;
  s.name = in.at("name").get<std::string>();
  s.layout.first_block = in.at("first_block").get<std::vector<std::uint32_t>>();
  s.layout.device_of = in.at("device_of").get<std::vector<std::vector<std::uint32_t>>>();
  s.layout.route_of = in.at("route_of").get<std::vector<std::uint32_t>>();
  for (const auto& order : in.at("orders")) {
    s.orders.emplace_back();
    for (const auto& b : order)
      s.orders.back().push_back(
          {static_cast<Kind>(b[0].get<int>()), b[1].get<bool>(), b[2].get<std::uint32_t>(), b[3].get<std::uint32_t>()});
  }
  return s;
}

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

void describe_kinds(const Workload& work, const Machine& machine, const std::vector<std::uint32_t>& devices,
                    PipelineProblem& problem) {
  std::map<std::set<std::uint32_t>, std::uint32_t> known;  // the cluster's kinds that a device and its replicas have
  for (std::uint32_t i = 0; i < problem.devices && !work.by_kind.empty(); ++i) {
    std::set<std::uint32_t> kinds;
    for (std::size_t d = i; d < devices.size(); d += problem.devices)
      kinds.insert(machine.topology.vertices[devices[d]].type);
    const auto [kind, is_new] = known.try_emplace(kinds, static_cast<std::uint32_t>(known.size()));
    problem.kind_of_device.push_back(kind->second);
    if (!is_new) continue;
    std::vector<BlockCosts> slowest;
    for (const std::uint32_t k : kinds) {
      BlockGraph blocks = work.blocks;
      if (!work.by_kind[k].empty()) blocks.work = work.by_kind[k];
      const std::vector<BlockCosts> own = block_costs(blocks);
      if (slowest.empty()) slowest = own;
      for (std::size_t b = 0; b < own.size(); ++b) {
        slowest[b].forward_ns = std::max(slowest[b].forward_ns, own[b].forward_ns);
        slowest[b].input_grad_ns = std::max(slowest[b].input_grad_ns, own[b].input_grad_ns);
        slowest[b].weight_grad_ns = std::max(slowest[b].weight_grad_ns, own[b].weight_grad_ns);
      }
    }
    problem.blocks_of_kind.push_back(std::move(slowest));
  }
  if (known.size() > 1) return;
  problem.kind_of_device.clear();
  problem.blocks_of_kind.clear();
}

}  // namespace

std::string ParallelCandidate::name(const ParallelOptions& options) const {
  std::string text = options.stages > 1 ? schedule.name : "";
  if (options.replicas == 1) return text;
  if (!text.empty()) text += " + ";
  return text + (reduce == "first-k" && first_k.k > 0 ? "first-k " + to_string(first_k)
                 : reduce == "first-k"                ? "by-layer"
                                                      : reduce);
}

std::uint32_t block_limit(const ParallelOptions& options, bool recomputes) {
  if (recomputes) return std::max(kRecomputedBlocks, 2 * options.stages);
  return options.stages > 1 ? std::max(kBlocksOfAPipeline, 4 * options.stages) : kMostBlocks;
}

StepPlanner::StepPlanner(const Workload& work, const ParallelOptions& options, const Machine& machine,
                         std::vector<std::uint32_t> devices, int steps)
    : work_(work), options_(options), machine_(machine), devices_(std::move(devices)), steps_(steps) {
  const BlockGraph& blocks = work.blocks;
  if (blocks.blocks.size() < options.stages)
    fail_user("--pp {}: {} has only {} layers with weights; use fewer stages", options.stages, blocks.graph.model,
              blocks.blocks.size());
  problem_ = {.devices = options.stages, .micro_batches = options.micro_batches, .blocks = block_costs(blocks)};
  if (!machine.has_devices()) return;
  if (devices_.empty()) {
    devices_.resize(options.devices());
    std::iota(devices_.begin(), devices_.end(), 0u);
  }
  if (options.stages == 1) return;
  describe_links(blocks, machine, devices_, problem_);
  describe_memories(machine, devices_, problem_);
  describe_kinds(work, machine, devices_, problem_);
}

// Which tasks there are does not depend on what they take.
Outline StepPlanner::outline(const ParallelCandidate& candidate) const {
  const bool is_reverse = candidate.reduce == "first-k";
  const OutlineOptions how{
      .replicas = options_.replicas,
      .order = is_reverse ? ReductionOrder::by_layer : reduction_order_from_string(candidate.reduce),
      .bucket_bytes = options_.bucket_bytes,
      .first_k = is_reverse ? candidate.first_k : FirstK{},
      .updates_wait_for_all = options_.clip_norm > 0};
  Outline out = make_outline(work_.blocks, problem_, candidate.schedule, how);
  for (std::uint32_t kind = 0; kind < work_.by_kind.size(); ++kind) {
    if (work_.by_kind[kind].empty()) continue;
    BlockGraph blocks = work_.blocks;
    blocks.work = work_.by_kind[kind];
    const std::vector<TaskCost> costs = make_outline(blocks, problem_, candidate.schedule, how).work;
    for (TaskId t = 0; t < costs.size(); ++t)
      if (machine_.topology.vertices[devices_[out.plan.graph.tasks[t].device]].type == kind) out.work[t] = costs[t];
  }
  return out;
}

PredictedStep StepPlanner::predict(const ParallelCandidate& candidate) const {
  return predict_step(outline(candidate), machine_, devices_, steps_);
}

ParallelCandidate StepPlanner::predicted(ParallelCandidate candidate) const {
  const PredictedStep step = predict(candidate);
  OVERTAKE_CHECK(step.result.is_finished || !machine_.options.failures.empty(), "a plan that does not end: {}",
                 step.result.stuck.empty() ? "" : step.result.stuck[0].why);
  candidate.predicted_ns = step.step_ns();
  candidate.fits = first_without_room(step, machine_) == kNone;
  return candidate;
}

std::vector<ParallelCandidate> StepPlanner::candidates() const {
  std::vector<ParallelCandidate> all = schedules();
  const bool is_open = options_.searches() || (options_.chooses_reduction() && options_.replicas > 1);
  if (!is_open) return all;
  for (ParallelCandidate& c : all) c = predicted(std::move(c));
  if (!machine_.has_devices()) {
    all.resize(1);
    return all;
  }
  sort(all);
  if (options_.chooses_reduction() && options_.replicas > 1) all = with_reductions(std::move(all));
  if (all.size() > kMostCandidates) all.resize(kMostCandidates);
  return all;
}

// The one asked for. Of a search, the best by prediction of what it found and of all named ones: the search itself
// knows transfers only as a delay.
std::vector<ParallelCandidate> StepPlanner::schedules() const {
  const auto candidate = [&](PipelineSchedule schedule, std::string reason) {
    return ParallelCandidate{.schedule = std::move(schedule),
                             .reduce = options_.reduce == "auto" ? "by-layer" : options_.reduce,
                             .first_k = options_.first_k.value_or(FirstK{}),
                             .reason = std::move(reason)};
  };
  if (!options_.searches())
    return {candidate(
        make_schedule(options_.stages == 1 ? "1f1b" : options_.pipeline, problem_, options_.schedule_options), "")};
  const ScheduleSearchOptions search{.tries = options_.search_tries,
                                     .may_repeat_weights = options_.may_repeat_weights,
                                     .named = options_.schedule_options};
  if (!machine_.has_devices()) {
    FoundSchedule found = search_schedule(problem_, search);
    return {candidate(std::move(found.schedule), found.reason)};
  }
  // What does not fit counts only if nothing does.
  const auto step_ns = [&](const PipelineSchedule& schedule) {
    constexpr std::int64_t kUnfit = std::int64_t{1} << 62;
    const ParallelCandidate c = predicted(candidate(schedule, ""));
    return c.predicted_ns + (c.fits ? 0 : kUnfit);
  };
  std::vector<ParallelCandidate> all;
  for (FoundSchedule& found : best_schedules(problem_, search, step_ns, kMostCandidates))
    all.push_back(candidate(std::move(found.schedule), std::move(found.reason)));
  return all;
}

// The best schedule with every reduction, the others with the best of these.
std::vector<ParallelCandidate> StepPlanner::with_reductions(std::vector<ParallelCandidate> by_schedule) const {
  std::vector<ParallelCandidate> all = reductions_of(by_schedule[0]);
  sort(all);
  const std::string reduce = all[0].reduce;
  const FirstK first_k = all[0].first_k;
  for (std::size_t i = 1; i < std::min(by_schedule.size(), kMostCandidates); ++i) {
    by_schedule[i].reduce = reduce;
    by_schedule[i].first_k = first_k;
    all.push_back(predicted(std::move(by_schedule[i])));
  }
  sort(all);
  return all;
}

std::vector<ParallelCandidate> StepPlanner::reductions_of(const ParallelCandidate& of) const {
  const auto with = [&](const char* reduce, FirstK first_k) {
    ParallelCandidate other = of;
    other.reduce = reduce;
    other.first_k = first_k;
    return predicted(std::move(other));
  };
  std::vector<ParallelCandidate> tried;
  std::size_t best = 0;
  const std::uint32_t most = most_first_k(of.schedule.layout);
  search_first_k(most, [&](FirstK first_k) {
    tried.push_back(with("first-k", first_k));
    if (tried.size() > 1 && !is_better(tried.back(), tried[best])) return false;
    best = tried.size() - 1;
    return true;
  });
  std::vector<ParallelCandidate> all;
  if (tried[best].first_k.k > 0) all.push_back(tried[best]);
  if (options_.reduce == "auto") {
    for (const char* reduce : {"by-layer", "scatter-gather", "buckets"}) all.push_back(with(reduce, {}));
    return all;
  }
  all.push_back(tried[0]);  // k = 0: by layer
  const FirstK best_k = tried[best].first_k;
  const auto is_near = [&](std::int64_t a, std::int64_t b) {
    return std::abs(a - b) < std::max(1u, most / kPartsOfLayers);
  };
  std::erase_if(tried, [&](const ParallelCandidate& c) {
    return c.first_k.k == 0 || (is_near(c.first_k.k, best_k.k) && is_near(c.first_k.from, best_k.from));
  });
  sort(tried);
  if (!tried.empty()) all.push_back(tried[0]);
  return all;
}

std::string to_text(const std::vector<ParallelCandidate>& candidates) {
  nlohmann::json all = nlohmann::json::array();
  for (const ParallelCandidate& c : candidates)
    all.push_back({{"schedule", to_json(c.schedule)},
                   {"reduce", c.reduce},
                   {"first_k", to_string(c.first_k)},
                   {"predicted_ns", c.predicted_ns}});
  return all.dump();
}

std::vector<ParallelCandidate> candidates_from_text(const std::string& text) {
  std::vector<ParallelCandidate> all;
  for (const auto& c : nlohmann::json::parse(text))
    all.push_back({.schedule = schedule_from_json(c.at("schedule")),
                   .reduce = c.at("reduce").get<std::string>(),
                   .first_k = first_k_from_string(c.at("first_k").get<std::string>()),
                   .predicted_ns = c.at("predicted_ns").get<std::int64_t>()});
  return all;
}

std::string table_of(const std::vector<ParallelCandidate>& candidates, std::size_t chosen,
                     const ParallelOptions& options, const Machine& machine) {
  const auto ms = [](std::int64_t ns) {
    return ns > 0 ? fmt::format("{:.2f} ms", static_cast<double>(ns) * 1e-6) : std::string("-");
  };
  std::string text = fmt::format("{}{}{:<32} {:>12} {:>12}", machine.text, machine.text.empty() ? "" : "\n", "plan",
                                 "predicted", "measured");
  for (std::size_t i = 0; i < candidates.size(); ++i)
    text += fmt::format("\n{:<32} {:>12} {:>12}{}", candidates[i].name(options), ms(candidates[i].predicted_ns),
                        ms(candidates[i].measured_ns), i == chosen ? "  chosen" : "");
  return text;
}

}  // namespace overtake
