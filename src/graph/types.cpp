#include "overtake/types.h"

#include <fmt/ranges.h>

#include <functional>
#include <numeric>

#include "base/error.h"

namespace overtake {
namespace {

constexpr std::array<std::string_view, 4> kDTypes = {"f32", "bf16", "i32", "u8"};
constexpr std::array<std::string_view, 11> kKinds = {"forward",    "input_grad",     "weight_grad", "update",
                                                     "all_reduce", "reduce_scatter", "all_gather",  "all_to_all",
                                                     "send",       "recv",           "load"};
constexpr std::array<std::string_view, 11> kRoles = {"input",           "weight",   "state",      "optimizer_state",
                                                     "weight_copy",     "constant", "activation", "gradient",
                                                     "weight_gradient", "scratch",  "output"};
constexpr std::array<std::string_view, kOpCount> kOps = {
    "linear",        "matmul",    "conv2d",    "batch_norm", "batch_moments", "layer_norm",  "group_norm",
    "activation",    "add",       "mul",       "chain",      "concat",        "slice",       "reshape",
    "transpose",     "expand",    "reduce",    "max_pool",   "avg_pool",      "global_pool", "adaptive_pool",
    "softmax",       "attention", "embedding", "dropout",    "stop_gradient", "lstm",        "gru",
    "cross_entropy", "mse",       "sum",       "reorder",    "squared_norm",  "clip_norm",   "sgd",
    "adamw",         "transfer",  "block"};

template <class E, std::size_t N>
E from_name(const std::array<std::string_view, N>& names, std::string_view name, const char* what) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<E>(i);
  fail_user("graph: unknown {}: '{}'; known are {}", what, name, fmt::join(names, ", "));
}

// Of any number, because some come from other processes.
template <class E, std::size_t N>
std::string_view name_of(const std::array<std::string_view, N>& names, E x) {
  const auto at = static_cast<std::size_t>(x);
  return at < N ? names[at] : "unknown";
}

template <class T>
const T& get_attr(const std::map<std::string, AttrValue>& values, const std::string& name) {
  const auto it = values.find(name);
  OVERTAKE_CHECK(it != values.end(), "attribute '{}' is missing", name);
  const T* value = std::get_if<T>(&it->second);
  OVERTAKE_CHECK(value != nullptr, "attribute '{}' has another type", name);
  return *value;
}

}  // namespace

std::string_view to_string(DType x) { return name_of(kDTypes, x); }
std::string_view to_string(Kind x) { return name_of(kKinds, x); }
std::string_view to_string(Role x) { return name_of(kRoles, x); }
std::string_view to_string(Op x) { return name_of(kOps, x); }
DType dtype_from_string(std::string_view s) { return from_name<DType>(kDTypes, s, "element type"); }
Kind kind_from_string(std::string_view s) { return from_name<Kind>(kKinds, s, "kind of task"); }
Role role_from_string(std::string_view s) { return from_name<Role>(kRoles, s, "role of buffer"); }
Op op_from_string(std::string_view s) { return from_name<Op>(kOps, s, "op"); }

std::int64_t bytes_of(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

Shape::Shape(std::span<const std::int64_t> list) {
  OVERTAKE_CHECK(list.size() <= kMaxRank, "a shape has at most {} dimensions, not {}", kMaxRank, list.size());
  rank = static_cast<std::uint8_t>(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) dims[i] = list[i];
}

std::int64_t Shape::elements() const {
  return std::accumulate(dims.begin(), dims.begin() + rank, std::int64_t{1}, std::multiplies<>());
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.span(), ", ")); }

std::int64_t Attrs::integer(const std::string& name) const { return get_attr<std::int64_t>(values_, name); }
std::int64_t Attrs::integer(const std::string& name, std::int64_t fallback) const {
  return has(name) ? integer(name) : fallback;
}
double Attrs::real(const std::string& name) const { return get_attr<double>(values_, name); }
double Attrs::real(const std::string& name, double fallback) const { return has(name) ? real(name) : fallback; }
const std::vector<std::int64_t>& Attrs::integers(const std::string& name) const {
  return get_attr<std::vector<std::int64_t>>(values_, name);
}
const std::string& Attrs::text(const std::string& name) const { return get_attr<std::string>(values_, name); }

}  // namespace overtake
