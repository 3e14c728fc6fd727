// Layers with weights, norms, pooling and reductions.

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace overtake::onnx {
namespace {

using Dims = std::vector<std::int64_t>;

// Windows over images; sequences [N, C, L] are images of one row.
struct Window {
  Dims kernel, stride, dilation, padding;  // [2], [2], [2], [4: top, left, bottom, right]
};

Window window_of(Call& c, const Dims& in, const Dims& kernel) {
  const std::size_t spatial = in.size() - 2;
  Window w{kernel, c.sizes("strides", spatial, 1), c.sizes("dilations", spatial, 1), c.sizes("pads", 2 * spatial, 0)};
  const std::string automatic = c.node.text("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::int64_t size = in[d + 2], stride = std::max<std::int64_t>(w.stride[d], 1);
      const std::int64_t out = (size + stride - 1) / stride;
      const std::int64_t total =
          std::max<std::int64_t>(0, (out - 1) * stride + w.dilation[d] * (kernel[d] - 1) + 1 - size);
      w.padding[d] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.padding[d + spatial] = total - w.padding[d];
    }
  }
  if (spatial == 1) {
    w.kernel.insert(w.kernel.begin(), 1);
    w.stride.insert(w.stride.begin(), 1);
    w.dilation.insert(w.dilation.begin(), 1);
    w.padding = {0, w.padding[0], 0, w.padding[1]};
  }
  return w;
}

// [N, C, L] as [N, C, 1, L]; images stay. Other ranks are not supported.
Value as_image(Call& c, Value x) {
  Dims dims = c.dims_of(x);
  if (dims.size() != 3 && dims.size() != 4)
    fail_unsupported_node("over {} dimensions; one or two are possible", std::ssize(dims) - 2);
  if (dims.size() == 3) dims.insert(dims.begin() + 2, 1);
  return c.reshaped(x, dims);
}

Value back_from_image(Call& c, Value y, std::size_t rank) {
  Dims dims = c.dims_of(y);
  if (rank == 3) dims.erase(dims.begin() + 2);
  return c.reshaped(y, dims);
}

void conv(Call& c) {
  const Dims in = c.dims(0), w = c.dims(1);
  if (in.size() != w.size() || in.size() < 3 || in.size() > 4)
    fail_unsupported_node("of [{}] with a weight [{}]", fmt::join(in, ", "), fmt::join(w, ", "));
  const Window window = window_of(c, in, Dims(w.begin() + 2, w.end()));
  const std::int64_t out = w[0], groups = c.node.integer("group", 1);
  if (groups < 1 || out % groups != 0 || in[1] % groups != 0 || w[1] != in[1] / groups)
    fail_user("{}: {}: {} groups of [{}] with a weight [{}]", c.importer.file().path, c.node.label(), groups,
              fmt::join(in, ", "), fmt::join(w, ", "));
  const Shape shape = groups == 1 ? Shape{out, w[1], window.kernel[0], window.kernel[1]}
                                  : Shape{groups, out / groups, w[1], window.kernel[0], window.kernel[1]};
  const Value weight = c.importer.weight(c.item(1), c.node, "weight", shape);
  const Value bias = c.has(2) ? c.importer.weight(c.item(2), c.node, "bias", Shape{out}) : Value{};
  const Attrs attrs{{"out", out},
                    {"kernel", window.kernel},
                    {"stride", window.stride},
                    {"padding", window.padding},
                    {"dilation", window.dilation},
                    {"groups", groups},
                    {"bias", std::int64_t{c.has(2)}}};
  const Value y =
      c.model().layer(Op::conv2d, {as_image(c, c.value(0))}, attrs, c.name(), {{.shared = weight}, {.shared = bias}});
  c.give(back_from_image(c, y, in.size()));
}

void pool(Call& c) {
  const Dims in = c.dims(0);
  if (in.size() < 3) fail_unsupported_node("of [{}]", fmt::join(in, ", "));
  const Window w = window_of(c, in, c.sizes("kernel_shape", in.size() - 2, 0));
  if (std::ranges::any_of(w.dilation, [](std::int64_t d) { return d != 1; })) fail_unsupported_node("with dilation");
  const Value x = as_image(c, c.value(0));
  const Shape s = c.model().shape(x);
  const bool is_max = c.node.op == "MaxPool";
  const bool is_whole = w.kernel[0] == s[2] && w.kernel[1] == s[3] &&
                        std::ranges::all_of(w.padding, [](std::int64_t p) { return p == 0; });
  if (!is_max && is_whole)
    return c.give(back_from_image(c, c.reshaped(c.model().global_pool(x, c.name()), {s[0], s[1], 1, 1}), in.size()));
  const Attrs attrs{{"kernel", w.kernel},
                    {"stride", w.stride},
                    {"padding", w.padding},
                    {"ceil", c.node.integer("ceil_mode", 0)},
                    {"count_include_pad", c.node.integer("count_include_pad", 0)}};
  c.give(back_from_image(c, c.model().layer(is_max ? Op::max_pool : Op::avg_pool, {x}, attrs, c.name()), in.size()));
}

void global_pool(Call& c) {
  const Dims in = c.dims(0);
  const Value x = as_image(c, c.value(0));
  Dims out(in.size(), 1);
  std::copy_n(in.begin(), 2, out.begin());
  c.give(c.reshaped(c.model().global_pool(x, c.name()), out));
}

void reduce(Call& c) {
  const Dims in = c.dims(0);
  Dims axes = c.axes(1, in.size());
  if (axes.empty()) {
    if (c.node.integer("noop_with_empty_axes", 0) != 0) return c.pass(0);
    for (std::size_t i = 0; i < in.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  }
  Dims out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const bool is_gone = std::ranges::find(axes, static_cast<std::int64_t>(i)) != axes.end();
    if (!is_gone) out.push_back(in[i]);
    if (is_gone && c.node.integer("keepdims", 1) != 0) out.push_back(1);
  }
  Value x = c.value(0);
  const bool is_mean = c.node.op == "ReduceMean", is_norm = c.node.op == "ReduceL2";
  if (is_norm) x = c.model().mul(x, x, c.name());
  Value y;
  if (is_mean && in.size() == 4 && axes == Dims{2, 3})
    y = c.model().global_pool(x, c.name());
  else
    y = is_mean ? c.model().reduce_mean(x, axes, c.name()) : c.model().reduce_sum(x, axes, c.name());
  if (is_norm) y = c.model().activation(y, "sqrt", c.name());
  c.give(c.reshaped(y, out));
}

bool is_matrix_of_file(const Item& x, const Dims& dims) { return x.kind == Item::Kind::weight && dims.size() == 2; }

// x times a parameter [in, out]: one that another layer has as its [out, in].
Value turned_product(Call& c, Value x, Value parameter) {
  return c.model().matmul(x, parameter, false, false, c.name());
}

void gemm(Call& c) {
  if (c.node.integer("transA", 0) != 0 || c.node.real("alpha", 1) != 1 || (c.has(2) && c.node.real("beta", 1) != 1))
    fail_unsupported_node("with transA, or alpha or beta other than 1");
  const Dims in = c.dims(0), b = c.dims(1);
  const bool is_transposed = c.node.integer("transB", 0) != 0;
  if (in.size() != 2 || b.size() != 2) fail_unsupported_node("of other than matrices");
  const std::int64_t out = b[is_transposed ? 0 : 1];
  const Value x = c.value(0);
  if (!is_matrix_of_file(c.item(1), b)) {
    const Value y = c.model().matmul(x, c.value(1), false, is_transposed, c.name());
    return c.give(c.has(2) ? c.model().add(y, c.value(2, "bias"), c.name()) : y);
  }
  const Importer::Placed weight = c.importer.linear_weight(c.item(1), c.node, !is_transposed);
  const bool has_own_bias = c.has(2) && c.dims(2) == Dims{out} && c.item(2).kind != Item::Kind::runtime;
  const Value bias = has_own_bias ? c.importer.weight(c.item(2), c.node, "bias", Shape{out}) : Value{};
  if (weight.is_turned) {
    const Value y = turned_product(c, x, weight.value);
    return c.give(c.has(2) ? c.model().add(y, has_own_bias ? bias : c.value(2, "bias"), c.name()) : y);
  }
  const Value y = c.model().linear(x, weight.value, has_own_bias ? std::optional(bias) : std::nullopt, c.name());
  c.give(c.has(2) && !has_own_bias ? c.model().add(y, c.value(2, "bias"), c.name()) : y);
}

// Leading dimensions of both factors, broadcast against each other.
Value with_leading(Call& c, Value x, const Dims& leading) {
  Dims dims = c.dims_of(x);
  Dims to = leading;
  to.insert(to.end(), dims.end() - 2, dims.end());
  check_dims(to);
  return dims == to ? x : c.model().expand(x, to, c.name());
}

void matmul(Call& c) {
  const Dims a = c.dims(0), b = c.dims(1);
  if (is_matrix_of_file(c.item(1), b) && !a.empty()) {
    const Importer::Placed weight = c.importer.linear_weight(c.item(1), c.node, true);
    const Value x = c.value(0);
    return c.give(weight.is_turned ? turned_product(c, x, weight.value)
                                   : c.model().linear(x, weight.value, {}, c.name()));
  }
  if (a.size() < 2 || b.size() < 2) fail_unsupported_node("of a vector");
  Value x = c.value(0), y = c.value(1);
  const bool fits = b.size() == 2 || (a.size() == b.size() && std::equal(a.begin(), a.end() - 2, b.begin()));
  if (!fits) {
    Dims leading(std::max(a.size(), b.size()) - 2, 1);
    for (const Dims* factor : {&a, &b}) {
      const std::size_t missing = leading.size() + 2 - factor->size();
      for (std::size_t i = 0; i + 2 < factor->size(); ++i) {
        std::int64_t& d = leading[missing + i];
        if (d != 1 && (*factor)[i] != 1 && d != (*factor)[i])
          fail_unsupported_node("of [{}] and [{}]", fmt::join(a, ", "), fmt::join(b, ", "));
        d = std::max(d, (*factor)[i]);
      }
    }
    x = with_leading(c, x, leading);
    y = with_leading(c, y, leading);
  }
  c.give(c.model().matmul(x, y, false, false, c.name()));
}

// One that is in evaluation mode while the rest of the model is trained: statistics are numbers like others there.
void fixed_batch_norm(Call& c, const Dims& in, Value gamma, Value beta) {
  Model& m = c.model();
  const Shape channels = {in[1]};
  const Value mean = c.importer.weight(c.item(3), c.node, "running_mean", channels);
  const Value variance = c.importer.weight(c.item(4), c.node, "running_var", channels);
  const Value shifted = m.add(variance, c.number(static_cast<double>(c.node.real("epsilon", 1e-5f))), c.name());
  const Value rate = m.activation(m.activation(shifted, "sqrt", c.name()), "reciprocal", c.name());
  Dims per_channel(in.size() - 1, 1);
  per_channel[0] = in[1];
  const auto over_image = [&](Value v) { return c.reshaped(v, per_channel); };
  const Value centred = m.add(c.value(0), over_image(c.scaled(mean, -1)), c.name());
  const Value normal = m.mul(centred, over_image(rate), c.name());
  c.give(m.add(m.mul(normal, over_image(gamma), c.name()), over_image(beta), c.name()));
}

void batch_norm(Call& c) {
  const Dims in = c.dims(0);
  if (in.size() < 2 || in.size() > 4) fail_unsupported_node("of [{}]", fmt::join(in, ", "));
  Dims image = in;
  image.resize(4, 1);
  const Shape channels = {in[1]};
  const Value gamma = c.importer.weight(c.item(1), c.node, "weight", channels);
  const Value beta = c.importer.weight(c.item(2), c.node, "bias", channels);
  if (c.importer.is_of_training() && !is_training_norm(c.node)) return fixed_batch_norm(c, in, gamma, beta);
  const Value mean = c.importer.state(c.item(3), c.node, "running_mean", channels);
  const Value variance = c.importer.state(c.item(4), c.node, "running_var", channels);
  if (c.node.real("momentum", 0.9f) == 0)
    fail_unsupported_node(
        "running statistics that are the average over all batches (momentum=None), or of the last one alone; give it a "
        "momentum");
  // An evaluation-mode file is trained all the same: normalised by the batch, the statistics running.
  const Attrs attrs{{"eps", static_cast<double>(c.node.real("epsilon", 1e-5f))},
                    {"momentum", 1.0 - static_cast<double>(c.node.real("momentum", 0.9f))},
                    {"function", std::string("none")},
                    {"training", std::int64_t{1}}};
  const Value y = c.model().layer(Op::batch_norm, {c.reshaped(c.value(0), image), Value{}}, attrs, c.name(),
                                  {{.shared = gamma}, {.shared = beta}, {.shared = mean}, {.shared = variance}});
  c.give(c.reshaped(y, in));
}

Value filled(Call& c, std::int64_t count, float value, const char* role) {
  c.importer.budget().take(count, c.node.label());
  const std::vector<float> values(static_cast<std::size_t>(count), value);
  return c.model().constant(Shape{count}, values, fmt::format("{}.{}", c.name(), role));
}

void layer_norm(Call& c) {
  const Dims in = c.dims(0);
  const std::int64_t axis = c.axis(c.node.integer("axis", -1), in.size());
  Dims rows(in.begin(), in.begin() + axis);
  std::int64_t width = 1;
  for (auto i = static_cast<std::size_t>(axis); i < in.size(); ++i) width *= in[i];
  rows.push_back(width);
  const Value gamma = c.importer.weight(c.item(1), c.node, "weight", Shape{width});
  const Value beta =
      c.has(2) ? c.importer.weight(c.item(2), c.node, "bias", Shape{width}) : filled(c, width, 0, "bias");
  const double eps = static_cast<double>(c.node.real("epsilon", 1e-5f));
  const Value y = c.model().layer(Op::layer_norm, {c.reshaped(c.value(0), rows)}, {{"eps", eps}}, c.name(),
                                  {{.shared = gamma}, {.shared = beta}});
  c.give(c.reshaped(y, in));
}

void group_norm(Call& c) {
  const Dims in = c.dims(0);
  if (in.size() < 3) fail_unsupported_node("of [{}]", fmt::join(in, ", "));
  const std::int64_t groups = c.node.integer("num_groups", 1), channels = in[1];
  if (c.dims(1) != Dims{channels} || c.dims(2) != Dims{channels})
    fail_unsupported_node("with a scale per group instead of per channel");
  const Value gamma = c.importer.weight(c.item(1), c.node, "weight", Shape{channels});
  const Value beta = c.importer.weight(c.item(2), c.node, "bias", Shape{channels});
  const Attrs attrs{{"eps", static_cast<double>(c.node.real("epsilon", 1e-5f))}, {"groups", groups}};
  const Value y = c.model().layer(Op::group_norm, {as_image(c, c.value(0))}, attrs, c.name(),
                                  {{.shared = gamma}, {.shared = beta}});
  c.give(back_from_image(c, y, in.size()));
}

// Whether an input is `value` throughout and stays so: it does nothing.
bool is_all(Call& c, std::size_t i, double value) {
  const Item& x = c.item(i);
  if (x.kind != Item::Kind::known && x.kind != Item::Kind::weight) return false;
  if (x.kind == Item::Kind::weight && !c.importer.is_generated_name(x.tensor->name) &&
      c.importer.is_parameter(x, c.node, i))
    return false;
  const Constant& k = c.known(i, "scale");
  for (std::size_t e = 0; e < static_cast<std::size_t>(k.elements()); ++e)
    if (k.real_at(e) != value) return false;
  return true;
}

// Per sample and channel, over all places. Group norm comes as this, over groups reshaped to channels, with a scale of
// ones; `recognise` puts it together again.
void instance_norm(Call& c) {
  const Dims in = c.dims(0);
  if (in.size() < 3) fail_unsupported_node("of [{}]", fmt::join(in, ", "));
  std::int64_t places = 1;
  for (std::size_t i = 2; i < in.size(); ++i) places *= in[i];
  const double eps = static_cast<double>(c.node.real("epsilon", 1e-5f));
  const Value rows = c.reshaped(c.value(0), {in[0], in[1], places});
  Value y = c.model().layer(Op::layer_norm, {rows}, {{"eps", eps}}, c.name(),
                            {{.shared = filled(c, places, 1, "ones")}, {.shared = filled(c, places, 0, "zeros")}});
  y = c.reshaped(y, in);
  const bool is_plain = is_all(c, 1, 1) && is_all(c, 2, 0);
  if (is_plain) return c.give(y);
  Dims per_channel(in.size() - 1, 1);
  per_channel[0] = in[1];
  const Value gamma = c.importer.weight(c.item(1), c.node, "weight", Shape{in[1]});
  const Value beta = c.importer.weight(c.item(2), c.node, "bias", Shape{in[1]});
  y = c.model().mul(y, c.reshaped(gamma, per_channel), c.name());
  c.give(c.model().add(y, c.reshaped(beta, per_channel), c.name()));
}

}  // namespace

void add_layers(LowerTable& table) {
  table["Conv"] = conv;
  table["MaxPool"] = table["AveragePool"] = pool;
  table["GlobalAveragePool"] = global_pool;
  table["ReduceMean"] = table["ReduceSum"] = table["ReduceL2"] = reduce;
  table["Gemm"] = gemm;
  table["MatMul"] = matmul;
  table["BatchNormalization"] = batch_norm;
  table["LayerNormalization"] = layer_norm;
  table["GroupNormalization"] = group_norm;
  table["InstanceNormalization"] = instance_norm;
}

}  // namespace overtake::onnx
