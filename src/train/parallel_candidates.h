#pragma once
// The plans that are left to choose from where a user leaves the pipeline or the reduction open.

#include <string>
#include <vector>

#include "train/parallel.h"
#include "train/site.h"

namespace overtake {

struct ParallelCandidate {
  PipelineSchedule schedule;
  std::string reduce;
  FirstK first_k = {};
  std::int64_t predicted_ns = 0, measured_ns = 0;  // 0: not known

  std::string name(const ParallelOptions& options) const;  // for people: "zb-h1 + first-k 12"
};

// A step's blocks and how they may be put on devices.
struct ParallelProblem {
  const BlockGraph& blocks;
  const PipelineProblem& pipeline;
  const ParallelOptions& options;
};

Outline spread_as(const ParallelCandidate& candidate, const ParallelProblem& problem);

// The most promising ones, the best predicted first; one where nothing is open. Without a site nothing is predicted.
std::vector<ParallelCandidate> find_candidates(const ParallelProblem& problem, const Site* site);

std::string to_text(const std::vector<ParallelCandidate>& candidates);
std::vector<ParallelCandidate> candidates_from_text(const std::string& text);

// What was predicted, measured and chosen, for people.
std::string table_of(const std::vector<ParallelCandidate>& candidates, std::size_t chosen,
                     const ParallelOptions& options, const Site& site);

}  // namespace overtake
