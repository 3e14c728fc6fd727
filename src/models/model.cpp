#include "models/model.h"

#include "base/error.h"
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

Value Model::apply(Op op, const std::vector<Value>& inputs, const Attrs& attrs, const std::string& given_name) {
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

  const LayerId layer = graph_.add_layer(name);
  for (const OutputForm& out : form.outputs)
    writes.push_back(graph_.add_buffer(out.suffix.empty() ? name : fmt::format("{}.{}", name, out.suffix), out.shape,
                                       out.dtype, out.role));
  for (const ParameterForm& p : form.parameters) {
    if (p.suffix.empty()) {
      reads.push_back(kNone);
      continue;
    }
    const BufferId b = graph_.add_buffer(fmt::format("{}.{}", name, p.suffix), p.shape, DType::f32, p.role);
    graph_.parameters.push_back({.buffer = b, .init = p.init});
    reads.push_back(b);
    if (p.role == Role::state) writes.push_back(b);
  }
  graph_.add_task(Kind::forward, op, layer, graph_.add_attrs(attrs), reads, writes);
  return {writes[0]};
}

Value Model::linear(Value x, const Linear& o, const std::string& name) {
  Attrs attrs{{"out", o.out}, {"bias", std::int64_t{o.bias}}};
  if (!o.function.empty()) attrs.set("function", o.function);
  if (o.init_std != 0) attrs.set("init_std", o.init_std);
  return apply(Op::linear, {x}, attrs, name);
}

Value Model::linear_tied(Value x, const std::string& weight, const std::string& given_name) {
  for (const Parameter& p : graph_.parameters) {
    if (graph_.buffer_name(p.buffer) != weight) continue;
    const BufferId weight_id = p.buffer;
    const Shape w = graph_.buffers[weight_id].shape;  // a copy: adding buffers moves them
    const std::string name = given_name.empty() ? weight + ".tied" : given_name;
    Shape y = shape(x);
    if (w.rank != 2 || y.back() != w[1])
      fail_user(
          "model {}: layer '{}' (linear): the tied weight {} is {}, the input {}; their last dimensions must agree",
          graph_.model, name, weight, to_string(w), to_string(y));
    y[y.rank - 1u] = w[0];
    const BufferId out = graph_.add_buffer(name, y, graph_.buffers[x.id].dtype, Role::activation);
    const AttrsId attrs = graph_.add_attrs({{"out", w[0]}, {"bias", std::int64_t{0}}});
    graph_.add_task(Kind::forward, Op::linear, graph_.add_layer(name), attrs, {x.id, weight_id, kNone}, {out});
    return {out};
  }
  fail_user("model {}: no weight '{}' to tie to; name an earlier layer's", graph_.model, weight);
}

Value Model::matmul(Value a, Value b, bool trans_a, bool trans_b, const std::string& name) {
  return apply(Op::matmul, {a, b}, {{"trans_a", std::int64_t{trans_a}}, {"trans_b", std::int64_t{trans_b}}}, name);
}

Value Model::conv2d(Value x, const Conv2d& o, const std::string& name) {
  const bool has_kernel = o.kernel_hw.size() == 2, has_padding = o.padding_tlbr.size() == 4;
  OVERTAKE_CHECK((has_kernel || o.kernel_hw.empty()) && (has_padding || o.padding_tlbr.empty()),
                 "layer {}: kernel_hw has 2 entries, padding_tlbr 4", name);
  Attrs attrs{{"out", o.out},
              {"kernel", has_kernel ? o.kernel_hw : pair(o.kernel)},
              {"stride", pair(o.stride)},
              {"padding", has_padding ? o.padding_tlbr : std::vector<std::int64_t>(4, o.padding)},
              {"dilation", pair(o.dilation)},
              {"groups", o.groups},
              {"bias", std::int64_t{o.bias}}};
  if (o.init_std != 0) attrs.set("init_std", o.init_std);
  return apply(Op::conv2d, {x}, attrs, name);
}

Value Model::batch_norm(Value x, const Norm& o, const std::string& name) {
  const Attrs attrs{
      {"eps", o.eps}, {"momentum", o.momentum}, {"function", std::string("none")}, {"training", std::int64_t{1}}};
  return apply(Op::batch_norm, {x, Value{}}, attrs, name);
}

Value Model::layer_norm(Value x, const Norm& o, const std::string& name) {
  return apply(Op::layer_norm, {x}, {{"eps", o.eps}}, name);
}

Value Model::group_norm(Value x, const Norm& o, const std::string& name) {
  return apply(Op::group_norm, {x}, {{"eps", o.eps}, {"groups", o.groups}}, name);
}

Value Model::activation(Value x, const std::string& function, const std::string& name) {
  return apply(Op::activation, {x}, {{"function", function}}, name);
}

Value Model::add(Value a, Value b, const std::string& name) { return apply(Op::add, {a, b}, {}, name); }
Value Model::mul(Value a, Value b, const std::string& name) { return apply(Op::mul, {a, b}, {}, name); }

Value Model::concat(const std::vector<Value>& xs, std::int64_t axis, const std::string& name) {
  OVERTAKE_CHECK(!xs.empty(), "layer {}: concat of nothing", name);
  return apply(Op::concat, xs, {{"axis", axis}}, name);
}

Value Model::slice(Value x, std::int64_t axis, std::int64_t begin, std::int64_t end, const std::string& name) {
  return apply(Op::slice, {x}, {{"axis", axis}, {"begin", begin}, {"end", end}}, name);
}

Value Model::reshape(Value x, std::vector<std::int64_t> to, const std::string& name) {
  return apply(Op::reshape, {x}, {{"shape", std::move(to)}}, name);
}

Value Model::flatten(Value x, const std::string& name) { return reshape(x, {shape(x)[0], -1}, name); }

Value Model::transpose(Value x, std::vector<std::int64_t> order, const std::string& name) {
  return apply(Op::transpose, {x}, {{"order", std::move(order)}}, name);
}

Value Model::max_pool(Value x, const Pool2d& o, const std::string& name) {
  return apply(Op::max_pool, {x}, pool_attrs(o), name);
}
Value Model::avg_pool(Value x, const Pool2d& o, const std::string& name) {
  return apply(Op::avg_pool, {x}, pool_attrs(o), name);
}
Value Model::global_pool(Value x, const std::string& name) { return apply(Op::global_pool, {x}, {}, name); }
Value Model::softmax(Value x, std::int64_t axis, const std::string& name) {
  return apply(Op::softmax, {x}, {{"axis", axis}}, name);
}

Value Model::attention(Value q, Value k, Value v, const Attention& o, std::optional<Value> mask,
                       const std::string& name) {
  return apply(Op::attention, {q, k, v, mask.value_or(Value{})}, attention_attrs(o), name);
}
Value Model::attention(Value qkv, const Attention& o, std::optional<Value> mask, const std::string& name) {
  return apply(Op::attention, {qkv, Value{}, Value{}, mask.value_or(Value{})}, attention_attrs(o), name);
}

Value Model::embedding(Value tokens, std::int64_t vocabulary, std::int64_t width, double init_std,
                       const std::string& name) {
  return apply(Op::embedding, {tokens}, {{"vocabulary", vocabulary}, {"width", width}, {"init_std", init_std}}, name);
}

Value Model::parameter(std::vector<std::int64_t> dims, const Init& init, const std::string& name) {
  const BufferId b = graph_.add_buffer(name, Shape(dims), DType::f32, Role::weight);
  graph_.parameters.push_back({.buffer = b, .init = init});
  return {b};
}

Value Model::dropout(Value x, double p, const std::string& name) {
  return apply(Op::dropout, {x}, {{"p", p}, {"salt", dropouts_++}, {"training", std::int64_t{1}}}, name);
}

Value Model::lstm(Value x, std::int64_t hidden, const std::string& name) {
  return apply(Op::lstm, {x}, {{"hidden", hidden}}, name);
}
Value Model::gru(Value x, std::int64_t hidden, const std::string& name) {
  return apply(Op::gru, {x}, {{"hidden", hidden}}, name);
}

void Model::cross_entropy(Value logits, const CrossEntropy& o, const std::string& name) {
  Shape rows = shape(logits);
  OVERTAKE_CHECK(rows.rank >= 2, "layer {}: logits need two dimensions", name);
  const BufferId labels =
      graph_.add_buffer("labels", Shape(rows.span().first(rows.rank - 1u)), DType::i32, Role::input);
  const Value loss = apply(Op::cross_entropy, {logits, {labels}},
                           {{"smoothing", o.smoothing}, {"ignore_index", o.ignore_index}}, name);
  graph_.losses.push_back(loss.id);
}

void Model::mean_squared_error(Value prediction, const std::string& name) {
  const BufferId targets = graph_.add_buffer("targets", shape(prediction), DType::f32, Role::input);
  graph_.losses.push_back(apply(Op::mse, {prediction, {targets}}, {}, name).id);
}

Graph Model::finish() && {
  if (graph_.losses.empty())
    fail_user("model {}: it has no loss; end it with cross_entropy or mean_squared_error", graph_.model);
  verify(graph_);
  return std::move(graph_);
}

}  // namespace overtake
