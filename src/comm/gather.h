#pragma once
// Small things of all ranks brought together.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/group.h"

namespace overtake {

// Rank 0 gets every rank's text, in their order; the others get nothing. All ranks call it; throws CommError.
std::vector<std::string> gather_texts(Group& group, std::string mine, const TransferOptions& options = {});

// The smallest number of all ranks, on all of them.
std::int64_t least_of_all(Group& group, std::int64_t mine, const TransferOptions& options = {});

}  // namespace overtake
