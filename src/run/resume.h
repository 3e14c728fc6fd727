#pragma once
// What a checkpoint keeps of a RunSpec, and what a run that is taken up makes of it.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "overtake/run_spec.h"
#include "run/field.h"

namespace overtake {

// Beside the fields: what identifies the content of the data, whatever its files are called (Dataset::content).
inline constexpr std::string_view kDataContent = "data_content";

// By name: every field that a later start of the run takes up, but for those that have a place of their own in a
// checkpoint.
nlohmann::json kept_in_checkpoint(const RunSpec& spec);

// A value that its field cannot have is a user error.
void check_kept(const nlohmann::json& kept);

// The run of the checkpoint `name`, which keeps these fields, with what the user gives for this start: `given` names
// the fields of `asked` that count. A kept value that no field can have is a user error.
RunSpec taken_up(const nlohmann::json& kept, const RunSpec& asked, const std::vector<const Field*>& given,
                 const std::string& name);

// A setting that differs between the checkpoint `name` and this run is a user error where that makes it another run.
// Returns a line for the user about every other one. Checkpoints are older than some settings: what one does not have
// is not compared. A setting that is no field makes another run. Data of another name is the same if its content is;
// as long as this run's content is not known, nothing is said of data.
std::vector<std::string> compare_with_kept(const nlohmann::json& kept, const nlohmann::json& now,
                                           const std::string& name);

}  // namespace overtake
