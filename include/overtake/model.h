#pragma once
// Model: builds the forward graph of a network, op by op. Shapes are checked as it grows; an error names the layer.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "overtake/graph.h"

namespace overtake {

struct ParameterForm;  // what an op says of one of its parameters

// A tensor of the model being built.
struct Value {
  BufferId id = kNone;
};

struct Conv2d {
  std::int64_t out = 1;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  // Kernel and padding that are not square: {height, width} and {top, left, bottom, right}.
  std::vector<std::int64_t> kernel_hw = {};
  std::vector<std::int64_t> padding_tlbr = {};
  std::vector<std::int64_t> stride_hw = {};    // {down, across}
  std::vector<std::int64_t> dilation_hw = {};  // {down, across}
  // How weight and bias start; absent: as PyTorch does.
  std::optional<Init> weight_init = {};
  std::optional<Init> bias_init = {};
};

struct Pool2d {
  std::int64_t kernel = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
  bool ceil = false;
  bool count_include_pad = true;
};

struct Linear {
  std::int64_t out = 1;
  bool bias = true;
  std::string function = "";  // an activation applied to the result; empty: none
  // How weight and bias start; absent: as PyTorch does.
  std::optional<Init> weight_init = {};
  std::optional<Init> bias_init = {};
  bool stored_transposed = false;  // files keep the weight as [in, out]
};

struct Attention {
  std::int64_t heads = 1;
  bool causal = false;
  double scale = 0;  // 0: 1 / sqrt of a head's width
};

struct Norm {
  double eps = 1e-5;
  double momentum = 0.1;    // batch norm: weight of the new statistics
  std::int64_t groups = 1;  // group norm
};

// What a layer does with one of its parameters: takes a tensor that is there already, or makes its own.
struct ParameterChoice {
  Value shared = {};               // a parameter or constant; absent: one of its own
  std::optional<Init> init = {};   // how its own starts; absent: as the op says
  bool stored_transposed = false;  // files keep its own as [columns, rows]
};

struct CrossEntropy {
  double smoothing = 0;
  std::int64_t ignore_index = -100;
};

// Every method adds one layer. `name` is the layer's; empty: the op's name and a number. Parameters are named
// "<layer>.weight" and so on, as PyTorch does.
class Model {
 public:
  Model(std::string name, std::int64_t batch);

  std::int64_t batch() const { return batch_; }
  const Shape& shape(Value x) const { return graph_.buffers[x.id].shape; }
  DType dtype(Value x) const { return graph_.buffers[x.id].dtype; }

  // What the host provides, each [batch, ...].
  Value input(std::vector<std::int64_t> sample_shape, const std::string& name = "input");    // float
  Value tokens(std::vector<std::int64_t> sample_shape, const std::string& name = "tokens");  // int32 ids
  Value mask(std::vector<std::int64_t> sample_shape, const std::string& name = "mask");      // uint8, 0 = hidden

  Value linear(Value x, const Linear& options, const std::string& name = "");
  // With weights that are there already ([out, in] and [out]); without a bias: none.
  Value linear(Value x, Value weight, std::optional<Value> bias, const std::string& name = "");
  Value matmul(Value a, Value b, bool trans_a = false, bool trans_b = false, const std::string& name = "");
  Value conv2d(Value x, const Conv2d& options, const std::string& name = "");
  Value batch_norm(Value x, const Norm& options = {}, const std::string& name = "");
  Value layer_norm(Value x, const Norm& options = {}, const std::string& name = "");
  Value group_norm(Value x, const Norm& options, const std::string& name = "");
  Value activation(Value x, const std::string& function, const std::string& name = "");
  Value clip(Value x, double low, double high, const std::string& name = "");
  Value relu(Value x, const std::string& name = "") { return activation(x, "relu", name); }
  Value gelu(Value x, const std::string& name = "") { return activation(x, "gelu", name); }
  Value add(Value a, Value b, const std::string& name = "");
  Value mul(Value a, Value b, const std::string& name = "");
  Value concat(const std::vector<Value>& xs, std::int64_t axis, const std::string& name = "");
  Value slice(Value x, std::int64_t axis, std::int64_t begin, std::int64_t end, const std::string& name = "");
  Value reshape(Value x, std::vector<std::int64_t> shape, const std::string& name = "");
  Value flatten(Value x, const std::string& name = "");  // [N, ...] -> [N, rest]
  Value transpose(Value x, std::vector<std::int64_t> order, const std::string& name = "");
  Value max_pool(Value x, const Pool2d& options = {}, const std::string& name = "");
  Value avg_pool(Value x, const Pool2d& options = {}, const std::string& name = "");
  Value global_pool(Value x, const std::string& name = "");
  // Averages over out_h x out_w windows that cover the image, as PyTorch's AdaptiveAvgPool2d.
  Value adaptive_pool(Value x, std::int64_t out_h, std::int64_t out_w, const std::string& name = "");
  // Sum or mean over axes, which are gone from the result.
  Value reduce_sum(Value x, const std::vector<std::int64_t>& axes, const std::string& name = "");
  Value reduce_mean(Value x, const std::vector<std::int64_t>& axes, const std::string& name = "");
  // numpy's broadcast_to.
  Value expand(Value x, const std::vector<std::int64_t>& shape, const std::string& name = "");
  Value softmax(Value x, std::int64_t axis, const std::string& name = "");
  Value attention(Value q, Value k, Value v, const Attention& options, std::optional<Value> mask = {},
                  const std::string& name = "");
  Value attention(Value qkv, const Attention& options, std::optional<Value> mask = {}, const std::string& name = "");
  Value embedding(Value tokens, std::int64_t vocabulary, std::int64_t width, double init_std = 1.0,
                  const std::string& name = "");
  Value embedding(Value tokens, Value table, const std::string& name = "");
  // A trained tensor of its own: position embeddings, or weights that several layers share.
  Value parameter(std::vector<std::int64_t> shape, const Init& init, const std::string& name,
                  bool stored_transposed = false, std::optional<Shape> stored_shape = {});
  // What a layer keeps from step to step without training it: running statistics.
  Value state(const Shape& shape, const Init& init, const std::string& name);
  // The parameter of that name, "fc.weight"; a user error if there is none yet.
  Value parameter(const std::string& name) const;
  // Numbers that are part of the model and never change.
  Value constant(const Shape& shape, std::span<const float> values, const std::string& name);
  Value constant(const Shape& shape, std::span<const std::int32_t> values, const std::string& name);
  // x itself, of which no layer learns: PyTorch's detach().
  Value stop_gradient(Value x, const std::string& name = "");
  Value dropout(Value x, double p, const std::string& name = "");
  Value lstm(Value x, std::int64_t hidden, const std::string& name = "");
  Value gru(Value x, std::int64_t hidden, const std::string& name = "");
  // Any op by its attributes (see its file in src/ops/); `parameters` in the op's order, own ones where the list ends.
  Value layer(Op op, const std::vector<Value>& inputs, const Attrs& attrs, const std::string& name = "",
              const std::vector<ParameterChoice>& parameters = {});

  // Losses. They add the inputs "labels" (int32) and "targets" (float) of the shape that fits.
  void cross_entropy(Value logits, const CrossEntropy& options = {}, const std::string& name = "loss");
  void mean_squared_error(Value prediction, const std::string& name = "loss");

  // The forward graph; a user error if there is no loss.
  Graph finish() &&;

 private:
  // The buffer of one parameter of a layer: its own, a shared one, or kNone where the layer has none.
  BufferId parameter_of(const ParameterForm& form, const ParameterChoice& choice, const std::string& layer);
  Value constant_of(const Shape& shape, DType dtype, std::span<const std::byte> bytes, const std::string& name);
  Value host_input(const std::vector<std::int64_t>& sample_shape, DType dtype, const std::string& name);

  Graph graph_;
  std::int64_t batch_;
  std::int64_t dropouts_ = 0;
  std::vector<std::uint32_t> layers_of_op_;
};

}  // namespace overtake
