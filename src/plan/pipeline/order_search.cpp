#include "plan/pipeline/order_search.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace overtake {
namespace {

// Whether `late` may not, or need not, come before `early` of the same device.
bool is_fixed(const ChunkTask& early, const ChunkTask& late) {
  if (early.chunk != late.chunk) return false;
  return early.micro_batch == late.micro_batch ? early.kind < late.kind : early.kind == late.kind;
}

}  // namespace

OrderSearch::OrderSearch(const PipelineProblem& problem, const PipelineSchedule& schedule)
    : problem_(&problem), evaluator_(problem, schedule.layout), orders_(schedule.orders) {
  for (std::vector<ChunkTask>& order : orders_)
    for (ChunkTask& b : order) b.is_joined = false;
  place_of_.resize(std::size_t{schedule.layout.chunks()} * 3 * problem.micro_batches);
  now_ns_ = best_ns_ = evaluator_.run(orders_);
  OVERTAKE_CHECK(now_ns_ != PipelineEvaluator::kStuck, "{} is stuck", schedule.name);
  best_ = orders_;
  find_chain();
}

void OrderSearch::find_chain() {
  chain_.clear();
  Place at{0, 0};
  std::int64_t last = -1;
  for (std::uint32_t d = 0; d < orders_.size(); ++d) {
    for (std::uint32_t i = 0; i < orders_[d].size(); ++i) place_of_[block_id(*problem_, orders_[d][i])] = {d, i};
    if (orders_[d].empty()) continue;
    const std::int64_t end = evaluator_.ends()[block_id(*problem_, orders_[d].back())];
    if (end <= last) continue;
    last = end;
    at = {d, static_cast<std::uint32_t>(orders_[d].size()) - 1};
  }
  if (const std::uint32_t chunk = evaluator_.last_sum(); chunk != kNone) {
    last = -1;
    for (std::uint32_t m = 0; m < problem_->micro_batches; ++m) {
      const std::uint32_t id = block_id(*problem_, Kind::weight_grad, chunk, m);
      if (evaluator_.ends()[id] <= last) continue;
      last = evaluator_.ends()[id];
      at = place_of_[id];
    }
  }
  follow(at);
  // Which sum comes first matters too, so any block may be in the way.
  if (!chain_.empty() || evaluator_.last_sum() == kNone) return;
  for (std::uint32_t d = 0; d < orders_.size(); ++d)
    for (std::uint32_t i = 1; i < orders_[d].size(); ++i) chain_.push_back({d, i});
}

void OrderSearch::follow(Place at) {
  while (true) {
    const ChunkTask& b = orders_[at.device][at.index];
    const std::int64_t start = evaluator_.start(b);
    if (at.index > 0 && evaluator_.ends()[block_id(*problem_, orders_[at.device][at.index - 1])] == start) {
      chain_.push_back(at);
      --at.index;
      continue;
    }
    // It waited for an input.
    const bool is_first = b.kind == Kind::forward && b.chunk == 0;
    if (is_first || start == 0) return;
    std::uint32_t id = block_id(*problem_, Kind::forward, b.chunk, b.micro_batch);
    if (b.kind == Kind::forward)
      id = block_id(*problem_, Kind::forward, b.chunk - 1, b.micro_batch);
    else if (b.kind == Kind::weight_grad)
      id = block_id(*problem_, Kind::input_grad, b.chunk, b.micro_batch);
    else if (b.chunk + 1 < evaluator_.chunks())
      id = block_id(*problem_, Kind::input_grad, b.chunk + 1, b.micro_batch);
    at = place_of_[id];
  }
}

OrderSearch::Move OrderSearch::pick(SearchBudget& budget) const {
  // The block at `index` goes before its neighbour, or that one behind it; now and then further.
  Place link = chain_[budget.below(chain_.size())];
  if (budget.one_in(4)) {
    // Anywhere, to make way.
    const auto d = static_cast<std::uint32_t>(budget.below(orders_.size()));
    if (orders_[d].size() > 1) link = {d, 1 + static_cast<std::uint32_t>(budget.below(orders_[d].size() - 1))};
  }
  const std::vector<ChunkTask>& order = orders_[link.device];
  std::size_t far = 1;
  while (far < order.size() && budget.below(3) != 0) far += 1 + far / 2;
  Move move{link.device, 0, 0};
  if (budget.one_in(2)) {
    move.from = move.to = link.index;
    while (move.to > 0 && far-- > 0 && !is_fixed(order[move.to - 1], order[move.from])) --move.to;
  } else {
    move.from = move.to = link.index - 1;
    while (move.to + 1 < order.size() && far-- > 0 && !is_fixed(order[move.from], order[move.to + 1])) ++move.to;
  }
  return move;
}

void OrderSearch::apply(const Move& move) {
  const auto at = [&](std::uint32_t i) { return orders_[move.device].begin() + i; };
  if (move.from > move.to)
    std::rotate(at(move.to), at(move.from), at(move.from) + 1);
  else
    std::rotate(at(move.from), at(move.from) + 1, at(move.to) + 1);
}

std::int64_t OrderSearch::time(const std::vector<Move>& moves) {
  for (const Move& move : moves) {
    if (!problem_->has_caps()) break;
    const std::int64_t bytes =
        evaluator_.peak_activation_bytes(orders_[move.device]) + evaluator_.weight_bytes(move.device);
    if (bytes > problem_->cap(move.device)) return PipelineEvaluator::kStuck;
  }
  return evaluator_.run(orders_);
}

void OrderSearch::run(SearchBudget& budget, double until) {
  const double from = budget.gone();
  // A slower order is taken if it is slower by less than a block, on average; ever less so.
  const double warm = mean_block_ns(*problem_);
  while (!chain_.empty() && budget.gone() < until) {
    budget.spend();
    moves_.clear();
    do {
      moves_.push_back(pick(budget));
      apply(moves_.back());
    } while (budget.one_in(3));
    const double left = std::max(0.0, (until - budget.gone()) / (until - from));
    const double slack = -std::log(1 - budget.part()) * warm * left * left;
    const std::int64_t ns = time(moves_);
    if (ns == PipelineEvaluator::kStuck || static_cast<double>(ns) > static_cast<double>(now_ns_) + slack) {
      for (auto move = moves_.rbegin(); move != moves_.rend(); ++move) apply({move->device, move->to, move->from});
      continue;
    }
    now_ns_ = ns;
    find_chain();
    if (ns >= best_ns_) continue;
    best_ns_ = ns;
    best_ = orders_;
  }
  orders_ = best_;
  now_ns_ = evaluator_.run(orders_);
  find_chain();
}

}  // namespace overtake
