#pragma once
// What out of order did to a step, for people.

#include <nlohmann/json.hpp>
#include <string>

#include "overtake/run_spec.h"
#include "train/session.h"

namespace overtake {

// How a session is made for one row of the explanation.
struct Variant {
  std::string name;
  RunSpec spec;
};
// Plain launches, + one graph per step (where the device has that), + fusion, + out of order: each on top of the last.
std::vector<Variant> variants(const RunSpec& spec);

// The plans that were thought of for a session, predicted and measured.
std::string candidates_table(const PlanChoice& planned);
// Where weight gradients and updates went in the plan that runs: on which lane, beside which task of the main lane.
std::string moves_table(const PlanChoice& planned);
nlohmann::json json_of_candidates(const PlanChoice& planned);
nlohmann::json json_of_moves(const PlanChoice& planned);

}  // namespace overtake
