#include "passes/pass.h"

#include "ops/op.h"

namespace overtake {

double traffic_of(const Graph& graph) {
  double bytes = 0;
  for (TaskId t = 0; t < graph.tasks.size(); ++t) bytes += work_of(graph, t).bytes;
  return bytes;
}

}  // namespace overtake
