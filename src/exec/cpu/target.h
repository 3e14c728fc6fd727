#pragma once

#include "machine/image_layouts.h"

namespace overtake {

// Images are channels-last; convolution weights lie as oneDNN wants them, in float32 or, beside bfloat16 activations,
// in a bfloat16 copy.
class CpuTarget final : public Target {
 public:
  CpuTarget();
  // Measured: the activation costs the product more than a pass of its own over data that is in cache anyway.
  bool fuses_linear(std::string_view) const override { return false; }
  bool joins_gradients() const override { return true; }
  ImageLayout image_layout(const Graph& graph, const Task& task) const override {
    return channels_last_where_possible(graph, task);
  }
  std::optional<OperandFormat> weight_format(const Graph& graph, const Task& task, std::size_t operand) const override;
  std::int64_t scratch_bytes(const Graph& graph, const Task& task) const override;
};

// Whether the CPU computes in bfloat16 itself.
bool cpu_has_bf16();

}  // namespace overtake
