#pragma once
// What every op tells about itself. Adding an op: its own file here, a line in table.cpp, one binding per backend, and
// tests. The meaning of each place in a task's reads and writes is said at the top of the op's file; kernels of all
// backends follow it.

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "overtake/graph.h"

namespace overtake {

// Found while a model is built; the builder adds the layer's name and makes it the user's error.
class ShapeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An input of a forward task; optional ones may be absent.
struct TensorType {
  Shape shape;
  DType dtype = DType::f32;
  bool is_present = true;
};

struct ParameterForm {
  std::string suffix;  // "weight"; empty for one that is absent (no bias)
  Shape shape;
  Role role = Role::weight;
  Init init;
};

struct OutputForm {
  std::string suffix;  // empty for the main result, which is named after the layer
  Shape shape;
  DType dtype = DType::f32;
  Role role = Role::activation;
};

// What a forward task consists of, given its inputs: it reads inputs then parameters, and writes outputs, then the
// parameters of role state.
struct OpForm {
  std::vector<ParameterForm> parameters;
  std::vector<OutputForm> outputs;
};

// Where an op's gradient rule reads the forward task and emits the backward ones.
class Gradient {
 public:
  virtual ~Gradient() = default;
  virtual Graph& graph() = 0;
  virtual const Task& forward() const = 0;
  virtual BufferId in(std::size_t i) const = 0;        // reads[i] of the forward task
  virtual BufferId out(std::size_t i) const = 0;       // writes[i]
  virtual BufferId grad_out(std::size_t i) const = 0;  // its gradient; kNone if nothing depends on it
  virtual bool wants(std::size_t i) const = 0;         // whether reads[i] needs a gradient
  // A new buffer for the gradient of reads[i], counted as one contribution to it; kNone if not wanted.
  virtual BufferId grad_in(std::size_t i) = 0;
  // Counts an existing buffer as the contribution (no task is needed).
  virtual void pass(std::size_t i, BufferId gradient) = 0;
  // A buffer that lives between two backward tasks.
  virtual BufferId temporary(const std::string& suffix, const Shape& shape, DType dtype) = 0;
  // A backward task of the forward's op and attributes; the other form has attributes of its own.
  virtual void emit(Kind kind, std::initializer_list<BufferId> reads, std::initializer_list<BufferId> writes) = 0;
  virtual void emit(Kind kind, Op op, const Attrs& attrs, std::span<const BufferId> reads,
                    std::span<const BufferId> writes) = 0;
};

// A result that may be computed on the bytes of an operand of the same size.
struct InPlace {
  std::uint8_t read = 0;
  std::uint8_t write = 0;
};

// A set of kinds of tasks.
using Kinds = std::uint16_t;
template <class... More>
constexpr Kinds kinds(Kind first, More... more) {
  unsigned set = 1u << static_cast<unsigned>(first);
  ((set |= 1u << static_cast<unsigned>(more)), ...);
  return static_cast<Kinds>(set);
}
inline constexpr Kinds kForward = kinds(Kind::forward), kInputGrad = kinds(Kind::input_grad),
                       kWeightGrad = kinds(Kind::weight_grad),
                       // Of an op without weights of its own, which may be applied to a weight.
    kGradient = kinds(Kind::input_grad, Kind::weight_grad), kForwardOrGradient = kForward | kGradient;

// What tasks of some kinds read and write: "x, w bias? -> y pre?", the places in their order. Names before the comma
// (where there is none, all that are read) are the inputs that the form is made from; those after it are the form's
// parameters, and those of what a forward task writes are the form's outputs, where they are none that it reads. In the
// other tasks a name is a forward task's operand, "dx" is shaped like its x, and "pre:x" is shaped like x as well.
// "sums:any" is neither. Marks: "?" may be absent, "!" has the element type of the form exactly (else bf16 may stand
// for f32), "+" may have more rows,
// "#" need not be f32 or bf16, as all other inputs are. "..." at the end: the whole list one or more times, or, where
// all of it may be absent, not at all.
class TaskOperands;
struct TaskRule {
  Kinds kinds = 0;
  std::string_view operands;
  void (*check)(const TaskOperands&) = nullptr;  // null: all that the form says; see task_operands.h
};

struct OpTraits {
  Op op;
  OpForm (*form)(std::span<const TensorType> inputs, const Attrs& attrs) = nullptr;
  void (*gradient)(Gradient&) = nullptr;                         // null: nothing flows through it
  double (*flops)(const Graph& graph, const Task& t) = nullptr;  // null: one per element written
  std::vector<InPlace> (*in_place)(const Task& t) = nullptr;     // null: none
  std::span<const TaskRule> tasks = {};                          // every kind of task there is; none: anything goes
};

const OpTraits& traits(Op op);

// The work of a task, for tables and for what it takes on a device.
struct Work {
  double flops = 0;
  double bytes = 0;  // each operand once
};
Work work_of(const Graph& graph, TaskId task);

// Whether an activation's derivative is computed from its result (else from what it was applied to).
bool derivative_uses_output(std::string_view function);
// Whether linear can apply this activation to its result: those that follow a layer and have no parameters.
bool linear_takes(std::string_view function);

// For shape rules.
template <class... Args>
[[noreturn]] void fail_shape(fmt::format_string<Args...> text, Args&&... args) {
  throw ShapeError(fmt::format(text, std::forward<Args>(args)...));
}
void expect_rank(const TensorType& x, std::size_t rank, const char* what);
// The attribute, which must have so many numbers.
const std::vector<std::int64_t>& integers_of(const Attrs& attrs, const std::string& name, std::size_t count);

}  // namespace overtake
