#include "train/resumed_network.h"

#include <algorithm>

#include "base/error.h"
#include "plan/divide/workload.h"

namespace overtake {
namespace {

bool has_same_weights(const Graph& a, const Graph& b) {
  const auto is_same = [&](const Parameter& p, const Parameter& q) {
    return a.buffer_name(p.buffer) == b.buffer_name(q.buffer) &&
           a.buffers[p.buffer].shape == b.buffers[q.buffer].shape && p.stored_rows == q.stored_rows;
  };
  return std::ranges::equal(a.parameters, b.parameters, is_same);
}

// The same ops in the same order, each of the same operands.
bool has_same_tasks(const Graph& a, const Graph& b) {
  const auto is_same = [&](const Task& s, const Task& t) {
    return s.op == t.op && s.kind == t.kind && std::ranges::equal(a.reads(s), b.reads(t)) &&
           std::ranges::equal(a.writes(s), b.writes(t));
  };
  return std::ranges::equal(a.tasks, b.tasks, is_same);
}

}  // namespace

std::string changed_network(const CheckpointState& state, const Graph& built, const std::string& resume) {
  if (!state.network) return "";
  const Graph& kept = *state.network;
  if (has_same_weights(kept, built) && has_same_tasks(kept, built)) return "";
  if (samples_of(kept) != samples_of(built))
    fail_user(
        "`resume {}`: its network is not that of {} any more, and was saved with {} samples in a micro-batch, where "
        "this "
        "run has {}; give `batch`, `dp` and `micro_batches` that make it {}",
        resume, state.model, samples_of(kept), samples_of(built), samples_of(kept));
  return save_json(kept);
}

void take_network(Graph& graph, std::vector<NamedTensor>& initial, const std::string& network) {
  if (network.empty()) return;
  graph = load_graph_json(network);
  initial.clear();
}

}  // namespace overtake
