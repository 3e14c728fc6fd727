#pragma once
// Looks for a layout and a rule for its orders that make a short schedule.

#include "plan/pipeline/list_schedule.h"
#include "plan/pipeline/search_budget.h"

namespace overtake {

class RuleSearch {
 public:
  RuleSearch(const PipelineProblem& problem, PipelineLayout layout);

  // What the device that needs most must keep to run one micro-batch after the other.
  std::int64_t least_bytes() const { return least_bytes_; }
  // Whether every device can keep that. Nothing else may be called if not.
  bool fits() const { return fits_; }

  // A few rules that make sense; at least one, more while less than `until` of the budget is gone.
  void try_plain_rules(SearchBudget& budget, double until);
  // Changes rules and the layout at random until that part of the budget is gone. Goes on from the best so far, or sets
  // out anew from another layout, forgetting the best.
  void run(SearchBudget& budget, double until);
  void set_out_anew(SearchBudget& budget);

  const PipelineLayout& best_layout() const { return best_.layout; }
  const ChunkOrders& best_orders() const { return best_orders_; }
  std::int64_t best_ns() const { return best_.ns; }

 private:
  struct State {
    PipelineLayout layout;
    ListRule rule;
    std::int64_t ns = INT64_MAX;
  };

  // One of kPlainRules for the scheduler's layout.
  static constexpr std::size_t kPlainRules = 24;
  ListRule plain_rule(std::size_t which) const;
  void change_rule(ListRule& rule, SearchBudget& budget) const;
  // False: nothing changed.
  bool change_layout(State& state, SearchBudget& budget) const;
  bool cut_or_join(State& state, SearchBudget& budget) const;
  // Gets ready to run such a layout; false: it does not fit.
  bool prepare(const PipelineLayout& layout);

  const PipelineProblem* problem_;
  ListScheduler scheduler_;
  std::vector<std::int64_t> room_;  // by device: bytes for activations in the scheduler's layout
  std::int64_t least_bytes_ = 0;
  bool fits_ = true;
  State now_, best_;
  ChunkOrders orders_, best_orders_;
};

}  // namespace overtake
