#pragma once
// What tasks would take on a device that is only described: the longer of their arithmetic and their memory traffic, at
// the part of the peaks that good kernels reach.

#include <vector>

#include "overtake/cluster.h"
#include "overtake/graph.h"
#include "overtake/task_cost.h"

namespace overtake {

struct RooflineOptions {
  bool tf32 = false;                     // matrix products of float32 at the tf32 rate
  double matrix_part = 0.55;             // of the peak, in products and convolutions
  double vector_part = 0.05;             // of the peak, in all other arithmetic, which the matrix units do not do
  double bandwidth_part = 0.8;           // of the memory bandwidth
  std::int64_t begin_and_end_ns = 2500;  // of any task that does something, launched from a graph
};

// Per task of a step.
std::vector<TaskCost> roofline(const Graph& step, const DeviceType& device, const RooflineOptions& options = {});

}  // namespace overtake
