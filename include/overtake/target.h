#pragma once
// What a backend tells the passes about itself.

#include <cstdint>
#include <optional>
#include <string_view>

#include "overtake/graph.h"
#include "overtake/matmul_view.h"

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
  // Whether a linear layer with this activation in one kernel is faster than the two.
  virtual bool fuses_linear(std::string_view function) const = 0;
  // The same of a batch norm, which takes relu anywhere.
  virtual bool fuses_batch_norm(std::string_view function) const { return function == "relu"; }
  // Whether the input gradient of a linear layer can be multiplied by this function's derivative on its way out, and
  // whether the backward of a batch norm adds up two gradients on its way in, or adds another to its own on the way
  // out.
  virtual bool fuses_derivative(std::string_view) const { return false; }
  virtual bool fuses_gradient_sums() const { return false; }
  // Whether one product for query, key and value is faster than three.
  virtual bool joins_projections() const { return false; }
  // Whether matrices may lie so for a product, its two gradients included.
  virtual bool takes_product(const MatmulView& view) const { return view.batch.size() <= 2; }
  // Whether matrix products want rows of a multiple of 16 bytes so much that classifiers are padded for it.
  virtual bool pads_classes() const { return false; }
  virtual ImageLayout image_layout(const Graph& graph, const Task& task) const = 0;
  // The layout a forward task wants the image it reads first in, where that is another one than its others'.
  virtual std::optional<Layout> first_image_layout(const Graph&, const Task&) const { return {}; }
  // Whether images may lie inside wider ones, and whether the task takes the channels-last image at this place (reads
  // first, then writes) with rows of pixels so many elements apart, all its other operands being as they are.
  virtual bool shares_concats() const { return false; }
  virtual bool takes_pitch(const Graph&, const Task&, std::size_t, std::int64_t) const { return false; }
  // How the task wants the weight it reads or writes at this place (reads first, then writes); none: as it is stored.
  // A gradient's format is also how the weight itself is stored.
  virtual std::optional<OperandFormat> weight_format(const Graph& graph, const Task& task,
                                                     std::size_t operand) const = 0;
  // Whether the weight gradient of a linear layer can be added to another as it is made.
  virtual bool products_add() const { return false; }
  // Whether the input and weight gradient of a layer, side by side on one lane, run as one task.
  virtual bool joins_gradients() const { return false; }
  // Whether updates write a copy of the weight in another element type as well, and how many elements of weights one
  // update task may take together (0: each weight has its own).
  virtual bool updates_write_copies() const { return false; }
  virtual std::int64_t update_group_elements() const { return 0; }
  virtual std::int64_t scratch_bytes(const Graph& graph, const Task& task) const = 0;
};

}  // namespace overtake
