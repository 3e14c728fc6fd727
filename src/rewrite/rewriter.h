#pragma once
// The forward graph while a pass rewrites it: who writes each buffer, how often it is read, and changes that keep both
// right. A group of tasks is replaced by letting its last task become something else; what nobody reads then goes.

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "overtake/graph.h"

namespace overtake {

class Rewriter {
 public:
  // The tasks must stand in an order in which they can run. Tasks whose results nobody needs go at once.
  explicit Rewriter(Graph graph);

  const Graph& graph() const { return graph_; }
  Op op(TaskId t) const { return graph_.tasks[t].op; }
  const Attrs& attrs(TaskId t) const { return graph_.attrs_of(graph_.tasks[t]); }
  BufferId in(TaskId t, std::size_t i) const { return resolve(graph_.reads(t)[i]); }
  std::vector<BufferId> ins(TaskId t) const;
  BufferId out(TaskId t) const { return graph_.writes(t)[0]; }
  const Shape& shape(BufferId b) const { return graph_.buffers[b].shape; }
  Role role(BufferId b) const { return graph_.buffers[b].role; }
  bool is_parameter(BufferId b) const { return role(b) == Role::weight || role(b) == Role::constant; }
  bool is_gone(TaskId t) const { return gone_[t] != 0; }

  // The task that makes b in this step; kNone for inputs, weights and constants. The second form: only if of this op.
  TaskId writer(BufferId b) const { return b == kNone ? kNone : writer_[b]; }
  TaskId writer(BufferId b, Op op) const;
  // The task that makes b if it is an activation of this function, else kNone.
  TaskId writer_of_function(BufferId b, std::string_view function) const;
  // How many operands b is. The host counts too, where it reads b after the step.
  std::uint32_t readers(BufferId b) const { return readers_[b]; }
  // The numbers of a constant of floats, in row-major order; none for every other buffer.
  std::span<const float> values(BufferId b) const;
  // The number in a constant of one element.
  std::optional<double> scalar(BufferId b) const;

  // A new task that runs before `before` and belongs to its layer; gives its first result. `inputs` and `parameters` as
  // in the op's file; an input may be kNone.
  BufferId insert(TaskId before, Op op, const Attrs& attrs, std::vector<BufferId> inputs,
                  std::vector<BufferId> parameters = {});
  // Makes t another op with the same first result.
  void become(TaskId t, Op op, const Attrs& attrs, std::vector<BufferId> inputs, std::vector<BufferId> parameters = {});
  // Lets everybody who reads t's result read b instead; t goes.
  void bypass(TaskId t, BufferId b);
  // Whether bypass is possible: the host does not read t's result.
  bool can_bypass(TaskId t) const { return role(out(t)) == Role::activation && !is_loss(out(t)); }
  // A constant with the same number everywhere.
  BufferId filled(const Shape& shape, float value);
  // The same numbers under other dimensions: a new constant, or this weight itself, which must have one reader.
  BufferId reshaped_parameter(BufferId b, const Shape& shape);

  // Tasks that were inserted since the last call.
  std::vector<TaskId> take_inserted();
  bool has_changed() const { return changed_; }
  // What is left, in an order in which it can run; weights, states, constants and buffers that nobody uses are gone.
  Graph finish() &&;

 private:
  BufferId resolve(BufferId b) const;
  bool is_loss(BufferId b) const;
  bool is_needed(TaskId t) const;
  std::vector<BufferId> make_results(TaskId t, const std::vector<BufferId>& inputs, BufferId first);
  void set_task(TaskId t, std::vector<BufferId> reads, const std::vector<BufferId>& writes);
  void release(std::vector<BufferId> reads);
  void drop(TaskId t);
  std::vector<TaskId> order() const;
  void drop_unused_buffers();
  BufferId add_constant(const Shape& shape, std::string_view name, std::shared_ptr<const std::vector<std::byte>> bytes);
  void grow_to_buffers();

  Graph graph_;
  std::vector<TaskId> writer_;          // per buffer
  std::vector<std::uint32_t> readers_;  // per buffer
  std::vector<BufferId> instead_;       // per buffer: what is read in its place
  std::vector<std::uint32_t> value_;    // per buffer: index in Graph::constants, or kNone
  std::vector<char> gone_;              // per task
  std::vector<TaskId> inserted_;
  std::size_t original_tasks_ = 0;
  bool changed_ = false;
};

}  // namespace overtake
