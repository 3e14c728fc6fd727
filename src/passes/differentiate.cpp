#include "passes/differentiate.h"

#include <algorithm>

#include "base/error.h"
#include "ops/op.h"

namespace overtake {
namespace {

// Which buffers lie on a way from a weight to a loss that gradients can go back.
std::vector<char> buffers_with_gradient(const Graph& g) {
  std::vector<char> from_weight(g.buffers.size(), 0), to_loss(g.buffers.size(), 0);
  for (const Parameter& p : g.parameters)
    if (g.buffers[p.buffer].role == Role::weight && !p.is_frozen) from_weight[p.buffer] = 1;
  const auto any = [](std::span<const BufferId> ids, const std::vector<char>& flag) {
    return std::ranges::any_of(ids, [&](BufferId b) { return b != kNone && flag[b]; });
  };
  const auto lets_through = [&](TaskId t) { return traits(g.tasks[t].op).gradient != nullptr; };
  for (TaskId t = 0; t < g.tasks.size(); ++t)
    if (lets_through(t) && any(g.reads(t), from_weight))
      for (const BufferId b : g.writes(t))
        if (b != kNone) from_weight[b] = 1;
  for (const BufferId b : g.losses) to_loss[b] = 1;
  for (TaskId t = static_cast<TaskId>(g.tasks.size()); t-- > 0;)
    if (lets_through(t) && any(g.writes(t), to_loss))
      for (const BufferId b : g.reads(t))
        if (b != kNone) to_loss[b] = 1;
  for (BufferId b = 0; b < g.buffers.size(); ++b) from_weight[b] = from_weight[b] && to_loss[b];
  return from_weight;
}

class Differentiator final : public Gradient {
 public:
  explicit Differentiator(Graph& g)
      : graph_(g),
        needs_(buffers_with_gradient(g)),
        contributions_(g.buffers.size()),
        gradient_(g.buffers.size(), kNone) {
    for (const BufferId b : g.losses) needs_[b] = 0;
  }

  void run() {
    const auto forwards = static_cast<TaskId>(graph_.tasks.size());
    for (TaskId t = forwards; t-- > 0;) visit(t);
    for (Parameter& p : graph_.parameters) p.gradient = joined(p.buffer);
  }

  Graph& graph() override { return graph_; }
  const Task& forward() const override { return forward_; }
  BufferId in(std::size_t i) const override { return reads_[i]; }
  BufferId out(std::size_t i) const override { return writes_[i]; }
  BufferId grad_out(std::size_t i) const override { return gradient_[writes_[i]]; }
  bool wants(std::size_t i) const override { return reads_[i] != kNone && needs_[reads_[i]]; }

  BufferId grad_in(std::size_t i) override {
    if (!wants(i)) return kNone;
    const BufferId value = reads_[i];
    const bool is_weight = graph_.buffers[value].role == Role::weight;
    std::string name = graph_.buffer_name(value) + ".grad";
    if (!contributions_[value].empty()) name += fmt::format(".{}", contributions_[value].size());
    const BufferId b = new_buffer(name, graph_.buffers[value].shape, graph_.buffers[value].dtype,
                                  is_weight ? Role::weight_gradient : Role::gradient);
    graph_.buffers[b].layout = graph_.buffers[value].layout;
    contributions_[value].push_back(b);
    return b;
  }

  void pass(std::size_t i, BufferId gradient) override {
    // A weight's gradient is a buffer of its own, never a view of an activation's.
    if (graph_.buffers[reads_[i]].role != Role::weight) {
      contributions_[reads_[i]].push_back(gradient);
      return;
    }
    const BufferId copy = grad_in(i);
    add(Kind::weight_grad, Op::sum, 0, {&gradient, 1}, {&copy, 1});
  }

  BufferId temporary(const std::string& suffix, const Shape& shape, DType dtype) override {
    return new_buffer(fmt::format("{}.{}", graph_.layer_name(forward_.layer), suffix), shape, dtype, Role::gradient);
  }

  void emit(Kind kind, std::initializer_list<BufferId> reads, std::initializer_list<BufferId> writes) override {
    add(kind, forward_.op, forward_.attrs, std::span(reads.begin(), reads.size()),
        std::span(writes.begin(), writes.size()));
  }

  void emit(Kind kind, Op op, const Attrs& attrs, std::span<const BufferId> reads,
            std::span<const BufferId> writes) override {
    add(kind, op, graph_.add_attrs(attrs), reads, writes);
  }

 private:
  void visit(TaskId t) {
    forward_ = graph_.tasks[t];
    reads_.assign(graph_.reads(t).begin(), graph_.reads(t).end());
    writes_.assign(graph_.writes(t).begin(), graph_.writes(t).end());
    const bool is_loss = std::ranges::find(graph_.losses, writes_[0]) != graph_.losses.end();
    bool has_gradient = is_loss;
    for (const BufferId b : writes_) {
      if (b == kNone || is_persistent(graph_.buffers[b].role)) continue;
      gradient_[b] = joined(b);
      has_gradient = has_gradient || gradient_[b] != kNone;
    }
    const bool any_wanted = std::ranges::any_of(reads_, [&](BufferId b) { return b != kNone && needs_[b]; });
    if (!has_gradient || !any_wanted) return;
    const auto rule = traits(forward_.op).gradient;
    OVERTAKE_CHECK(rule != nullptr, "op {} has no gradient rule", to_string(forward_.op));
    rule(*this);
  }

  // The one buffer with the whole gradient of a value, adding up its contributions if there are several.
  BufferId joined(BufferId value) {
    std::vector<BufferId> parts = std::move(contributions_[value]);
    contributions_[value].clear();
    if (parts.empty()) return kNone;
    if (parts.size() == 1) return parts[0];
    const bool is_weight = graph_.buffers[value].role == Role::weight;
    const BufferId total =
        new_buffer(graph_.buffer_name(value) + ".grad.sum", graph_.buffers[value].shape, graph_.buffers[parts[0]].dtype,
                   is_weight ? Role::weight_gradient : Role::gradient);
    graph_.buffers[total].layout = graph_.buffers[value].layout;
    add(is_weight ? Kind::weight_grad : Kind::input_grad, Op::sum, 0, parts, {&total, 1});
    return total;
  }

  BufferId new_buffer(const std::string& name, Shape shape, DType dtype, Role role) {
    const BufferId b = graph_.add_buffer(name, shape, dtype, role);
    contributions_.emplace_back();
    gradient_.push_back(kNone);
    needs_.push_back(0);
    return b;
  }

  void add(Kind kind, Op op, AttrsId attrs, std::span<const BufferId> reads, std::span<const BufferId> writes) {
    // An op without weights of its own may be applied to a weight; then its input gradient is a weight gradient.
    const bool only_weights = std::ranges::all_of(
        writes, [&](BufferId b) { return b == kNone || graph_.buffers[b].role == Role::weight_gradient; });
    const bool has_own_weights = op == Op::linear || op == Op::conv2d || op == Op::batch_norm || op == Op::layer_norm ||
                                 op == Op::group_norm || op == Op::lstm || op == Op::gru || op == Op::embedding;
    if (only_weights && !has_own_weights) kind = Kind::weight_grad;
    graph_.add_task(kind, op, forward_.layer, attrs, reads, writes);
  }

  Graph& graph_;
  std::vector<char> needs_;
  std::vector<std::vector<BufferId>> contributions_;  // per buffer
  std::vector<BufferId> gradient_;                    // per buffer, once it is whole
  Task forward_;
  std::vector<BufferId> reads_, writes_;
};

}  // namespace

bool is_forward_only(const Graph& graph) {
  return !graph.losses.empty() &&
         std::ranges::all_of(graph.tasks, [](const Task& t) { return t.kind == Kind::forward; });
}

bool is_differentiated(const Graph& graph) {
  return std::ranges::any_of(graph.parameters, [](const Parameter& p) { return p.gradient != kNone; });
}

Graph differentiate(Graph graph) {
  Differentiator(graph).run();
  if (!is_differentiated(graph))
    fail_user("model {}: its loss depends on no weight that is trained; add a layer that has one, or freeze less",
              graph.model);
  return graph;
}

}  // namespace overtake
