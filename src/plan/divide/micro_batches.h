#pragma once
// A step of several micro-batches on one device as one graph, so that its tasks are put on lanes like those of any
// step: weight gradients of one micro-batch run beside forwards and input gradients of another.

#include <cstdint>

#include "plan/divide/detail.h"

namespace overtake {

struct MicroBatchOptions {
  std::uint32_t micro_batches = 1;
  std::uint32_t groups = 1;  // see DetailOptions
  double clip_norm = 0;      // of the gradients' sum over all micro-batches; 0: gradients are not clipped
};

// `step` is of one micro-batch. The tasks of the result stand in an order in which one lane can run them: micro-batch
// by micro-batch, then all updates. The plan is that one lane; memory is not placed.
Detail divide_into_micro_batches(const Graph& step, const MicroBatchOptions& options, const Target& target);

}  // namespace overtake
