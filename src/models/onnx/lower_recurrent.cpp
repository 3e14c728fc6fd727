// LSTM and GRU. ONNX orders gates otherwise than PyTorch (i o f c against i f g o; z r h against r z n) and joins the
// biases; parameters are kept as PyTorch has them, under its names.

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace overtake::onnx {
namespace {

using Dims = std::vector<std::int64_t>;

struct Gates {
  std::vector<std::size_t> place;  // PyTorch's gate i is ONNX's gate place[i]
  Op op;
};

const Gates kLstm = {{0, 2, 3, 1}, Op::lstm};
const Gates kGru = {{1, 0, 2}, Op::gru};

// Blocks of `block` numbers from `first` on, in PyTorch's order.
std::vector<float> reordered(const Constant& c, const Gates& gates, std::size_t first, std::size_t block) {
  std::vector<float> values;
  for (const std::size_t gate : gates.place)
    for (std::size_t i = 0; i < block; ++i) values.push_back(static_cast<float>(c.real_at(first + gate * block + i)));
  return values;
}

void check_form(Call& c, bool is_lstm) {
  if (c.node.text("direction", "forward") != "forward") fail_unsupported_node("in another direction than forward");
  if (c.node.find("activations") != nullptr || c.node.find("clip") != nullptr)
    fail_unsupported_node("with activations of its own or clipping");
  if (is_lstm && c.node.integer("input_forget", 0) != 0) fail_unsupported_node("with coupled gates");
  if (!is_lstm && c.node.integer("linear_before_reset", 0) == 0)
    fail_unsupported_node("with the reset before the product, which is not how PyTorch does it");
  if (c.has(4)) fail_unsupported_node("with lengths of sequences");
  if (c.has(7)) fail_unsupported_node("with peepholes");
  for (const std::size_t i : {5u, 6u}) {
    if (!c.has(i)) continue;
    const Constant& state = c.known(i, "initial state");
    for (std::size_t e = 0; e < static_cast<std::size_t>(state.elements()); ++e)
      if (state.real_at(e) != 0) fail_unsupported_node("with an initial state that is not zero");
  }
}

void recurrent(Call& c) {
  const bool is_lstm = c.node.op == "LSTM";
  check_form(c, is_lstm);
  const Gates& gates = is_lstm ? kLstm : kGru;
  const Dims in = c.dims(0), w = c.dims(1), r = c.dims(2);
  const auto count = static_cast<std::int64_t>(gates.place.size());
  const std::int64_t hidden = r.size() == 3 ? r[2] : 0;
  if (in.size() != 3 || w.size() != 3 || hidden < 1 || w[0] != 1 || w[1] != count * hidden || r[1] != w[1] ||
      w[2] != in[2])
    fail_unsupported_node("of [{}] with weights [{}] and [{}]", fmt::join(in, ", "), fmt::join(w, ", "),
                          fmt::join(r, ", "));

  // A weight that was put together from one of the file has that one's name; else it is called as PyTorch does. Fresh
  // biases are equal, and told by their names.
  const std::string layer = fmt::format("_l{}", c.importer.next_layer_of(c.node.scope));
  const auto original = [&](std::size_t input, const std::string& role, const Dims& dims,
                            std::span<const float> values) -> std::string {
    std::vector<std::string> names;
    for (const Tensor* t : c.importer.roots(c.item(input)))
      if (t->dims == dims && t->type == ElementType::f32 && std::ranges::equal(t->bytes, std::as_bytes(values)))
        names.push_back(t->name);
    const auto own = std::ranges::find_if(names, [&](const std::string& name) { return name.ends_with(role + layer); });
    return own != names.end() ? *own : names.size() == 1 ? names[0] : "";
  };
  const auto parameter = [&](std::size_t input, const char* role, const Dims& dims, const std::vector<float>& values) {
    c.importer.budget().take(std::ssize(values), c.node.label());
    std::string name = original(input, role, dims, values);
    if (name.empty() || c.importer.is_generated_name(name)) name = fmt::format("{}.{}{}", c.name(), role, layer);
    return ParameterChoice{
        .shared = c.importer.parameter({name, name}, shape_of(dims),
                                       owning_tensor(name, StoredType::f32, dims, std::as_bytes(std::span(values))))};
  };
  const auto h = static_cast<std::size_t>(hidden);
  std::vector<ParameterChoice> parameters;
  parameters.push_back(parameter(1, "weight_ih", {w[1], w[2]},
                                 reordered(c.known(1, "weight"), gates, 0, h * static_cast<std::size_t>(w[2]))));
  parameters.push_back(parameter(2, "weight_hh", {w[1], hidden}, reordered(c.known(2, "weight"), gates, 0, h * h)));
  if (c.has(3)) {
    const Constant& b = c.known(3, "bias");
    if (b.elements() != 2 * w[1]) fail_unsupported_node("with a bias of {} numbers", b.elements());
    parameters.push_back(parameter(3, "bias_ih", {w[1]}, reordered(b, gates, 0, h)));
    parameters.push_back(parameter(3, "bias_hh", {w[1]}, reordered(b, gates, static_cast<std::size_t>(w[1]), h)));
  } else {
    const std::vector<float> zeros(static_cast<std::size_t>(w[1]), 0.0f);
    for (const char* role : {"bias_ih", "bias_hh"})
      parameters.push_back({.shared = c.model().constant(Shape{w[1]}, zeros, fmt::format("{}.{}", c.name(), role))});
  }

  // Ours are batch first; [T, B, I] is what PyTorch exports.
  const bool batch_first = c.node.integer("layout", 0) != 0;
  Value x = c.value(0);
  if (!batch_first) x = c.model().transpose(x, {1, 0, 2}, c.name());
  const Value y = c.model().layer(gates.op, {x}, {{"hidden", hidden}}, c.name(), parameters);  // [B, T, H]
  const Shape s = c.model().shape(y);
  const auto wanted = [&](std::size_t i) { return i < c.node.outputs.size() && !c.node.outputs[i].empty(); };
  if (wanted(0))
    c.give(batch_first ? c.reshaped(y, {s[0], s[1], 1, hidden})
                       : c.reshaped(c.model().transpose(y, {1, 0, 2}, c.name()), {s[1], 1, s[0], hidden}));
  if (wanted(1)) {
    const Value last = c.model().slice(y, 1, s[1] - 1, s[1], c.name());
    c.give(c.reshaped(last, batch_first ? Dims{s[0], 1, hidden} : Dims{1, s[0], hidden}), 1);
  }
}

}  // namespace

void add_recurrent(LowerTable& table) { table["LSTM"] = table["GRU"] = recurrent; }

}  // namespace overtake::onnx
