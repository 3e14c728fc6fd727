#pragma once
// What follows from a program: the step task by task, for executors, and block by block, for simulators.

#include <memory>

#include "overtake/program.h"
#include "passes/pass.h"
#include "plan/divide/detail.h"
#include "plan/divide/step_planner.h"

namespace overtake {

// The step of all devices task by task, as the program's choice has it, by one list of passes. The machine's target
// must be known.
Detail detail_of(const Program& program, PassRunner& runner);
Detail detail_of(const Program& program);

// The graph whose tasks' costs a program has: of one device the step with all its micro-batches, of several the step of
// one micro-batch.
Graph costed_graph(const Program& program);

// Plans over several devices block by block: of this program, or of other choices for it.
class OutlinePlanner {
 public:
  // Keeps a reference to the program, whose costs must be known.
  explicit OutlinePlanner(const Program& program);
  const StepPlanner& operator*() const { return *planner_; }
  const StepPlanner* operator->() const { return planner_.get(); }
  const Workload& work() const { return work_; }

 private:
  ParallelOptions options_;
  std::uint32_t kept_;  // replicas that are simulated
  Workload work_;
  std::unique_ptr<StepPlanner> planner_;
};

}  // namespace overtake
