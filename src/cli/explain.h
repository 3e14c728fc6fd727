#pragma once
// What out of order did to a step, for people.

#include <nlohmann/json.hpp>
#include <string>

#include "overtake/program.h"
#include "overtake/run_spec.h"

namespace overtake {

// How a run is made for one row of the explanation.
struct Variant {
  std::string name;
  RunSpec spec;
};
// Plain launches, + one graph per step (where the device has that), + fusion, + out of order: each on top of the last.
std::vector<Variant> variants(const RunSpec& spec);

// Where weight gradients and updates went in the plan of a program that runs: on which lane, beside which task of the
// main lane.
std::string moves_table(const Program& program, const Plan& plan);
nlohmann::json json_of_choices(const Program& program);
nlohmann::json json_of_moves(const Program& program, const Plan& plan);

}  // namespace overtake
