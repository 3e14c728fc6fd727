#pragma once
// What a chain of reshapes, transposes and slices sees of the tensor it starts from: elements at fixed strides.

#include <optional>
#include <span>
#include <vector>

#include "overtake/graph.h"

namespace overtake {

struct StridedView {
  struct Axis {
    std::int64_t extent = 1;  // above 1
    std::int64_t stride = 0;
    bool operator==(const Axis&) const = default;
  };
  std::int64_t offset = 0;
  // Each dimension consists of axes, outermost first; one of extent 1 has none.
  std::vector<std::vector<Axis>> dims;

  // All of a row-major tensor.
  explicit StridedView(const Shape& shape);

  void transpose(std::span<const std::int64_t> order);
  void swap_last_two();
  // False, and nothing has changed, where the result is not made of axes of fixed stride.
  bool reshape(const Shape& shape);
  bool slice(std::size_t axis, std::int64_t begin, std::int64_t end);

  // Without regard to dimensions, neighbours joined where they lie behind each other in memory.
  std::vector<Axis> joined_axes() const;
};

// One step of moving elements about.
struct Move {
  Op op = Op::reshape;                // or transpose
  std::vector<std::int64_t> numbers;  // the shape, or the order
};

// The fewest reshapes and transposes that make `to`, seen as `view`, out of a row-major tensor of shape `from`. The
// view must show every element once. Empty where both are the same.
std::optional<std::vector<Move>> shortest_moves(const StridedView& view, const Shape& from, const Shape& to);

}  // namespace overtake
