#include "plan/pipeline/rule_search.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "plan/pipeline/evaluator.h"

namespace overtake {

RuleSearch::RuleSearch(const PipelineProblem& problem, PipelineLayout layout)
    : problem_(&problem), scheduler_(problem, layout) {
  prepare(layout);
  now_.layout = std::move(layout);
}

bool RuleSearch::prepare(const PipelineLayout& layout) {
  if (layout != scheduler_.layout()) scheduler_ = ListScheduler(*problem_, layout);
  const PipelineEvaluator evaluator(*problem_, layout);
  room_.resize(problem_->devices);
  least_bytes_ = 0;
  fits_ = true;
  for (std::uint32_t d = 0; d < problem_->devices; ++d) {
    const std::int64_t least = scheduler_.least_cap(d), weights = evaluator.weight_bytes(d);
    least_bytes_ = std::max(least_bytes_, weights + least);
    room_[d] = std::min(least * problem_->micro_batches, problem_->cap(d) - weights);
    fits_ = fits_ && weights + least <= problem_->cap(d);
  }
  return fits_;
}

ListRule RuleSearch::plain_rule(std::size_t which) const {
  const PipelineLayout& layout = scheduler_.layout();
  const std::uint32_t chunks = layout.chunks();
  // Input gradients first, then forwards or weight gradients; or forwards first.
  constexpr std::array<std::array<double, 3>, 3> kRanks{{{1, 0, 2}, {1, 0, 0.6}, {0, 1, 2}}};
  const auto& [forward, input, weight] = kRanks[which % 3];
  ListRule rule{.rank = {}, .caps = room_, .patience = which / 3 % 2 == 0 ? 0.0 : 1.0};
  // Of forwards the deepest first, or the other way round; the same for gradients.
  const double forward_slope = which / 6 % 2 == 0 ? -0.4 : 0.4, input_slope = which / 12 == 0 ? -0.4 : 0.4;
  for (std::size_t s = 0; s < chunks * layout.device_of.size(); ++s) {
    const double depth = static_cast<double>(s % chunks) / chunks;
    rule.rank.insert(rule.rank.end(), {forward + forward_slope * depth, input + input_slope * depth, weight});
  }
  return rule;
}

void RuleSearch::try_plain_rules(SearchBudget& budget, double until) {
  // Where a device has one chunk, slopes make no difference.
  const bool is_deep = now_.layout.chunks() * now_.layout.device_of.size() > problem_->devices;
  for (std::size_t i = 0; i < (is_deep ? kPlainRules : 6) && (i == 0 || budget.gone() < until); ++i) {
    budget.spend();
    now_.rule = plain_rule(i);
    now_.ns = scheduler_.run(now_.rule, orders_);
    if (now_.ns >= best_.ns) continue;
    best_ = now_;
    std::swap(best_orders_, orders_);
  }
}

void RuleSearch::set_out_anew(SearchBudget& budget) {
  State next = best_;
  do {
    const State before = next;
    change_layout(next, budget);
    if (!prepare(next.layout)) next = before;
  } while (!budget.one_in(6));
  prepare(next.layout);
  budget.spend();
  next.rule = plain_rule(budget.below(kPlainRules));
  next.ns = scheduler_.run(next.rule, best_orders_);
  best_ = std::move(next);
}

void RuleSearch::run(SearchBudget& budget, double until) {
  now_ = best_;
  const double from = budget.gone();
  // What is slower is taken if it is slower by less than so many blocks, on average; ever fewer.
  const double warm = 0.2 * mean_block_ns(*problem_);
  while (budget.gone() < until) {
    budget.spend();
    State next = now_;
    const bool is_moved = budget.one_in(2) && change_layout(next, budget);
    if (!prepare(next.layout)) continue;
    if (is_moved && budget.one_in(2))
      next.rule = plain_rule(budget.below(kPlainRules));
    else if (!is_moved || budget.one_in(2))
      do change_rule(next.rule, budget);
      while (budget.one_in(2));
    for (std::uint32_t d = 0; d < problem_->devices; ++d)
      next.rule.caps[d] = std::clamp(next.rule.caps[d], scheduler_.least_cap(d), room_[d]);
    next.ns = scheduler_.run(next.rule, orders_);
    const double left = std::max(0.0, (until - budget.gone()) / (until - from));
    const double slack = -std::log(1 - budget.part()) * warm * left;
    if (static_cast<double>(next.ns) > static_cast<double>(now_.ns) + slack) continue;
    now_ = std::move(next);
    if (now_.ns >= best_.ns) continue;
    best_ = now_;
    std::swap(best_orders_, orders_);
  }
}

void RuleSearch::change_rule(ListRule& rule, SearchBudget& budget) const {
  switch (budget.below(5)) {
    case 0:
      rule.patience = std::max(0.0, rule.patience + budget.part() - 0.5);
      break;
    case 1: {
      const std::size_t d = budget.below(problem_->devices);
      const std::int64_t least = scheduler_.least_cap(static_cast<std::uint32_t>(d));
      const auto more = static_cast<std::int64_t>(static_cast<double>(room_[d] - least) * budget.part());
      rule.caps[d] = budget.one_in(3) ? room_[d] : least + more;
      break;
    }
    default:
      rule.rank[budget.below(rule.rank.size())] += 1.6 * budget.part() - 0.8;
  }
}

bool RuleSearch::change_layout(State& state, SearchBudget& budget) const {
  PipelineLayout& layout = state.layout;
  const std::uint32_t chunks = layout.chunks();
  switch (budget.below(3)) {
    case 0: {  // a stage from a chunk to its neighbour
      if (chunks < 2 || problem_->blocks.size() == chunks) return false;
      const std::size_t c = 1 + budget.below(chunks - 1);
      const bool is_up = budget.one_in(2);
      const std::size_t giver = is_up ? c : c - 1;
      if (layout.first_block[giver + 1] - layout.first_block[giver] < 2) return false;
      layout.first_block[c] += is_up ? 1 : ~0u;
      return true;
    }
    case 1: {  // chunks to other devices
      std::vector<std::uint32_t>& devices = layout.device_of[budget.below(layout.device_of.size())];
      const std::size_t a = budget.below(chunks), b = budget.below(chunks);
      if (devices[a] == devices[b]) return false;
      if (budget.one_in(2))
        devices[a] = devices[b];
      else
        std::swap(devices[a], devices[b]);
      return true;
    }
    default:
      return cut_or_join(state, budget);
  }
}

// A chunk becomes two, the second on some other device, or two become one.
bool RuleSearch::cut_or_join(State& state, SearchBudget& budget) const {
  PipelineLayout& layout = state.layout;
  const std::uint32_t chunks = layout.chunks();
  const bool is_cut = budget.one_in(2);
  const auto c = static_cast<std::uint32_t>(budget.below(chunks));
  const std::uint32_t stages = layout.first_block[c + 1] - layout.first_block[c];
  if (is_cut ? stages < 2 : c + 1 == chunks) return false;
  std::vector<double> rank;
  for (std::size_t r = 0; r < layout.device_of.size(); ++r) {
    std::vector<std::uint32_t>& devices = layout.device_of[r];
    for (std::uint32_t i = 0; i < chunks; ++i) {
      if (!is_cut && i == c + 1) continue;
      const auto first = state.rule.rank.begin() + static_cast<std::ptrdiff_t>((r * chunks + i) * 3);
      for (int copy = 0; copy < (is_cut && i == c ? 2 : 1); ++copy) rank.insert(rank.end(), first, first + 3);
    }
    if (is_cut)
      devices.insert(devices.begin() + c + 1, devices[budget.below(chunks)]);
    else
      devices.erase(devices.begin() + c + 1);
  }
  const auto border = layout.first_block.begin() + c + 1;
  if (is_cut)
    layout.first_block.insert(border, layout.first_block[c] + 1 + static_cast<std::uint32_t>(budget.below(stages - 1)));
  else
    layout.first_block.erase(border);
  state.rule.rank = std::move(rank);
  return true;
}

}  // namespace overtake
