#pragma once
// Divides a step over the devices of a machine: which schedule its pipeline follows, how replicas bring their gradients
// together, and what the step then takes. `train` and `simulate` plan with this alike.

#include <cstdint>
#include <string>
#include <vector>

#include "overtake/machine.h"
#include "plan/divide/outline.h"
#include "plan/divide/parallel_options.h"
#include "plan/prediction.h"

namespace overtake {

// What a step computes, whatever its division.
struct Workload {
  BlockGraph blocks;  // with what tasks take on the devices of the run, on average
  // Per kind of device in the machine's cluster, what the blocks' tasks take there; empty for kinds that have no part
  // in the run. No kinds at all: on every device what the blocks say.
  std::vector<std::vector<TaskCost>> by_kind = {};
  std::int64_t samples = 0;  // of a step; 0: not known
};

// The most blocks a step is cut into. Data parallel every layer counts, stages of a pipeline are cut of a few blocks
// each, and what is computed again should be much more than what is kept for it.
std::uint32_t block_limit(const ParallelOptions& options, bool recomputes);

// One way to divide the step.
struct ParallelCandidate {
  PipelineSchedule schedule;
  std::string reduce;
  FirstK first_k = {};
  std::int64_t predicted_ns = 0, measured_ns = 0;  // 0: not known
  bool fits = true;                                // into the memory of all devices, as far as is predicted
  std::string reason = {};                         // of a search: where the schedule came from

  std::string name(const ParallelOptions& options) const;  // for people: "zb-h1 + first-k 12"
};

class StepPlanner {
 public:
  // All must outlive it. `devices` are those of the machine to run on, replica by replica; none: the first ones. A user
  // error if the step has too few blocks for the stages. `steps` is how many are simulated in a row; 0: as the machine
  // says.
  StepPlanner(const Workload& work, const ParallelOptions& options, const Machine& machine,
              std::vector<std::uint32_t> devices = {}, int steps = 0);

  // What every device does, with what that takes on the device's own kind.
  Outline outline(const ParallelCandidate& candidate) const;
  PredictedStep predict(const ParallelCandidate& candidate) const;

  // Where something is left open (a search, the reduction, k of first-k): the most promising few, those that fit first,
  // of these the fastest first. Otherwise the one that was asked for, of which nothing is predicted.
  std::vector<ParallelCandidate> candidates() const;

 private:
  std::vector<ParallelCandidate> schedules() const;
  ParallelCandidate predicted(ParallelCandidate candidate) const;
  std::vector<ParallelCandidate> with_reductions(std::vector<ParallelCandidate> by_schedule) const;
  std::vector<ParallelCandidate> reductions_of(const ParallelCandidate& of) const;

  const Workload& work_;
  const ParallelOptions& options_;
  const Machine& machine_;
  std::vector<std::uint32_t> devices_;
  int steps_;
  PipelineProblem problem_;
};

std::string to_text(const std::vector<ParallelCandidate>& candidates);
std::vector<ParallelCandidate> candidates_from_text(const std::string& text);

// What was predicted, measured and chosen, for people.
std::string table_of(const std::vector<ParallelCandidate>& candidates, std::size_t chosen,
                     const ParallelOptions& options, const Machine& machine);

}  // namespace overtake
