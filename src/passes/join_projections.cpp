#include "passes/join_projections.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "rewrite/uses.h"

namespace overtake {
namespace {

class Joiner {
 public:
  explicit Joiner(Graph graph) : g_(std::move(graph)), uses_(g_) {}

  Graph run() {
    for (TaskId t = 0; t < g_.tasks.size(); ++t)
      if (g_.tasks[t].op == Op::attention) join(t);
    if (gone_.empty()) return std::move(g_);
    const Graph old = g_;
    g_.tasks.clear();
    g_.operands.clear();
    for (TaskId t = 0; t < old.tasks.size(); ++t)
      if (std::ranges::find(gone_, t) == gone_.end()) {
        add_like(g_, old.tasks[t], old.reads(t), old.writes(t));
      }
    return std::move(g_);
  }

 private:
  using Three = std::array<TaskId, 3>;

  Parameter* parameter(BufferId b) {
    const auto p = std::ranges::find(g_.parameters, b, &Parameter::buffer);
    return p == g_.parameters.end() ? nullptr : &*p;
  }

  bool is_plain_linear(TaskId t) const {
    return t != kNone && g_.tasks[t].op == Op::linear && !g_.attrs_of(g_.tasks[t]).has("function") &&
           g_.buffers[g_.writes(t)[0]].role == Role::activation && uses_.readers[g_.writes(t)[0]] == 1;
  }

  // Whether these can be the rows of one tensor.
  bool are_alike(const std::array<BufferId, 3>& weights) {
    if (weights[0] == kNone) return weights[1] == kNone && weights[2] == kNone;
    for (const BufferId b : weights) {
      const Parameter* p = b == kNone ? nullptr : parameter(b);
      if (p == nullptr || g_.buffers[b].role != Role::weight || uses_.readers[b] != 1 || p->stored_transposed ||
          p->stored_rows != 0 || p->stored_shape || !p->parts.empty() ||
          p->is_frozen != parameter(weights[0])->is_frozen || g_.buffers[b].shape != g_.buffers[weights[0]].shape)
        return false;
    }
    return true;
  }

  std::array<BufferId, 3> operands(const Three& linears, std::size_t place) const {
    return {g_.reads(linears[0])[place], g_.reads(linears[1])[place], g_.reads(linears[2])[place]};
  }

  void join(TaskId attention) {
    const auto reads = g_.reads(attention);
    if (reads[1] == kNone || reads[2] == kNone) return;
    const Three linears = {uses_.writer[reads[0]], uses_.writer[reads[1]], uses_.writer[reads[2]]};
    if (!std::ranges::all_of(linears, [&](TaskId t) { return is_plain_linear(t); })) return;
    const auto inputs = operands(linears, 0), weights = operands(linears, 1), biases = operands(linears, 2);
    const bool has_one_input = inputs[0] == inputs[1] && inputs[0] == inputs[2];
    if (linears[0] == linears[1] || linears[1] == linears[2] || linears[0] == linears[2] || !has_one_input ||
        !are_alike(weights) || !are_alike(biases))
      return;
    const BufferId weight = joined(weights), bias = biases[0] == kNone ? kNone : joined(biases);
    const BufferId q = reads[0], mask = reads[3];
    Shape shape = g_.buffers[q].shape;
    shape[shape.rank - 1u] *= 3;
    const BufferId packed = g_.add_buffer(g_.buffer_name(q) + ".packed", shape, g_.buffers[q].dtype, Role::activation);
    // It stands where the last of the three stood.
    const TaskId last = std::ranges::max(linears);
    Attrs attrs = g_.attrs_of(g_.tasks[linears[0]]);
    attrs.set("out", shape.back());
    g_.tasks[last].attrs = g_.add_attrs(attrs);
    g_.tasks[last].layer = g_.tasks[linears[0]].layer;
    const BufferId linear_reads[] = {inputs[0], weight, bias}, attention_reads[] = {packed, kNone, kNone, mask};
    g_.set_operands(last, linear_reads, {&packed, 1});
    const std::vector<BufferId> writes(g_.writes(attention).begin(), g_.writes(attention).end());
    g_.set_operands(attention, attention_reads, writes);
    for (const TaskId t : linears)
      if (t != last) gone_.push_back(t);
  }

  // One parameter with the rows of three, in the place of the first.
  BufferId joined(const std::array<BufferId, 3>& weights) {
    Shape shape = g_.buffers[weights[0]].shape;
    const std::int64_t rows = shape[0];
    shape[0] *= 3;
    const std::string name = g_.buffer_name(weights[0]) + ".packed";
    const BufferId all = g_.add_buffer(name, shape, g_.buffers[weights[0]].dtype, Role::weight);
    Parameter p = *parameter(weights[0]);
    p.buffer = all;
    for (const BufferId b : weights) {
      p.parts.push_back({g_.buffers[b].name, rows, parameter(b)->init});
      g_.buffers[b].role = Role::activation;  // nobody reads it any more, so it has no place in memory
    }
    *parameter(weights[0]) = p;
    std::erase_if(g_.parameters, [&](const Parameter& x) { return x.buffer == weights[1] || x.buffer == weights[2]; });
    return all;
  }

  Graph g_;
  Uses uses_;
  std::vector<TaskId> gone_;
};

}  // namespace

Graph join_projections(Graph graph) { return Joiner(std::move(graph)).run(); }

}  // namespace overtake
