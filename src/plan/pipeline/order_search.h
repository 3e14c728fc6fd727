#pragma once
// Makes a schedule shorter by changing the order of blocks on devices, along the longest chain of blocks.

#include "plan/pipeline/evaluator.h"
#include "plan/pipeline/search_budget.h"

namespace overtake {

class OrderSearch {
 public:
  // Joined blocks of the schedule are parted: that never makes it slower.
  OrderSearch(const PipelineProblem& problem, const PipelineSchedule& schedule);

  // Until that part of the budget is gone.
  void run(SearchBudget& budget, double until);

  const ChunkOrders& best() const { return best_; }
  std::int64_t best_ns() const { return best_ns_; }

 private:
  struct Place {
    std::uint32_t device, index;
  };
  struct Move {
    std::uint32_t device, from, to;
  };

  // Of the orders that ran last.
  void find_chain();
  // The chain that ends with this block.
  void follow(Place at);
  // Moves a block of the chain; not at all if it cannot move.
  Move pick(SearchBudget& budget) const;
  void apply(const Move& move);
  // The makespan, or kStuck; also if a device of the moves cannot keep it all.
  std::int64_t time(const std::vector<Move>& moves);

  const PipelineProblem* problem_;
  PipelineEvaluator evaluator_;
  ChunkOrders orders_, best_;
  std::int64_t now_ns_ = 0, best_ns_ = 0;
  std::vector<Place> chain_;     // blocks that started at once when their neighbour before them ended
  std::vector<Place> place_of_;  // by block id; scratch
  std::vector<Move> moves_;      // scratch
};

}  // namespace overtake
