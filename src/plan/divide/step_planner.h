#pragma once
// Divides a step over the devices of a machine: which schedule its pipeline follows, how replicas bring their gradients
// together, and what the step then takes. `train` and `simulate` plan with this alike.

#include <cstdint>
#include <string>
#include <vector>

#include "overtake/machine.h"
#include "overtake/program.h"
#include "plan/divide/outline.h"
#include "plan/divide/parallel_options.h"
#include "plan/divide/replica_fold.h"
#include "plan/divide/workload.h"
#include "plan/prediction.h"

namespace overtake {

// For people: "zb-h1 + first-k 12", or what one device has, "one device".
std::string name_of(const PlanChoice& choice, const ParallelOptions& options);

class StepPlanner {
 public:
  // All must outlive it. `devices` are those of the machine to run on, replica by replica; none: the first ones. A user
  // error if the step has too few blocks for the stages. `steps` is how many are simulated in a row; 0: as the machine
  // says.
  StepPlanner(const Workload& work, const ParallelOptions& options, const Machine& machine,
              std::vector<std::uint32_t> devices = {}, int steps = 0);

  // What every device does, with what that takes on the device's own kind.
  Outline outline(const PlanChoice& choice) const { return outline(choice, options_.replicas); }
  PredictedStep predict(const PlanChoice& choice) const;
  // What the schedules of its pipeline are for.
  const PipelineProblem& problem() const { return problem_; }

  // Where something is left open (a search, the reduction, k of first-k, lanes): the most promising few, those that fit
  // first, of these the fastest first; and the best one on one lane, if a second lane is among what makes it the best.
  // Otherwise the one that was asked for, of which nothing is predicted.
  std::vector<PlanChoice> choices() const;

 private:
  // Of the first replicas only.
  Outline outline(const PlanChoice& choice, std::uint32_t kept) const;
  std::vector<PlanChoice> schedules() const;
  std::vector<PlanChoice> divisions() const;
  PlanChoice on_one_lane(PlanChoice choice, PredictedStep* step = nullptr) const;
  PlanChoice predicted(PlanChoice choice) const;
  bool may_use_side_lanes() const;
  std::vector<std::int64_t> caps_of_lanes(const PredictedStep& on_one_lane) const;
  void note_of_lanes(PlanChoice& choice, const std::vector<std::int64_t>& caps) const;
  PlanChoice with_searched_lanes(PlanChoice choice, const PlanChoice& one_lane) const;
  std::vector<PlanChoice> with_reductions(std::vector<PlanChoice> by_schedule) const;
  std::vector<PlanChoice> reductions_of(const PlanChoice& of) const;

  const Workload& work_;
  const ParallelOptions& options_;
  const Machine& machine_;
  std::vector<std::uint32_t> devices_;
  int steps_;
  ReplicaFold fold_;  // which replicas are simulated
  PipelineProblem problem_;
};

}  // namespace overtake
