#pragma once
// RunSpecs as TOML files: a line `name = value` for each field that is given.

#include <filesystem>
#include <string>
#include <vector>

#include "overtake/run_spec.h"
#include "run/field.h"

namespace overtake {

std::string toml_of(const RunSpec& spec);
// Fields that the text does not have keep their defaults. What is wrong with it is a user error that names file, line
// and field.
RunSpec spec_from_toml(const std::string& text, const std::string& file, std::vector<const Field*>* given = nullptr);

// The fields that the file has are added to `given`.
RunSpec read_spec(const std::filesystem::path& file, std::vector<const Field*>* given = nullptr);
// Replaces the file at once.
void write_spec(const std::filesystem::path& file, const RunSpec& spec);

}  // namespace overtake
