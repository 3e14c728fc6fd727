#pragma once
// A step of several micro-batches on one device as one graph, so that its tasks are put on lanes like those of any
// step: weight gradients of one micro-batch run beside forwards and input gradients of another.

#include <cstdint>

#include "plan/divide/detail.h"

namespace overtake {

struct MicroBatchOptions {
  std::uint32_t micro_batches = 1;
  std::uint32_t groups = 1;           // see DetailOptions
  bool updates_wait_for_all = false;  // see OutlineOptions
};

// `step` is of one micro-batch. The plan is one lane: micro-batch by micro-batch, then all updates; memory is not
// placed.
Detail divide_into_micro_batches(const Graph& step, const MicroBatchOptions& options, const Target& target);

// The same plan for one device, with its tasks in the order of their lane.
Detail in_order_of_lane(Detail whole);

}  // namespace overtake
