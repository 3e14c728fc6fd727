#include "train/parallel_candidates.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "plan/pipeline/named.h"
#include "plan/pipeline/search.h"

namespace overtake {
namespace {

constexpr std::size_t kMostCandidates = 3;
// Those closer to the best one than this part of all layers are no other plan.
constexpr std::uint32_t kPartsOfLayers = 8;

class CandidateSearch {
 public:
  CandidateSearch(const ParallelProblem& problem, const Site* site) : problem_(problem), site_(site) {}

  std::vector<ParallelCandidate> run() {
    const ParallelOptions& o = problem_.options;
    std::vector<ParallelCandidate> all;
    const std::string reduce = o.reduce == "auto" ? "by-layer" : o.reduce;
    for (PipelineSchedule& s : schedules())
      all.push_back(predicted({std::move(s), reduce, o.first_k.value_or(FirstK{})}));
    if (site_ == nullptr || !site_->has_devices()) {
      all.resize(1);
      return all;
    }
    sort(all);
    if (o.chooses_reduction()) all = with_reductions(std::move(all));
    if (all.size() > kMostCandidates) all.resize(kMostCandidates);
    return all;
  }

 private:
  // The one asked for. Of a search, what it found and all named ones, which it knows only as if transfers were a delay.
  std::vector<PipelineSchedule> schedules() const {
    const ParallelOptions& o = problem_.options;
    if (!o.searches()) return {make_schedule(o.stages == 1 ? "1f1b" : o.pipeline, problem_.pipeline)};
    // On two devices at once a weight would get its gradients in another order.
    std::vector<PipelineSchedule> all{
        search_schedule(problem_.pipeline, {.seconds = o.search_seconds, .may_repeat_weights = false}).schedule};
    for (const NamedSchedule& named : named_schedules()) {
      try {
        PipelineSchedule s = make_schedule(named.name, problem_.pipeline);
        if (s.layout.device_of.size() == 1 && !(s.layout == all[0].layout && s.orders == all[0].orders))
          all.push_back(std::move(s));
      } catch (const UserError&) {
        // Not for so many devices, stages or micro-batches.
      }
    }
    return all;
  }

  ParallelCandidate predicted(ParallelCandidate c) const {
    if (site_ != nullptr) c.predicted_ns = predict_step(spread_as(c, problem_), *site_).step_ns();
    return c;
  }
  ParallelCandidate predicted(const PipelineSchedule& schedule, const std::string& reduce, FirstK first_k) const {
    return predicted(ParallelCandidate{schedule, reduce, first_k});
  }

  static void sort(std::vector<ParallelCandidate>& all) {
    std::ranges::stable_sort(all, {}, &ParallelCandidate::predicted_ns);
  }

  // The best schedule with every reduction, the others with the best of these.
  std::vector<ParallelCandidate> with_reductions(std::vector<ParallelCandidate> by_schedule) const {
    std::vector<ParallelCandidate> all = reductions_of(by_schedule[0].schedule);
    sort(all);
    const std::string reduce = all[0].reduce;
    const FirstK first_k = all[0].first_k;
    for (std::size_t i = 1; i < std::min(by_schedule.size(), kMostCandidates); ++i)
      all.push_back(predicted(by_schedule[i].schedule, reduce, first_k));
    sort(all);
    return all;
  }

  std::vector<ParallelCandidate> reductions_of(const PipelineSchedule& schedule) const {
    const bool is_any = problem_.options.reduce == "auto";
    std::vector<ParallelCandidate> tried;
    std::size_t best = 0;
    const std::uint32_t most = most_first_k(schedule.layout);
    search_first_k(most, [&](FirstK first_k) {
      tried.push_back(predicted(schedule, "first-k", first_k));
      if (tried.back().predicted_ns >= tried[best].predicted_ns && tried.size() > 1) return false;
      best = tried.size() - 1;
      return true;
    });
    std::vector<ParallelCandidate> all;
    if (tried[best].first_k.k > 0) all.push_back(tried[best]);
    if (is_any) {
      for (const char* reduce : {"by-layer", "scatter-gather", "buckets"})
        all.push_back(predicted(schedule, reduce, {}));
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

  const ParallelProblem& problem_;
  const Site* site_;
};

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

}  // namespace

std::string ParallelCandidate::name(const ParallelOptions& options) const {
  std::string text = options.stages > 1 ? schedule.name : "";
  if (options.replicas == 1) return text;
  if (!text.empty()) text += " + ";
  return text + (reduce == "first-k" && first_k.k > 0 ? "first-k " + to_string(first_k)
                 : reduce == "first-k"                ? "by-layer"
                                                      : reduce);
}

Outline spread_as(const ParallelCandidate& candidate, const ParallelProblem& problem) {
  const bool is_reverse = candidate.reduce == "first-k";
  return make_outline(problem.blocks, problem.pipeline, candidate.schedule,
                      {.replicas = problem.options.replicas,
                       .order = is_reverse ? ReductionOrder::by_layer : reduction_order_from_string(candidate.reduce),
                       .bucket_bytes = problem.options.bucket_bytes,
                       .first_k = is_reverse ? candidate.first_k : FirstK{},
                       .updates_wait_for_all = problem.options.clip_norm > 0});
}

std::vector<ParallelCandidate> find_candidates(const ParallelProblem& problem, const Site* site) {
  return CandidateSearch(problem, site).run();
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
    all.push_back({schedule_from_json(c.at("schedule")), c.at("reduce").get<std::string>(),
                   first_k_from_string(c.at("first_k").get<std::string>()), c.at("predicted_ns").get<std::int64_t>()});
  return all;
}

std::string table_of(const std::vector<ParallelCandidate>& candidates, std::size_t chosen,
                     const ParallelOptions& options, const Site& site) {
  const auto ms = [](std::int64_t ns) {
    return ns > 0 ? fmt::format("{:.2f} ms", static_cast<double>(ns) * 1e-6) : std::string("-");
  };
  std::string text = fmt::format("{}{}{:<32} {:>12} {:>12}", site.text, site.text.empty() ? "" : "\n", "plan",
                                 "predicted", "measured");
  for (std::size_t i = 0; i < candidates.size(); ++i)
    text += fmt::format("\n{:<32} {:>12} {:>12}{}", candidates[i].name(options), ms(candidates[i].predicted_ns),
                        ms(candidates[i].measured_ns), i == chosen ? "  chosen" : "");
  return text;
}

}  // namespace overtake
