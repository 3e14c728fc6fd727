#include "cli/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <ranges>

#include "machine/measured_costs.h"
#include "report/table.h"
#include "sim/lane_simulator.h"

namespace overtake {
namespace {

constexpr std::size_t kMostMoves = 30;
// Without these a step is the layers' own kernels and nothing more.
const std::vector<std::string> kFusions = {"fold_transposes",  "fuse",           "fuse_elementwise",
                                           "join_projections", "fuse_gradients", "share_concats"};

// A weight gradient or update that is not in its in-order place.
struct Move {
  TaskId task = kNone;
  std::size_t lane = 0;
  bool is_delayed = false;
  std::int64_t ns = 0;    // alone
  TaskId beside = kNone;  // of the main lane, when it starts, by the model; kNone: nothing runs there
};

std::vector<Move> moves_of(const Program& program, const Plan& plan) {
  std::vector<Move> moves;
  if (program.chosen == 0) return moves;
  const Profile profile = profile_of(program.costs[0]);
  const Trace trace = simulate(plan, profile);
  std::vector<Span> span_of(plan.graph.tasks.size());
  for (const Span& s : trace.spans) span_of[s.task] = s;
  const auto beside = [&](TaskId t) {
    const auto& main = plan.lanes[0].tasks;
    const auto at = std::ranges::find_if(main, [&](TaskId m) { return span_of[m].end_ns > span_of[t].begin_ns; });
    return at == main.end() ? kNone : *at;
  };
  for (std::size_t l = 0; l < plan.lanes.size(); ++l)
    for (const TaskId t : plan.lanes[l].tasks) {
      const bool is_delayed = plan.graph.tasks[t].is_delayed;
      if (l > 0 || is_delayed) moves.push_back({t, l, is_delayed, profile.alone_ns[t], l > 0 ? beside(t) : kNone});
    }
  std::ranges::stable_sort(moves, std::greater{}, &Move::ns);
  return moves;
}

}  // namespace

std::vector<Variant> variants(const RunSpec& spec) {
  RunSpec fused = spec, reordered = spec;
  fused.schedule = "in-order";
  reordered.schedule = "auto";
  RunSpec graph = fused;
  graph.skip_passes.insert(graph.skip_passes.end(), kFusions.begin(), kFusions.end());
  RunSpec plain = graph;
  plain.graph = false;
  std::vector<Variant> all = {{"plain", plain}};
  if (spec.device.starts_with("cuda")) all.push_back({"+ graph", graph});
  all.push_back({"+ fusion", fused});
  all.push_back({"+ out of order", reordered});
  return all;
}

std::string moves_table(const Program& program, const Plan& plan) {
  const Graph& g = plan.graph;
  const std::vector<Move> moves = moves_of(program, plan);
  Table table({"task", "us", "lane", "step", "starts beside"});
  for (const Move& m : moves | std::views::take(kMostMoves))
    table.add({g.task_name(m.task), fmt::format("{:.1f}", static_cast<double>(m.ns) * 1e-3), std::to_string(m.lane),
               m.is_delayed ? "next" : "same", m.beside == kNone ? "" : g.task_name(m.beside)});
  std::string text = table.text();
  if (moves.size() > kMostMoves)
    text += fmt::format("and {} shorter ones (--json has all)\n", moves.size() - kMostMoves);
  return moves.empty() ? "nothing runs on another lane or in the next step\n" : text;
}

nlohmann::json json_of_choices(const Program& program) {
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t i = 0; i < program.choices.size(); ++i) {
    const PlanChoice& c = program.choices[i];
    all.push_back({{"plan", c.name},
                   {"predicted_ms", static_cast<double>(c.predicted_ns) * 1e-6},
                   {"measured_ms", static_cast<double>(c.measured_ns) * 1e-6},
                   {"peak_bytes", c.most_bytes()},
                   {"chosen", i == program.chosen}});
  }
  return all;
}

nlohmann::json json_of_moves(const Program& program, const Plan& plan) {
  const Graph& g = plan.graph;
  nlohmann::json all = nlohmann::json::array();
  for (const Move& m : moves_of(program, plan))
    all.push_back({{"task", g.task_name(m.task)},
                   {"ns", m.ns},
                   {"lane", m.lane},
                   {"next_step", m.is_delayed},
                   {"beside", m.beside == kNone ? "" : g.task_name(m.beside)}});
  return all;
}

}  // namespace overtake
