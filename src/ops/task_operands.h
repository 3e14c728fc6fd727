#pragma once
// The operands of one task under the names that its op's rule gives them, and what ops ask of them. Everything here
// that does not hold is a bug in a pass: an InternalError that names the task and the operand.

#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace overtake {

// One name of a rule, with its marks.
struct OperandRule {
  enum class Is : std::uint8_t { input, parameter, output, unknown };
  std::string name;
  Is is = Is::unknown;          // what of the forward task it is, or is the gradient of
  std::size_t index = 0;        // among those
  bool is_gradient = false;     // of an input, whose own place comes first where its type is asked
  bool is_optional = false;     // ?
  bool is_exact = false;        // !
  bool may_be_integer = false;  // #
  bool may_be_taller = false;   // +
};

// A rule of OpTraits::tasks, read.
struct ParsedTaskRule {
  std::vector<OperandRule> reads, writes;
  bool reads_repeat = false, writes_repeat = false;  // the names end in "..."
  std::size_t inputs = 0;                            // of the forward task
  bool inputs_repeat = false;
};

class TaskOperands {
 public:
  // Counts the operands and finds those that must not be absent.
  TaskOperands(const Graph& graph, TaskId task, const TaskRule& rule, const ParsedTaskRule& parsed);

  Kind kind() const { return task_.kind; }
  const Attrs& attrs() const { return graph_.attrs_of(task_); }
  // How often the list repeats that ends in "...".
  std::size_t read_groups() const { return read_groups_; }
  std::size_t write_groups() const { return write_groups_; }

  // By its name, in which repetition of the list; kNone or null where it is absent.
  BufferId read_id(std::string_view name, std::size_t group = 0) const;
  BufferId write_id(std::string_view name, std::size_t group = 0) const;
  const Buffer* read(std::string_view name, std::size_t group = 0) const { return buffer(read_id(name, group)); }
  const Buffer* written(std::string_view name, std::size_t group = 0) const { return buffer(write_id(name, group)); }

  // That what is there under this name has this shape; that it has this element type; that it is f32 or bf16.
  void expect_shape(std::string_view name, const Shape& shape, std::size_t group = 0) const;
  void expect_type(std::string_view name, DType dtype, std::size_t group = 0) const;
  void expect_float(std::string_view name, std::size_t group = 0) const;

  // That all operands are what OpTraits::form makes of the inputs, which are among the operands themselves, as such or
  // as the shapes of their gradients; or of these inputs, where they are not.
  void expect_form() const;
  void expect_form(std::vector<TensorType> inputs) const;

  // What the operand is not.
  [[noreturn]] void fail(std::string_view name, BufferId operand, const std::string& expected) const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct Bound {
    const OperandRule* rule;
    BufferId buffer;
    std::size_t group;
    bool is_written;
  };

  const Buffer* buffer(BufferId b) const { return b == kNone ? nullptr : &graph_.buffers[b]; }
  std::size_t bind(std::span<const BufferId> ids, const std::vector<OperandRule>& names, bool repeats, bool is_written);
  BufferId find(std::string_view name, std::size_t group, bool is_written) const;
  std::vector<TensorType> inputs() const;
  void compare(const Bound& operand, const std::vector<TensorType>& inputs, const OpForm& form) const;
  void expect_like(const Bound& operand, const Shape& shape, DType dtype) const;

  const Graph& graph_;
  TaskId id_;
  const Task& task_;
  const TaskRule& rule_;
  const ParsedTaskRule& parsed_;
  std::vector<Bound> operands_;
  std::size_t read_groups_ = 0, write_groups_ = 0;
};

inline bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

}  // namespace overtake
