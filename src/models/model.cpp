#include "overtake/model.h"

#include <algorithm>

#include <algorithm>

#include "base/error.h"
#include "graph/countable.h"
#include "ops/op.h"

namespace overtake {
namespace {

std::vector<std::int64_t> pair(std::int64_t x) { return {x, x}; }

Attrs pool_attrs(const Pool2d& o) {
  return {{"kernel", pair(o.kernel)},
          {"stride", pair(o.stride)},
          {"padding", std::vector<std::int64_t>(4, o.padding)},
          {"ceil", std::int64_t{o.ceil}},
          {"count_include_pad", std::int64_t{o.count_include_pad}}};
}

Attrs attention_attrs(const Attention& o) {
  Attrs attrs{{"heads", o.heads}, {"causal", std::int64_t{o.causal}}};
  if (o.scale != 0) attrs.set("scale", o.scale);
  return attrs;
}

// Networks have thousands of layers at most; what plans one would take hours for more.
constexpr std::size_t kMostTasks = 1 << 15;

}  // namespace

Model::Model(std::string name, std::int64_t batch) : batch_(batch), layers_of_op_(kOpCount, 0) {
  if (batch < 1) fail_user("model {}: a batch of {}; it must be at least 1", name, batch);
  graph_.model = std::move(name);
}

Value Model::host_input(const std::vector<std::int64_t>& sample_shape, DType dtype, const std::string& name) {
  Shape shape = {batch_};
  if (sample_shape.size() + 1 > Shape::kMaxRank)
    fail_user("model {}: input {} has {} dimensions; at most {} are possible", graph_.model, name,
              sample_shape.size() + 1, Shape::kMaxRank);
  for (const std::int64_t d : sample_shape) {
    if (d < 1) fail_user("model {}: input {} has a dimension of {}; all must be at least 1", graph_.model, name, d);
    shape.dims[shape.rank++] = d;
  }
  return {graph_.add_buffer(name, shape, dtype, Role::input)};
}

Value Model::input(std::vector<std::int64_t> s, const std::string& name) { return host_input(s, DType::f32, name); }
Value Model::tokens(std::vector<std::int64_t> s, const std::string& name) { return host_input(s, DType::i32, name); }
Value Model::mask(std::vector<std::int64_t> s, const std::string& name) { return host_input(s, DType::u8, name); }

Value Model::layer(Op op, const std::vector<Value>& inputs, const Attrs& attrs, const std::string& given_name,
                   const std::vector<ParameterChoice>& parameters) {
  if (graph_.tasks.size() >= kMostTasks)
    fail_user("model {}: it would have more than {} operations; lower the settings", graph_.model, kMostTasks);
  const std::uint32_t number = ++layers_of_op_[static_cast<std::size_t>(op)];
  const std::string name = given_name.empty() ? fmt::format("{}{}", to_string(op), number) : given_name;
  std::vector<TensorType> types;
  std::vector<BufferId> reads, writes;
  for (const Value& x : inputs) {
    OVERTAKE_CHECK(x.id == kNone || x.id < graph_.buffers.size(), "layer {}: a value of another model", name);
    types.push_back(x.id == kNone ? TensorType{{}, DType::f32, false}
                                  : TensorType{graph_.buffers[x.id].shape, graph_.buffers[x.id].dtype});
    reads.push_back(x.id);
  }

  OpForm form;
  try {
    form = traits(op).form(types, attrs);
  } catch (const ShapeError& e) {
    fail_user("model {}: layer '{}' ({}): {}; change the layer or what feeds it", graph_.model, name, to_string(op),
              e.what());
  }

  const auto check_size = [&](const Shape& s) {
    if (!is_countable(s))
      fail_user("model {}: layer '{}' ({}): a tensor of {} is too large; lower the settings", graph_.model, name,
                to_string(op), to_string(s));
  };
  for (const OutputForm& out : form.outputs) check_size(out.shape);
  for (const ParameterForm& p : form.parameters) check_size(p.shape);
  const LayerId id = graph_.add_layer(name);
  for (const OutputForm& out : form.outputs)
    writes.push_back(graph_.add_buffer(out.suffix.empty() ? name : fmt::format("{}.{}", name, out.suffix), out.shape,
                                       out.dtype, out.role));
  for (std::size_t i = 0; i < form.parameters.size(); ++i) {
    const ParameterForm& p = form.parameters[i];
    const BufferId b = parameter_of(p, i < parameters.size() ? parameters[i] : ParameterChoice{}, name);
    reads.push_back(b);
    if (p.role == Role::state) writes.push_back(b);
  }
  graph_.add_task(Kind::forward, op, id, graph_.add_attrs(attrs), reads, writes);
  return {writes[0]};
}

BufferId Model::parameter_of(const ParameterForm& form, const ParameterChoice& choice, const std::string& layer) {
  if (form.suffix.empty()) return kNone;
  if (choice.shared.id != kNone) {
    const Buffer& b = graph_.buffers[choice.shared.id];
    if (b.shape != form.shape)
      fail_user("model {}: layer '{}': its {} must be {}, but {} is {}; give it one of that shape", graph_.model, layer,
                form.suffix, to_string(form.shape), graph_.buffer_name(choice.shared.id), to_string(b.shape));
    return choice.shared.id;
  }
  const BufferId b = graph_.add_buffer(fmt::format("{}.{}", layer, form.suffix), form.shape, DType::f32, form.role);
  graph_.parameters.push_back(
      {.buffer = b, .init = choice.init.value_or(form.init), .stored_transposed = choice.stored_transposed});
  return b;
}

Value Model::linear(Value x, const Linear& o, const std::string& name) {
  Attrs attrs{{"out", o.out}, {"bias", std::int64_t{o.bias}}};
  if (!o.function.empty()) attrs.set("function", o.function);
  return layer(Op::linear, {x}, attrs, name,
               {{.init = o.weight_init, .stored_transposed = o.stored_transposed}, {.init = o.bias_init}});
}

Value Model::linear(Value x, Value weight, std::optional<Value> bias, const std::string& name) {
  const Shape& w = shape(weight);
  const std::int64_t out = w.rank == 2 ? w[0] : 1;  // another rank: the layer says so
  return layer(Op::linear, {x}, {{"out", out}, {"bias", std::int64_t{bias.has_value()}}}, name,
               {{.shared = weight}, {.shared = bias.value_or(Value{})}});
}

Value Model::matmul(Value a, Value b, bool trans_a, bool trans_b, const std::string& name) {
  return layer(Op::matmul, {a, b}, {{"trans_a", std::int64_t{trans_a}}, {"trans_b", std::int64_t{trans_b}}}, name);
}

Value Model::conv2d(Value x, const Conv2d& o, const std::string& name) {
  const auto pair_or = [&](const std::vector<std::int64_t>& given, std::int64_t both) {
    OVERTAKE_CHECK(given.empty() || given.size() == 2, "layer {}: {} entries instead of height and width", name,
                   given.size());
    return given.empty() ? pair(both) : given;
  };
  OVERTAKE_CHECK(o.padding_tlbr.empty() || o.padding_tlbr.size() == 4, "layer {}: padding_tlbr has 4 entries", name);
  Attrs attrs{{"out", o.out},
              {"kernel", pair_or(o.kernel_hw, o.kernel)},
              {"stride", pair_or(o.stride_hw, o.stride)},
              {"padding", o.padding_tlbr.empty() ? std::vector<std::int64_t>(4, o.padding) : o.padding_tlbr},
              {"dilation", pair_or(o.dilation_hw, o.dilation)},
              {"groups", o.groups},
              {"bias", std::int64_t{o.bias}}};
  return layer(Op::conv2d, {x}, attrs, name, {{.init = o.weight_init}, {.init = o.bias_init}});
}

Value Model::batch_norm(Value x, const Norm& o, const std::string& name) {
  const Attrs attrs{
      {"eps", o.eps}, {"momentum", o.momentum}, {"function", std::string("none")}, {"training", std::int64_t{1}}};
  return layer(Op::batch_norm, {x, Value{}}, attrs, name);
}

Value Model::layer_norm(Value x, const Norm& o, const std::string& name) {
  return layer(Op::layer_norm, {x}, {{"eps", o.eps}}, name);
}

Value Model::group_norm(Value x, const Norm& o, const std::string& name) {
  return layer(Op::group_norm, {x}, {{"eps", o.eps}, {"groups", o.groups}}, name);
}

Value Model::activation(Value x, const std::string& function, const std::string& name) {
  return layer(Op::activation, {x}, {{"function", function}}, name);
}

Value Model::add(Value a, Value b, const std::string& name) { return layer(Op::add, {a, b}, {}, name); }
Value Model::mul(Value a, Value b, const std::string& name) { return layer(Op::mul, {a, b}, {}, name); }

Value Model::concat(const std::vector<Value>& xs, std::int64_t axis, const std::string& name) {
  OVERTAKE_CHECK(!xs.empty(), "layer {}: concat of nothing", name);
  return layer(Op::concat, xs, {{"axis", axis}}, name);
}

Value Model::slice(Value x, std::int64_t axis, std::int64_t begin, std::int64_t end, const std::string& name) {
  return layer(Op::slice, {x}, {{"axis", axis}, {"begin", begin}, {"end", end}}, name);
}

Value Model::reshape(Value x, std::vector<std::int64_t> to, const std::string& name) {
  return layer(Op::reshape, {x}, {{"shape", std::move(to)}}, name);
}

Value Model::flatten(Value x, const std::string& name) { return reshape(x, {shape(x)[0], -1}, name); }

Value Model::transpose(Value x, std::vector<std::int64_t> order, const std::string& name) {
  return layer(Op::transpose, {x}, {{"order", std::move(order)}}, name);
}

Value Model::max_pool(Value x, const Pool2d& o, const std::string& name) {
  return layer(Op::max_pool, {x}, pool_attrs(o), name);
}
Value Model::avg_pool(Value x, const Pool2d& o, const std::string& name) {
  return layer(Op::avg_pool, {x}, pool_attrs(o), name);
}
Value Model::adaptive_pool(Value x, std::int64_t out_h, std::int64_t out_w, const std::string& name) {
  return layer(Op::adaptive_pool, {x}, {{"size", std::vector<std::int64_t>{out_h, out_w}}}, name);
}

Value Model::reduce_sum(Value x, const std::vector<std::int64_t>& axes, const std::string& name) {
  return layer(Op::reduce, {x}, {{"axes", axes}, {"scale", 1.0}}, name);
}
Value Model::reduce_mean(Value x, const std::vector<std::int64_t>& axes, const std::string& name) {
  const Shape& s = shape(x);
  double count = 1;
  for (const std::int64_t axis : axes)
    if (axis >= 0 && axis < s.rank) count *= static_cast<double>(s[static_cast<std::size_t>(axis)]);
  return layer(Op::reduce, {x}, {{"axes", axes}, {"scale", 1.0 / count}}, name);
}
Value Model::expand(Value x, const std::vector<std::int64_t>& to, const std::string& name) {
  return layer(Op::expand, {x}, {{"shape", to}}, name);
}
Value Model::clip(Value x, double low, double high, const std::string& name) {
  return layer(Op::activation, {x}, {{"function", std::string("clip")}, {"min", low}, {"max", high}}, name);
}

Value Model::stop_gradient(Value x, const std::string& name) { return layer(Op::stop_gradient, {x}, {}, name); }

Value Model::global_pool(Value x, const std::string& name) { return layer(Op::global_pool, {x}, {}, name); }
Value Model::softmax(Value x, std::int64_t axis, const std::string& name) {
  return layer(Op::softmax, {x}, {{"axis", axis}}, name);
}

Value Model::attention(Value q, Value k, Value v, const Attention& o, std::optional<Value> mask,
                       const std::string& name) {
  return layer(Op::attention, {q, k, v, mask.value_or(Value{})}, attention_attrs(o), name);
}
Value Model::attention(Value qkv, const Attention& o, std::optional<Value> mask, const std::string& name) {
  return layer(Op::attention, {qkv, Value{}, Value{}, mask.value_or(Value{})}, attention_attrs(o), name);
}

Value Model::embedding(Value tokens, std::int64_t vocabulary, std::int64_t width, double init_std,
                       const std::string& name) {
  return layer(Op::embedding, {tokens}, {{"vocabulary", vocabulary}, {"width", width}}, name,
               {{.init = Init{Init::Kind::normal, init_std}}});
}

Value Model::embedding(Value tokens, Value table, const std::string& name) {
  const Shape& t = shape(table);
  return layer(Op::embedding, {tokens}, {{"vocabulary", t[0]}, {"width", t.rank == 2 ? t[1] : 1}}, name,
               {{.shared = table}});
}

Value Model::parameter(std::vector<std::int64_t> dims, const Init& init, const std::string& name,
                       bool stored_transposed, std::optional<Shape> stored_shape) {
  const BufferId b = graph_.add_buffer(name, Shape(dims), DType::f32, Role::weight);
  graph_.parameters.push_back(
      {.buffer = b, .init = init, .stored_transposed = stored_transposed, .stored_shape = std::move(stored_shape)});
  return {b};
}

Value Model::state(const Shape& shape, const Init& init, const std::string& name) {
  const BufferId b = graph_.add_buffer(name, shape, DType::f32, Role::state);
  graph_.parameters.push_back({.buffer = b, .init = init});
  return {b};
}

Value Model::parameter(const std::string& name) const {
  for (const Parameter& p : graph_.parameters)
    if (graph_.buffer_name(p.buffer) == name) return {p.buffer};
  fail_user("model {}: no parameter '{}' to share; name an earlier layer's", graph_.model, name);
}

Value Model::constant_of(const Shape& shape, DType dtype, std::span<const std::byte> bytes, const std::string& name) {
  OVERTAKE_CHECK(shape.elements() * bytes_of(dtype) == std::ssize(bytes), "constant {}: {} bytes for {}", name,
                 bytes.size(), to_string(shape));
  const BufferId b = graph_.add_buffer(name, shape, dtype, Role::constant);
  graph_.constants.push_back({b, std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end())});
  return {b};
}

Value Model::constant(const Shape& shape, std::span<const float> values, const std::string& name) {
  return constant_of(shape, DType::f32, std::as_bytes(values), name);
}
Value Model::constant(const Shape& shape, std::span<const std::int32_t> values, const std::string& name) {
  return constant_of(shape, DType::i32, std::as_bytes(values), name);
}

Value Model::dropout(Value x, double p, const std::string& name) {
  return layer(Op::dropout, {x}, {{"p", p}, {"salt", dropouts_++}, {"training", std::int64_t{1}}}, name);
}

Value Model::lstm(Value x, std::int64_t hidden, const std::string& name) {
  return layer(Op::lstm, {x}, {{"hidden", hidden}}, name);
}
Value Model::gru(Value x, std::int64_t hidden, const std::string& name) {
  return layer(Op::gru, {x}, {{"hidden", hidden}}, name);
}

void Model::cross_entropy(Value logits, const CrossEntropy& o, const std::string& name) {
  Shape rows = shape(logits);
  OVERTAKE_CHECK(rows.rank >= 2, "layer {}: logits need two dimensions", name);
  const BufferId labels =
      graph_.add_buffer("labels", Shape(rows.span().first(rows.rank - 1u)), DType::i32, Role::input);
  const Value loss = layer(Op::cross_entropy, {logits, {labels}},
                           {{"smoothing", o.smoothing}, {"ignore_index", o.ignore_index}}, name);
  graph_.losses.push_back(loss.id);
}

void Model::mean_squared_error(Value prediction, const std::string& name) {
  const BufferId targets = graph_.add_buffer("targets", shape(prediction), DType::f32, Role::input);
  graph_.losses.push_back(layer(Op::mse, {prediction, {targets}}, {}, name).id);
}

Graph Model::finish() && {
  if (graph_.losses.empty())
    fail_user("model {}: it has no loss; end it with cross_entropy or mean_squared_error", graph_.model);
  verify(graph_);
  return std::move(graph_);
}

}  // namespace overtake
