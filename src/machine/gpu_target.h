#pragma once

#include "machine/image_layouts.h"

namespace overtake {

// What GPUs have in common, as far as it can be said without one at hand: what simulated ones are planned with.
// Images are channels-last, convolution weights [O][kh][kw][C] in memory; where an input has few channels (RGB), both
// are padded with zeros to 8, for which libraries have far better kernels. Beside bfloat16 activations, weights have a
// bfloat16 copy, and the gradients of matrices that libraries compute are bfloat16 too (their sums are float32).
class GpuTarget : public Target {
 public:
  // What cuBLASLt does on the way out.
  bool fuses_linear(std::string_view function) const override { return function == "relu" || function == "gelu_tanh"; }
  bool fuses_batch_norm(std::string_view function) const override {
    return function == "relu" || function == "hard_swish" || function == "silu";
  }
  bool fuses_derivative(std::string_view function) const override { return function == "gelu_tanh"; }
  bool fuses_gradient_sums() const override { return true; }
  bool products_add() const override { return true; }
  bool joins_projections() const override { return true; }
  bool takes_product(const MatmulView& view) const override;
  bool pads_classes() const override { return true; }
  ImageLayout image_layout(const Graph& graph, const Task& task) const override {
    return channels_last_where_possible(graph, task);
  }
  std::optional<Layout> first_image_layout(const Graph& graph, const Task& task) const override;
  bool shares_concats() const override { return true; }
  bool takes_pitch(const Graph& graph, const Task& task, std::size_t operand, std::int64_t pitch) const override;
  std::optional<OperandFormat> weight_format(const Graph& graph, const Task& task, std::size_t operand) const override;
  bool updates_write_copies() const override { return true; }
  // Enough that launches do not count, few enough that gradients do not stay long.
  std::int64_t update_group_elements() const override { return std::int64_t{8} << 20; }
  std::int64_t scratch_bytes(const Graph&, const Task&) const override { return 0; }
};

// How convolution weights lie beside an image x.
Layout conv_filter_layout(const Buffer& x, const Buffer& weight);

}  // namespace overtake
