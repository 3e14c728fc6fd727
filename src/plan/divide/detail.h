#pragma once
// From a plan of blocks over devices back to the tasks of the step: a plan that can be executed.

#include <cstdint>
#include <string>
#include <vector>

#include "graph/fingerprint.h"
#include "overtake/target.h"
#include "plan/divide/outline.h"

namespace overtake {

struct DetailOptions {
  // Sums micro-batches in `groups` groups, then the groups, in the order that `groups` replicas would. The number of
  // micro-batches is a multiple of it.
  std::uint32_t groups = 1;
  // What runs it: its products may add to the sums. None: they do not.
  const Target* target = nullptr;
};

// Tasks of several devices in one graph. A transfer reads what it needs where that is made, on whatever device; see
// ops/transfer.cpp.
struct Detail {
  struct Input {
    BufferId buffer;
    std::uint32_t replica, micro_batch;
  };
  Plan plan;                  // memory is not placed
  std::vector<Input> inputs;  // several where several devices need the same
  struct Loss {
    std::uint32_t replica, micro_batch;
    std::uint32_t index;  // among those of the model
    auto operator<=>(const Loss&) const = default;
  };
  std::vector<Loss> losses;  // of the graph, in its order
  std::uint32_t replicas = 1, micro_batches = 1;
  std::uint32_t devices = 1;  // of all replicas, also those that have nothing to do
};

// What passes over details are asked for.
inline const Graph& graph_of(const Detail& detail) { return detail.plan.graph; }
inline Fingerprint fingerprint(const Detail& detail) { return fingerprint(detail.plan); }
inline void verify(const Detail& detail) { verify(detail.plan); }

// `step` is what the blocks were made of, a micro-batch of one replica; every replica has equally many. Gradients come
// out as of the mean over all micro-batches. Sums over them are made in their order whatever the schedule.
Detail make_detail(const Graph& step, const BlockGraph& blocks, const Outline& cluster, const DetailOptions& options);

// What one device does of it, for a process of its own: operands of transfers that lie on other devices are left out.
Detail part_of(const Detail& whole, std::uint32_t device);

// All tasks on one lane, in an order in which they could run.
Plan in_one_lane(Plan plan);

}  // namespace overtake
