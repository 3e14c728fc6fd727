#pragma once
// Whether a graph or a plan was changed, without a copy of it: take a fingerprint before and one after, and compare.

#include <cstdint>
#include <memory>
#include <vector>

#include "overtake/plan.h"

namespace overtake {

// Of everything that a graph means, whatever its ids of names and attributes are and wherever the operands of its tasks
// are stored. Equal graphs have equal ones; others have, but for one chance in 2^64, not. The bytes of constants are
// compared by where they are, as nobody changes them there; while a fingerprint lives they stay where they are.
struct Fingerprint {
  std::uint64_t hash = 0;
  std::vector<std::shared_ptr<const std::vector<std::byte>>> constants;
  bool operator==(const Fingerprint&) const = default;
};

Fingerprint fingerprint(const Graph& graph);
Fingerprint fingerprint(const Plan& plan);

}  // namespace overtake
