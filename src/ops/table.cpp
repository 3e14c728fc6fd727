// The one table of all ops.

#include <array>

#include "graph/place.h"
#include "ops/op.h"
#include "ops/rules.h"

namespace overtake {

const OpTraits& traits(Op op) {
  static const std::array<OpTraits, kOpCount> table = [] {
    std::array<OpTraits, kOpCount> all{};
    for (const OpTraits& t : {linear_traits(),        matmul_traits(),        conv2d_traits(),     batch_norm_traits(),
                              batch_moments_traits(), layer_norm_traits(),    group_norm_traits(), activation_traits(),
                              add_traits(),           mul_traits(),           chain_traits(),      concat_traits(),
                              slice_traits(),         reshape_traits(),       transpose_traits(),  expand_traits(),
                              reduce_traits(),        max_pool_traits(),      avg_pool_traits(),   global_pool_traits(),
                              adaptive_pool_traits(), softmax_traits(),       attention_traits(),  embedding_traits(),
                              dropout_traits(),       stop_gradient_traits(), lstm_traits(),       gru_traits(),
                              cross_entropy_traits(), mse_traits(),           sum_traits(),        reorder_traits(),
                              squared_norm_traits(),  clip_norm_traits(),     sgd_traits(),        adamw_traits(),
                              transfer_traits(),      block_traits()})
      all[static_cast<std::size_t>(t.op)] = t;
    return all;
  }();
  return table[static_cast<std::size_t>(op)];
}

Work work_of(const Graph& graph, TaskId id) {
  const Task& task = graph.tasks[id];
  Work work;
  double written = 0;
  const auto bytes = [&](BufferId b) {
    const Buffer& x = graph.buffers[b];
    return static_cast<double>(x.layout.pitch == 0 ? graph.bytes(b) : x.shape.elements() * bytes_of(x.dtype));
  };
  for (const BufferId b : graph.reads(id))
    if (b != kNone) work.bytes += bytes(b);
  for (const BufferId b : graph.writes(id)) {
    if (b == kNone || graph.buffers[b].role == Role::scratch) continue;
    work.bytes += bytes(b);
    written += static_cast<double>(graph.buffers[b].shape.elements());
  }
  if (task.op == Op::concat) {  // what lies in place already is neither read nor written
    for (const ConcatPart& part : concat_parts(graph, task)) {
      if (part.buffer == kNone || !lies_in_place(graph, task, part)) continue;
      work.bytes -= 2 * bytes(part.buffer);
      written -= static_cast<double>(graph.buffers[part.buffer].shape.elements());
    }
  }
  const auto flops = traits(task.op).flops;
  work.flops = flops != nullptr ? flops(graph, task) : written;
  return work;
}

void expect_rank(const TensorType& x, std::size_t rank, const char* what) {
  if (x.shape.rank != rank) fail_shape("{} must have {} dimensions, but is {}", what, rank, to_string(x.shape));
}

const std::vector<std::int64_t>& integers_of(const Attrs& attrs, const std::string& name, std::size_t count) {
  const std::vector<std::int64_t>& values = attrs.integers(name);
  if (values.size() != count) fail_shape("{} has {} numbers; it must have {}", name, values.size(), count);
  return values;
}

}  // namespace overtake
