#pragma once
// What a backend tells the passes about itself.

#include <cstdint>
#include <optional>

#include "graph/graph.h"

namespace overtake {

// How a task wants one of its operands.
struct OperandFormat {
  DType dtype = DType::f32;
  Layout layout;
  bool operator==(const OperandFormat&) const = default;
};

// How an op treats images, [N, C, H, W].
enum class ImageLayout : std::uint8_t {
  channels_last,  // wants and makes channels-last
  follow,         // makes what it is given, all operands alike
  plain           // wants and makes row-major
};

class Target {
 public:
  virtual ~Target() = default;
  // Whether a linear layer with its activation in one kernel is faster than the two.
  virtual bool fuses_linear() const = 0;
  virtual ImageLayout image_layout(const Graph& graph, const Task& task) const = 0;
  // How the task wants the weight it reads or writes at this place (reads first, then writes); none: as it is stored.
  // A gradient's format is also how the weight itself is stored.
  virtual std::optional<OperandFormat> weight_format(const Graph& graph, const Task& task,
                                                     std::size_t operand) const = 0;
  virtual std::int64_t scratch_bytes(const Graph& graph, const Task& task) const = 0;
};

}  // namespace overtake
