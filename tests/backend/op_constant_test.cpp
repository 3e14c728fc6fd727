// Layers some of whose parameters are constants, or whose input needs no gradient: every subset of gradients.

#include "op_case.h"
#include "passes/differentiate.h"

namespace overtake::reference {
namespace {

// One parameter of the layer "it": trained, or a constant.
struct Part {
  std::string suffix;
  Dims dims;
  bool is_trained = true;
};

ParameterChoice choice(Model& m, const Part& p) {
  if (p.is_trained) return {};
  const Tensor t = fixed_tensor(p.dims);
  const std::vector<float> values(t.v.begin(), t.v.end());
  return {.shared = m.constant(Shape(p.dims), values, "constant." + p.suffix)};
}

Tensor value(const Values& v, const Part& p) { return p.is_trained ? v.at("it." + p.suffix) : fixed_tensor(p.dims); }

// The input "x": trained, or from the host.
Value input_of(OpBuilder& b, const Dims& dims, bool is_trained, const std::string& name = "x") {
  return is_trained ? b.arg(name, dims) : b.m.input({dims.begin() + 1, dims.end()}, name);
}

std::int64_t weight_grads(const OpCase& c, Op op) {
  const Graph g = differentiate(build_case(c, false).graph);
  return std::count_if(g.tasks.begin(), g.tasks.end(),
                       [&](const Task& t) { return t.op == op && t.kind == Kind::weight_grad; });
}

// A layer y = it(x; first, second): all subsets of trained tensors but the empty one.
struct Layer {
  Op op;
  Dims x;
  Attrs attrs;
  Part first, second;
  Tensor (*reference)(const Tensor& x, const Tensor& first, const Tensor& second);
};

OpCase layer_case(const Layer& l, bool is_x_trained) {
  return {.batch = l.x[0],
          .build =
              [=](OpBuilder& b) {
                return b.m.layer(l.op, {input_of(b, l.x, is_x_trained)}, l.attrs, "it",
                                 {choice(b.m, l.first), choice(b.m, l.second)});
              },
          .predict = [=](const Values& v) { return l.reference(v.at("x"), value(v, l.first), value(v, l.second)); },
          .tolerance = 2e-5};
}

template <class Check>
void for_each_subset(Layer l, const Check& check) {
  for (const int trained : {1, 2, 3, 4, 5, 6, 7}) {
    l.first.is_trained = (trained & 2) != 0;
    l.second.is_trained = (trained & 4) != 0;
    SCOPED_TRACE(::testing::Message() << "trained:" << ((trained & 1) != 0 ? " x" : "")
                                      << (l.first.is_trained ? " " + l.first.suffix : "")
                                      << (l.second.is_trained ? " " + l.second.suffix : ""));
    check(l, layer_case(l, (trained & 1) != 0));
  }
}

void check_subsets(const Layer& layer) {
  for_each_subset(layer, [](const Layer& l, const OpCase& c) {
    EXPECT_EQ(weight_grads(c, l.op), l.first.is_trained || l.second.is_trained ? 1 : 0);
    check_op(c);
  });
}

void check_subsets_bf16(const Layer& layer) {
  for_each_subset(layer, [](const Layer&, const OpCase& c) { check_op_bf16(c); });
}

Layer linear_layer() {
  return {Op::linear,
          {5, 7},
          {{"out", std::int64_t{6}}, {"bias", std::int64_t{1}}},
          {"weight", {6, 7}},
          {"bias", {6}},
          [](const Tensor& x, const Tensor& w, const Tensor& b) { return linear(x, w, &b); }};
}

constexpr std::int64_t kOut = 16;
Conv2d conv_options(std::int64_t groups) { return {.out = kOut, .kernel = 3, .padding = 1, .groups = groups}; }

template <std::int64_t groups>
Layer conv_layer() {
  const Dims weight = groups == 1 ? Dims{kOut, kOut, 3, 3} : Dims{groups, kOut / groups, kOut / groups, 3, 3};
  return {Op::conv2d,
          {3, kOut, 4, 5},
          {{"out", kOut},
           {"kernel", Dims{3, 3}},
           {"stride", Dims{1, 1}},
           {"padding", Dims{1, 1, 1, 1}},
           {"dilation", Dims{1, 1}},
           {"groups", groups},
           {"bias", std::int64_t{1}}},
          {"weight", weight},
          {"bias", {kOut}},
          [](const Tensor& x, const Tensor& w, const Tensor& b) { return conv2d(x, w, &b, conv_options(groups)); }};
}

Layer layer_norm_layer() {
  return {Op::layer_norm,
          {4, 3, 9},
          {{"eps", 1e-5}},
          {"weight", {9}},
          {"bias", {9}},
          [](const Tensor& x, const Tensor& gamma, const Tensor& beta) { return layer_norm(x, gamma, beta); }};
}

Layer group_norm_layer() {
  return {Op::group_norm,
          {3, 6, 4, 3},
          {{"eps", 1e-5}, {"groups", std::int64_t{2}}},
          {"weight", {6}},
          {"bias", {6}},
          [](const Tensor& x, const Tensor& gamma, const Tensor& beta) { return group_norm(x, gamma, beta, 2); }};
}

TEST(OpConstant, Linear) { check_subsets(linear_layer()); }
TEST(OpConstant, Conv2d) { check_subsets(conv_layer<1>()); }
TEST(OpConstant, GroupedConv2d) { check_subsets(conv_layer<2>()); }
TEST(OpConstant, DepthwiseConv2d) { check_subsets(conv_layer<kOut>()); }
TEST(OpConstant, LayerNorm) { check_subsets(layer_norm_layer()); }
TEST(OpConstant, GroupNorm) { check_subsets(group_norm_layer()); }
TEST(OpConstant, Bf16) {
  check_subsets_bf16(linear_layer());
  check_subsets_bf16(conv_layer<1>());
  check_subsets_bf16(layer_norm_layer());
}

// Batch norm, whose input gradient needs the sums of the weight gradient; with what is fused to it.
struct BatchNormCase {
  bool has_relu = false, has_residual = false;
  bool x = true, residual = true;  // trained
  Part gamma{"weight", {6}}, beta{"bias", {6}};
};

OpCase batch_norm_case(const BatchNormCase& n) {
  const Dims dims = {3, 6, 4, 3};
  return {.batch = 3,
          .build =
              [=](OpBuilder& b) {
                const Attrs attrs{
                    {"eps", 1e-5}, {"momentum", 0.1}, {"function", std::string("none")}, {"training", std::int64_t{1}}};
                Value y = b.m.layer(Op::batch_norm, {input_of(b, dims, n.x), Value{}}, attrs, "it",
                                    {choice(b.m, n.gamma), choice(b.m, n.beta)});
                if (n.has_residual) y = b.m.add(y, input_of(b, dims, n.residual, "residual"));
                return n.has_relu ? b.m.relu(y) : y;
              },
          .predict =
              [=](const Values& v) {
                Tensor y = batch_norm(v.at("x"), value(v, n.gamma), value(v, n.beta));
                if (n.has_residual) y = add(y, v.at("residual"));
                return n.has_relu ? activation("relu", y) : y;
              },
          .tolerance = 2e-5};
}

TEST(OpConstant, BatchNorm) {
  for (const bool has_relu : {false, true})
    for (const bool has_residual : {false, true})
      for (unsigned trained = 1; trained < (has_residual ? 16u : 8u); ++trained) {
        BatchNormCase n{.has_relu = has_relu, .has_residual = has_residual};
        n.x = (trained & 1) != 0;
        n.gamma.is_trained = (trained & 2) != 0;
        n.beta.is_trained = (trained & 4) != 0;
        n.residual = (trained & 8) != 0;
        SCOPED_TRACE(::testing::Message()
                     << (has_relu ? "relu, " : "") << (has_residual ? "residual, " : "") << "trained " << trained);
        check_op(batch_norm_case(n));
      }
}

TEST(OpConstant, BatchNormSumsOnlyWhereNeeded) {
  BatchNormCase n{.has_residual = true, .x = false};
  n.gamma.is_trained = n.beta.is_trained = false;
  EXPECT_EQ(weight_grads(batch_norm_case(n), Op::batch_norm), 0);
  n.x = true;
  EXPECT_EQ(weight_grads(batch_norm_case(n), Op::batch_norm), 1);
}

}  // namespace
}  // namespace overtake::reference
