#pragma once
// Collectives alone on a machine, in nccl-tests' terms.

#include <cstdint>
#include <string>
#include <vector>

#include "cli/simulate/flags.h"

namespace overtake {

// Sizes of --bytes: "256M", a list "8,1M,1G", or as nccl-tests steps from one size to another, "8:8G:2".
std::vector<std::int64_t> sizes_from_text(const std::string& text);

// Prints what they take, and returns the exit status.
int simulate_collective(const SimulateFlags& flags, const RunSpec& spec);

}  // namespace overtake
