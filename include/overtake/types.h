#pragma once
// The small plain types a graph is made of.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace overtake {

using BufferId = std::uint32_t;
using TaskId = std::uint32_t;
using LayerId = std::uint32_t;
using AttrsId = std::uint32_t;
using StringId = std::uint32_t;
inline constexpr std::uint32_t kNone = 0xffffffffu;  // an absent id: an optional operand that is not there

enum class DType : std::uint8_t { f32, bf16, i32, u8 };

// What a task does in the step; schedules look at nothing else of its meaning.
enum class Kind : std::uint8_t {
  forward,
  input_grad,
  weight_grad,
  update,
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  send,
  recv,
  load
};

enum class Role : std::uint8_t {
  input,            // written by the host before a step
  weight,           // trained; lives across steps
  state,            // not trained, lives across steps (running statistics)
  optimizer_state,  // lives across steps
  weight_copy,      // of a weight, in the form kernels want; lives across steps, written by the weight's update
  constant,         // part of the model, never written
  activation,
  gradient,
  weight_gradient,
  scratch,  // lives inside its one task
  output    // read by the host after a step
};

enum class Op : std::uint8_t {
  linear,
  matmul,
  conv2d,
  batch_norm,
  batch_moments,  // what batch norms over several devices need of each
  layer_norm,
  group_norm,
  activation,
  add,
  mul,
  chain,  // activations, adds and muls in one
  concat,
  slice,
  reshape,
  transpose,
  expand,  // numpy's broadcast_to
  reduce,  // sum over axes
  max_pool,
  avg_pool,
  global_pool,
  adaptive_pool,
  softmax,
  attention,
  embedding,
  dropout,
  stop_gradient,  // the same values, which nothing is learned through
  lstm,
  gru,
  cross_entropy,
  mse,
  sum,           // of k equally shaped buffers, from left to right: joins the gradients of a fan-out
  reorder,       // another layout or element type of the same values
  squared_norm,  // of each of several gradients
  clip_norm,     // of all gradients -> the factor that brings their global norm under a bound
  sgd,
  adamw,
  transfer,  // between devices
  block      // several tasks taken as one, for simulation
};
inline constexpr std::size_t kOpCount = static_cast<std::size_t>(Op::block) + 1;

std::string_view to_string(DType);
std::string_view to_string(Kind);
std::string_view to_string(Role);
std::string_view to_string(Op);
// Back from a name; a user error that lists the known names when there is none such.
DType dtype_from_string(std::string_view);
Kind kind_from_string(std::string_view);
Role role_from_string(std::string_view);
Op op_from_string(std::string_view);

std::int64_t bytes_of(DType);

// Logical dimensions, outermost first.
struct Shape {
  static constexpr std::size_t kMaxRank = 6;
  std::array<std::int64_t, kMaxRank> dims{};
  std::uint8_t rank = 0;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> list) : Shape(std::span<const std::int64_t>(list.begin(), list.size())) {}
  explicit Shape(std::span<const std::int64_t> list);

  std::int64_t operator[](std::size_t i) const { return dims[i]; }
  std::int64_t& operator[](std::size_t i) { return dims[i]; }
  std::int64_t back() const { return dims[rank - 1u]; }
  std::span<const std::int64_t> span() const { return {dims.data(), rank}; }
  std::int64_t elements() const;
  bool operator==(const Shape&) const = default;
};
std::string to_string(const Shape&);  // "[8, 3, 224, 224]"

// The attributes of a task: a small ordered map from name to value. Equal ones are stored once in a graph.
using AttrValue = std::variant<std::int64_t, double, std::vector<std::int64_t>, std::string>;
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> list) : values_(list) {}

  bool has(const std::string& name) const { return values_.contains(name); }
  void set(const std::string& name, AttrValue value) { values_[name] = std::move(value); }
  // Without a fallback the attribute must be there.
  std::int64_t integer(const std::string& name) const;
  std::int64_t integer(const std::string& name, std::int64_t fallback) const;
  double real(const std::string& name) const;
  double real(const std::string& name, double fallback) const;
  const std::vector<std::int64_t>& integers(const std::string& name) const;
  const std::string& text(const std::string& name) const;

  const std::map<std::string, AttrValue>& values() const { return values_; }
  auto operator<=>(const Attrs&) const = default;

 private:
  std::map<std::string, AttrValue> values_;
};

}  // namespace overtake
