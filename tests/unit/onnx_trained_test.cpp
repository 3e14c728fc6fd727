// Which tensors of a file are trained, and where gradients stop: what Overtake's export function says, what PyTorch's
// exporters leave, and what is refused because nobody says it.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/onnx/import.h"
#include "unit/onnx_writer.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

namespace write = onnx::write;
using write::attribute;
using write::node;

Network network_of(const write::ModelParts& parts, const ImportOptions& options = {}) {
  return import_onnx(std::make_shared<const std::string>(write::model(parts)), "net.onnx", options);
}

std::string refusal_of(const write::ModelParts& parts, const ImportOptions& options = {}) {
  return user_error([&] { network_of(parts, options); });
}

write::Message numbers(const std::string& name, const std::vector<std::int64_t>& dims, float first = 0.1f) {
  std::int64_t count = 1;
  for (const std::int64_t d : dims) count *= d;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(first + 0.01f * static_cast<float>(i));
  return write::tensor<float>(name, dims, values);
}

// "fc.weight" of what is trained, "(mean)" of what is kept as it is.
std::vector<std::string> kept_tensors(const Graph& g) {
  std::vector<std::string> names;
  for (const Parameter& p : g.parameters)
    names.push_back(p.is_frozen ? "(" + std::string(g.buffer_name(p.buffer)) + ")"
                                : std::string(g.buffer_name(p.buffer)));
  return names;
}

std::size_t count_ops(const Graph& g, Op op) {
  return static_cast<std::size_t>(std::ranges::count(g.tasks, op, &Task::op));
}

// (x - mean) / deviation -> fc: the mean and the deviation of the inputs are buffers of the model.
write::ModelParts normalised_linear() {
  return {.nodes = {node("Sub", {"x", "mean"}, {"c"}), node("Mul", {"c", "rate"}, {"n"}),
                    node("Gemm", {"n", "fc.weight", "fc.bias"}, {"y"}, {attribute("transB", 1)}, "/fc/Gemm")},
          .initializers = {numbers("mean", {6}), numbers("rate", {6}, 2.0f), numbers("fc.weight", {4, 6}),
                           numbers("fc.bias", {4})},
          .inputs = {write::value("x", {"batch", 6})},
          .outputs = {write::value("y", {"batch", 4})}};
}

write::ModelParts with_facts(write::ModelParts parts, const std::string& facts) {
  parts.graph_metadata = {write::metadata("overtake.training", facts)};
  return parts;
}

using Names = std::vector<std::string>;

TEST(OnnxTrained, WhatTheExportFunctionSaysHolds) {
  const write::ModelParts parts = with_facts(
      normalised_linear(),
      R"({"version": 1, "trained": ["fc.weight", "rate"], "untrained": ["fc.bias", "mean"], "same": {"a": "rate"}})");
  const Network n = network_of(parts);
  EXPECT_EQ(kept_tensors(n.graph), (Names{"(mean)", "rate", "fc.weight", "(fc.bias)"}));
  EXPECT_EQ(n.values.size(), 4u) << "frozen ones start from the file, too";
  // A tensor that is in no state_dict is a constant.
  EXPECT_EQ(kept_tensors(network_of(with_facts(normalised_linear(), R"({"version": 1, "trained": ["fc.weight",
                                    "fc.bias"], "untrained": ["rate"], "same": {}})"))
                             .graph),
            (Names{"(rate)", "fc.weight", "fc.bias"}));
}

TEST(OnnxTrained, TiedNamesShareWhatIsSaidOfOne) {
  write::ModelParts parts = normalised_linear();
  EXPECT_EQ(kept_tensors(network_of(with_facts(parts, R"({"version": 1, "trained": ["head.weight", "fc.bias"],
                "untrained": ["scale"], "same": {"fc.weight": "head.weight", "rate": "scale", "mean": "scale"}})"))
                             .graph),
            (Names{"(mean)", "(rate)", "fc.weight", "fc.bias"}));
}

TEST(OnnxTrained, AParameterThatTheFileHasNotIsMissed) {
  EXPECT_TRUE(says(refusal_of(with_facts(normalised_linear(), R"({"version": 1, "trained": ["fc.weight", "fc.scale"],
                                         "untrained": [], "same": {}})")),
                   {"net.onnx", "fc.scale (1)", "python/overtake_export.py"}));
}

TEST(OnnxTrained, FrozenMatricesStayLayers) {
  write::ModelParts parts = normalised_linear();
  parts.nodes.back() = node("Transpose", {"fc.weight"}, {"w"}, {attribute("perm", std::vector<std::int64_t>{1, 0})});
  parts.nodes.push_back(node("MatMul", {"n", "w"}, {"y"}, {}, "/fc/MatMul"));
  const Network n = network_of(
      with_facts(parts, R"({"version": 1, "trained": ["rate"], "untrained": ["fc.weight", "mean"], "same": {}})"));
  EXPECT_EQ(kept_tensors(n.graph), (Names{"(mean)", "rate", "(fc.weight)"}));
  EXPECT_EQ(count_ops(n.graph, Op::linear), 1u);
}

TEST(OnnxTrained, FactsThatCannotBeReadAreRefused) {
  const std::string deep = R"({"version": 1, "trained": [)" + std::string(100000, '[');
  for (const std::string& facts : {std::string("{"), std::string("[]"), deep, std::string(R"({"version": 1})"),
                                   std::string(R"({"version": 1, "trained": 3, "untrained": [], "same": {}})")})
    EXPECT_TRUE(says(refusal_of(with_facts(normalised_linear(), facts)),
                     {"net.onnx", "overtake.training", "python/overtake_export.py"}))
        << facts.substr(0, 80);
  EXPECT_TRUE(says(refusal_of(with_facts(normalised_linear(), R"({"version": 2})")), {"version 2", "one release"}));
}

TEST(OnnxTrained, BuffersOfTheDynamoExportersListAreNot) {
  write::ModelParts parts = normalised_linear();
  parts.graph_metadata = {write::metadata(onnx::Signature::kKey,
                                          "# inputs\np_rate: PARAMETER target='rate'\n"
                                          "b_mean: BUFFER target='mean' persistent=True\n"
                                          "p_fc_weight: PARAMETER target='fc.weight'\n"
                                          "p_fc_bias: PARAMETER target='fc.bias'\nx: USER_INPUT\n\n# outputs\n")};
  EXPECT_EQ(kept_tensors(network_of(parts).graph), (Names{"(mean)", "rate", "fc.weight", "fc.bias"}));
}

TEST(OnnxTrained, WhatNobodySaysIsAsked) {
  EXPECT_TRUE(says(refusal_of(normalised_linear()), {"net.onnx", "does not say whether", "mean, rate (2)",
                                                     "python/overtake_export.py", "`train_tensors`", "`freeze`"}));
  EXPECT_EQ(kept_tensors(network_of(normalised_linear(), {.freeze = {"mean"}, .train_tensors = {"ra"}}).graph),
            (Names{"mean", "rate", "fc.weight", "fc.bias"}))
      << "freeze() marks the first";
  EXPECT_EQ(kept_tensors(network_of(normalised_linear(), {.train_tensors = {"*"}}).graph),
            (Names{"mean", "rate", "fc.weight", "fc.bias"}));
  EXPECT_TRUE(says(refusal_of(normalised_linear(), {.train_tensors = {"rite", "mean", "rate"}}),
                   {"`train_tensors rite`", "net.onnx"}));
  // Infinities are masks.
  write::ModelParts masked = normalised_linear();
  masked.nodes[1] = node("Add", {"c", "rate"}, {"n"});
  masked.initializers[0] = write::tensor<float>("mean", {6}, {0, 0, 0, 0, 0, 1e38f});
  masked.initializers[1] = write::tensor<float>("rate", {6}, {0, 0, 0, 0, 0, -std::numeric_limits<float>::infinity()});
  EXPECT_EQ(kept_tensors(network_of(masked).graph), (Names{"fc.weight", "fc.bias"}));
}

TEST(OnnxTrained, WeightsOfLayersAreWhateverTheirValuesAndThatIsSaid) {
  write::ModelParts parts = normalised_linear();
  parts.nodes = {node("Gemm", {"x", "fc.weight", "fc.bias"}, {"y"}, {attribute("transB", 1)}, "/fc/Gemm")};
  parts.initializers = {numbers("fc.weight", {4, 6}, 2e4f), numbers("fc.bias", {4})};
  Names notes;
  ImportOptions options;
  options.note = [&](const std::string& line) { notes.push_back(line); };
  EXPECT_EQ(kept_tensors(network_of(parts, options).graph), (Names{"fc.weight", "fc.bias"}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(says(notes[0], {"net.onnx", "requires_grad", "padding_idx", "python/overtake_export.py"}));
  notes.clear();
  network_of(with_facts(parts, R"({"version": 1, "trained": ["fc.weight", "fc.bias"], "untrained": [], "same": {}})"),
             options);
  EXPECT_TRUE(notes.empty());
}

write::ModelParts looked_up(const std::string& op, const std::string& domain, write::Message table) {
  write::Message look_up = node(op, {"wte.weight", "ids"}, {"e"}, {}, "/wte/" + op);
  if (!domain.empty()) look_up = look_up.text(7, domain).message(5, attribute("padding_idx", 2));
  return {.nodes = {look_up, node("MatMul", {"e", "head.weight"}, {"y"}, {}, "/head/MatMul")},
          .initializers = {std::move(table), numbers("head.weight", {3, 7})},
          .inputs = {write::value("ids", {"batch", 5}, onnx::ElementType::i64)},
          .outputs = {write::value("y", {"batch", 5, 7})}};
}

const std::string kTableFacts =
    R"({"version": 1, "trained": ["wte.weight", "head.weight"], "untrained": [], "same": {}})";

std::int64_t padding_of(const Graph& g) {
  const auto task = std::ranges::find(g.tasks, Op::embedding, &Task::op);
  return g.attrs_of(*task).integer("padding", -1);
}

TEST(OnnxTrained, PaddingRowsOfEmbeddingsAreNot) {
  const write::Message table = numbers("wte.weight", {7, 3});
  EXPECT_EQ(padding_of(network_of(with_facts(looked_up("Embedding", "overtake", table), kTableFacts)).graph), 2);
  EXPECT_EQ(padding_of(network_of(with_facts(looked_up("Gather", "", table), kTableFacts)).graph), -1);
  write::ModelParts recorded = looked_up("Gather", "", table);
  recorded.nodes[0] =
      write::recorded(recorded.nodes[0],
                      "%e : [num_users=1] = call_function[target=torch.ops.aten.embedding.default](args "
                      "= (%p_wte_weight, %ids, 4), kwargs = {})",
                      "['', 'wte', 'embedding']");
  EXPECT_EQ(padding_of(network_of(with_facts(recorded, kTableFacts)).graph), 4);
  write::ModelParts outside = looked_up("Embedding", "overtake", numbers("wte.weight", {2, 3}));
  EXPECT_TRUE(says(refusal_of(with_facts(outside, kTableFacts)), {"net.onnx", "/wte/Embedding", "padding_idx 2"}));
}

TEST(OnnxTrained, ARowOfZerosMayBePadding) {
  std::vector<float> values(21, 0.5f);
  std::fill(values.begin() + 3, values.begin() + 6, 0.0f);
  const write::ModelParts parts = looked_up("Gather", "", write::tensor<float>("wte.weight", {7, 3}, values));
  EXPECT_TRUE(says(refusal_of(parts), {"wte.weight (row 1 may be its padding_idx)", "`train_tensors`"}));
  EXPECT_EQ(kept_tensors(network_of(parts, {.train_tensors = {"wte."}}).graph), (Names{"wte.weight", "head.weight"}));
}

TEST(OnnxTrained, GradientsStopWhereTheModelDetaches) {
  write::ModelParts parts = normalised_linear();
  parts.nodes[1] = node("StopGradient", {"c"}, {"n"}).text(7, "overtake");
  parts.initializers.erase(parts.initializers.begin() + 1);
  const std::string facts =
      R"({"version": 1, "trained": ["mean", "fc.weight", "fc.bias"], "untrained": [], "same": {}})";
  EXPECT_EQ(count_ops(network_of(with_facts(parts, facts)).graph, Op::stop_gradient), 1u);
  // As the dynamo exporter records it.
  parts.nodes[1] =
      write::recorded(node("Identity", {"c"}, {"n"}),
                      "%n : [num_users=1] = call_function[target=torch.ops.aten.detach.default](args = (%c,), kwargs = "
                      "{})",
                      "['', 'detach']");
  EXPECT_EQ(count_ops(network_of(with_facts(parts, facts)).graph, Op::stop_gradient), 1u);
}

TEST(OnnxTrained, ADetachThatTheExportTookOutIsMissed) {
  write::ModelParts parts = normalised_linear();
  parts.nodes[1] = write::recorded(node("Mul", {"c", "rate"}, {"n"}),
                                   "%n : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = "
                                   "(%detach_1, %p_rate), kwargs = {})",
                                   "['', 'mul']");
  EXPECT_TRUE(says(refusal_of(parts, {.train_tensors = {"mean", "rate"}}),
                   {"net.onnx", "took out a detach()", "optimize=False"}));
}

// A batch norm in evaluation mode, in a model that is trained.
TEST(OnnxTrained, FixedBatchNormsStayFixed) {
  const auto norm = [](const std::string& input, const std::string& name, std::int64_t training) {
    return node("BatchNormalization",
                {input, name + ".weight", name + ".bias", name + ".running_mean", name + ".running_var"}, {name},
                {attribute("training_mode", training)}, "/" + name + "/BatchNormalization");
  };
  write::ModelParts parts{.nodes = {norm("x", "fixed", 0), norm("fixed", "norm", 1)},
                          .inputs = {write::value("x", {"batch", 4, 3, 3})},
                          .outputs = {write::value("norm", {"batch", 4, 3, 3})}};
  for (const char* name : {"fixed", "norm"})
    for (const char* role : {".weight", ".bias", ".running_mean", ".running_var"})
      parts.initializers.push_back(numbers(std::string(name) + role, {4}, 1.0f));
  parts = with_facts(parts, R"({"version": 1, "trained": ["fixed.weight", "fixed.bias", "norm.weight", "norm.bias"],
      "untrained": ["fixed.running_mean", "fixed.running_var", "norm.running_mean", "norm.running_var"], "same": {}})");
  const Graph g = network_of(parts).graph;
  EXPECT_EQ(count_ops(g, Op::batch_norm), 1u);
  const Names names = kept_tensors(g);
  EXPECT_EQ(std::ranges::count(names, "(fixed.running_mean)"), 1);
  EXPECT_EQ(std::ranges::count(names, "fixed.weight"), 1);
}

TEST(OnnxTrained, AFreshAffineInstanceNormHasWeights) {
  write::ModelParts parts{
      .nodes = {node("InstanceNormalization", {"x", "norm.weight", "norm.bias"}, {"y"}, {}, "/norm/Norm")},
      .initializers = {write::tensor<float>("norm.weight", {4}, {1, 1, 1, 1}),
                       write::tensor<float>("norm.bias", {4}, {0, 0, 0, 0})},
      .inputs = {write::value("x", {"batch", 4, 5, 5})},
      .outputs = {write::value("y", {"batch", 4, 5, 5})}};
  EXPECT_EQ(kept_tensors(network_of(parts).graph), (Names{"norm.weight", "norm.bias"}));
  // Without affine weights the exporter makes constants of ones and zeros.
  parts.nodes = {node("Constant", {}, {"ones"}, {attribute("value", write::tensor<float>("", {4}, {1, 1, 1, 1}))}),
                 node("Constant", {}, {"zeros"}, {attribute("value", write::tensor<float>("", {4}, {0, 0, 0, 0}))}),
                 node("InstanceNormalization", {"x", "ones", "zeros"}, {"n"}, {}, "/norm/Norm"),
                 node("Conv", {"n", "conv.weight"}, {"y"}, {}, "/conv/Conv")};
  parts.initializers = {numbers("conv.weight", {4, 4, 1, 1})};
  EXPECT_EQ(kept_tensors(network_of(parts).graph), (Names{"conv.weight"}));
}

std::vector<std::string> functions_of(const Graph& g) {
  std::vector<std::string> names;
  for (const Task& t : g.tasks)
    if (t.op == Op::activation) names.push_back(g.attrs_of(t).text("function"));
  return names;
}

// torch.clamp has no gradient at its bounds, torch.maximum half of it.
TEST(OnnxTrained, MaximaAreNoClamps) {
  write::ModelParts parts = normalised_linear();
  parts.nodes[1] = node("Max", {"c", "onnx::Max_1"}, {"n"});
  parts.initializers[1] = write::tensor<float>("onnx::Max_1", {}, {0.0f});
  const ImportOptions options{.train_tensors = {"mean"}};
  EXPECT_EQ(functions_of(network_of(parts, options).graph), (Names{"maximum"}));
  parts.nodes[1] = node("Min", {"c", "onnx::Max_1"}, {"n"});
  EXPECT_EQ(functions_of(network_of(parts, options).graph), (Names{"maximum"}));
  parts.nodes[1] = node("Clip", {"c", "onnx::Max_1"}, {"n"});
  EXPECT_EQ(functions_of(network_of(parts, options).graph), (Names{"relu"}));
  parts.nodes[1] = write::recorded(node("Max", {"c", "onnx::Max_1"}, {"n"}),
                                   "%clamp : [num_users=1] = call_function[target=torch.ops.aten.clamp.Tensor](args = "
                                   "(%c, %scalar_tensor_default, None), kwargs = {})",
                                   "['', 'clamp']");
  EXPECT_EQ(functions_of(network_of(parts, options).graph), (Names{"relu"}));
}

}  // namespace
}  // namespace overtake
