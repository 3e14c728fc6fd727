#pragma once
// What a checkpoint keeps of a RunSpec, and compares when it is taken up again.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "overtake/run_spec.h"

namespace overtake {

// By name: every field that the weights depend on, but for those that have a place of their own in a checkpoint.
nlohmann::json kept_in_checkpoint(const RunSpec& spec);

// A value that its field cannot have is a user error.
void check_kept(const nlohmann::json& kept);

// A setting that differs between the checkpoint `name` and this run is a user error where that makes it another run.
// Returns lines for the user about those that may change last bits. Checkpoints are older than some settings: what one
// does not have is not compared. A setting that is no field makes another run.
std::vector<std::string> compare_with_kept(const nlohmann::json& kept, const nlohmann::json& now,
                                           const std::string& name);

[[noreturn]] void fail_another_run(const std::string& name, const std::string& what, const nlohmann::json& kept,
                                   const nlohmann::json& now);

}  // namespace overtake
