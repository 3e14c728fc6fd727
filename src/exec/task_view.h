#pragma once
// A task as its binding sees it: shapes and attributes while memory is planned, pointers once it is.

#include <cstddef>
#include <span>
#include <vector>

#include "base/bf16.h"
#include "base/error.h"
#include "overtake/graph.h"

namespace overtake {

class TaskView {
 public:
  // `addresses` has one entry per buffer; empty while memory is being planned.
  TaskView(const Graph& graph, const Task& task, std::span<std::byte* const> addresses)
      : graph_(graph), task_(task), addresses_(addresses) {}

  const Graph& graph() const { return graph_; }
  const Task& task() const { return task_; }
  Kind kind() const { return task_.kind; }
  const Attrs& attrs() const { return graph_.attrs_of(task_); }

  std::size_t reads() const { return task_.reads; }
  std::size_t writes() const { return task_.writes; }
  bool has_read(std::size_t i) const { return i < task_.reads && graph_.reads(task_)[i] != kNone; }
  bool has_write(std::size_t i) const { return i < task_.writes && graph_.writes(task_)[i] != kNone; }
  const Buffer& read(std::size_t i) const { return graph_.buffers[graph_.reads(task_)[i]]; }
  const Buffer& write(std::size_t i) const { return graph_.buffers[graph_.writes(task_)[i]]; }

  // Null where the operand is absent.
  template <class T>
  const T* in(std::size_t i) const {
    return has_read(i) ? reinterpret_cast<const T*>(address(graph_.reads(task_)[i])) : nullptr;
  }
  template <class T>
  T* out(std::size_t i) const {
    return has_write(i) ? reinterpret_cast<T*>(address(graph_.writes(task_)[i])) : nullptr;
  }
  std::byte* address(BufferId b) const { return addresses_[b]; }

  // Null if the task has none. It is the last thing written.
  std::byte* scratch() const {
    if (task_.writes == 0) return nullptr;
    const BufferId last = graph_.writes(task_)[task_.writes - 1u];
    return last != kNone && graph_.buffers[last].role == Role::scratch ? address(last) : nullptr;
  }

 private:
  const Graph& graph_;
  const Task& task_;
  std::span<std::byte* const> addresses_;
};

// Whether a sum of two has operands or a result of another type; then the second is bf16.
bool has_mixed_types(const TaskView& sum);

// Calls body with a zero of the element type: float or bf16.
template <class Body>
auto with_type(DType dtype, Body&& body) {
  if (dtype == DType::bf16) return body(bf16{});
  OVERTAKE_CHECK(dtype == DType::f32, "no kernel for elements of type {}", to_string(dtype));
  return body(0.0f);
}

// Dimensions in the order they lie in memory, outermost first; for permuted layouts.
std::vector<std::int64_t> physical_dims(const Buffer& b);
// Where a logical axis is in that order.
std::size_t physical_axis(const Buffer& b, std::int64_t axis);

}  // namespace overtake
