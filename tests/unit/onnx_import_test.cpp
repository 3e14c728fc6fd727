// From ONNX nodes to a forward graph: what it becomes, what its weights are called, and what is refused.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "models/onnx/import.h"
#include "unit/onnx_writer.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

namespace write = onnx::write;
using onnx::ElementType;
using write::attribute;
using write::node;
using Dims = std::vector<std::int64_t>;

Network imported(const write::ModelParts& parts, const ImportOptions& options = {}) {
  return import_onnx(std::make_shared<const std::string>(write::model(parts)), "net.onnx", options);
}

ImportOptions with(const std::string& settings) { return {.settings = ModelSettings::parse(settings)}; }

// Empty where there is none.
std::string import_error_of(const write::ModelParts& parts, const ImportOptions& options = {}) {
  try {
    imported(parts, options);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

std::vector<Op> imported_ops(const Graph& g) {
  std::vector<Op> ops;
  for (const Task& t : g.tasks) ops.push_back(t.op);
  return ops;
}

std::vector<std::string> weights_of(const Graph& g) {
  std::vector<std::string> names;
  for (const Parameter& p : g.parameters)
    names.push_back(g.buffer_name(p.buffer) + to_string(g.buffers[p.buffer].shape) + (p.stored_transposed ? "'" : ""));
  return names;
}

// Numbers that are not all the same, so that nothing takes them for fresh biases.
write::Message weight(const std::string& name, const Dims& dims, float first = 0.1f) {
  std::int64_t count = 1;
  for (const std::int64_t d : dims) count *= d;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(first + 0.01f * static_cast<float>(i));
  return write::tensor<float>(name, dims, values);
}

write::Message integers(const std::string& name, const Dims& values) {
  return write::tensor<std::int64_t>(name, {std::ssize(values)}, values);
}

// x [batch, 6] -> fc -> y [batch, 4], with what is given in between.
write::ModelParts linear_model(const write::Dim& batch = "batch") {
  return {.nodes = {node("Gemm", {"x", "fc.weight", "fc.bias"}, {"y"}, {attribute("transB", 1)}, "fc")},
          .initializers = {weight("fc.weight", {4, 6}), weight("fc.bias", {4})},
          .inputs = {write::value("x", {batch, 6})},
          .outputs = {write::value("y", {batch, 4})}};
}

TEST(OnnxImport, ALinearLayer) {
  const Network n = imported(linear_model(), with("batch=5"));
  EXPECT_EQ(imported_ops(n.graph), (std::vector<Op>{Op::linear, Op::cross_entropy}));
  EXPECT_EQ(weights_of(n.graph), (std::vector<std::string>{"fc.weight[4, 6]", "fc.bias[4]"}));
  EXPECT_EQ(n.values.size(), 2u);
  EXPECT_EQ(n.graph.buffers[n.graph.reads(0)[0]].shape, (Shape{5, 6}));
}

TEST(OnnxImport, TheBatchIsTheFilesOrSixteen) {
  EXPECT_EQ(imported(linear_model(3)).graph.buffers[0].shape[0], 3);
  EXPECT_EQ(imported(linear_model("n")).graph.buffers[0].shape[0], 16);
  EXPECT_EQ(imported(linear_model("n"), with("n=7")).graph.buffers[0].shape[0], 7);
}

TEST(OnnxImport, AWeightStoredInOutKeepsItsFormInFiles) {
  write::ModelParts parts = linear_model();
  parts.nodes = {node("Gemm", {"x", "conv1d.weight", "fc.bias"}, {"y"}, {}, "fc")};
  parts.initializers[0] = weight("conv1d.weight", {6, 4});
  const Network n = imported(parts);
  EXPECT_EQ(weights_of(n.graph)[0], "conv1d.weight[4, 6]'");
  EXPECT_EQ(n.values[0].dims, (Dims{6, 4}));
}

TEST(OnnxImport, AFoldedTransposeIsUndoneAndNamedByItsModule) {
  write::ModelParts parts = linear_model();
  parts.nodes = {node("MatMul", {"x", "onnx::MatMul_7"}, {"p"}, {}, "/encoder/layer.0/query/MatMul"),
                 node("Add", {"p", "encoder.layer.0.query.bias"}, {"y"}, {}, "/encoder/layer.0/query/Add")};
  parts.initializers = {weight("onnx::MatMul_7", {6, 4}), weight("encoder.layer.0.query.bias", {4})};
  const Network n = imported(parts);
  EXPECT_EQ(weights_of(n.graph),
            (std::vector<std::string>{"encoder.layer.0.query.weight[4, 6]", "encoder.layer.0.query.bias[4]"}));
  EXPECT_EQ(n.values[0].dims, (Dims{4, 6}));
}

TEST(OnnxImport, EqualFreshTensorsOfDifferentModulesAreDifferentWeights) {
  // The exporter stored the two biases once.
  const auto from = [](write::Message message, const char* module, const char* call) {
    const std::string scopes = std::string("['', '") + module + "', 'linear']";
    return write::recorded(std::move(message), call, scopes);
  };
  write::ModelParts parts = linear_model();
  parts.nodes = {from(node("Gemm", {"x", "a.weight", "a.bias"}, {"h"}, {attribute("transB", 1)}), "a",
                      "%linear = linear(args = (%x, %p_a_weight, %p_a_bias))"),
                 from(node("Gemm", {"h", "b.weight", "a.bias"}, {"y"}, {attribute("transB", 1)}), "b",
                      "%linear_1 = linear(args = (%linear, %p_b_weight, %p_b_bias))")};
  parts.initializers = {weight("a.weight", {6, 6}), weight("b.weight", {6, 6}, 0.3f),
                        write::tensor<float>("a.bias", {6}, std::vector<float>(6, 0.0f))};
  parts.outputs = {write::value("y", {"batch", 6})};
  EXPECT_EQ(weights_of(imported(parts).graph),
            (std::vector<std::string>{"a.weight[6, 6]", "a.bias[6]", "b.weight[6, 6]", "b.bias[6]"}));
}

write::ModelParts language_model() {
  return {.nodes = {node("Gather", {"wte.weight", "ids"}, {"e"}, {}, "/wte/Gather"),
                    node("MatMul", {"e", "onnx::MatMul_9"}, {"y"}, {}, "/head/MatMul")},
          .initializers = {weight("wte.weight", {7, 3})},
          .inputs = {write::value("ids", {"batch", 5}, ElementType::i64)},
          .outputs = {write::value("y", {"batch", 5, 7})}};
}

TEST(OnnxImport, ANamelessOutputLayerThatEqualsTheEmbeddingMayBeItsCopy) {
  write::ModelParts parts = language_model();
  std::vector<float> transposed(21);
  for (std::size_t i = 0; i < 7; ++i)
    for (std::size_t j = 0; j < 3; ++j) transposed[j * 7 + i] = 0.1f + 0.01f * static_cast<float>(i * 3 + j);
  parts.initializers.push_back(write::tensor<float>("onnx::MatMul_9", {3, 7}, transposed));
  EXPECT_TRUE(says(import_error_of(parts), {"'onnx::MatMul_9' of MatMul '/head/MatMul' is equal to 'wte.weight'"}));
  EXPECT_EQ(weights_of(imported(parts, {.accept_folded = true}).graph), (std::vector<std::string>{"wte.weight[7, 3]"}));
  parts.initializers[1] = weight("onnx::MatMul_9", {3, 7});
  EXPECT_EQ(weights_of(imported(parts).graph), (std::vector<std::string>{"wte.weight[7, 3]", "head.weight[7, 3]"}));
}

TEST(OnnxImport, AMaskIsNoWeight) {
  write::ModelParts parts = linear_model();
  parts.nodes.push_back(node("Add", {"y", "mask"}, {"z"}));
  parts.initializers.push_back(write::tensor<float>("mask", {4}, {0, 0, -3.4e38f, 0}));
  parts.outputs = {write::value("z", {"batch", 4})};
  const Network n = imported(parts);
  EXPECT_EQ(n.graph.parameters.size(), 2u);
  EXPECT_EQ(n.graph.constants.size(), 1u);
}

TEST(OnnxImport, WeightsCanBeFrozen) {
  Network n = imported(linear_model());
  freeze(n.graph, {"fc.w"});
  EXPECT_TRUE(n.graph.parameters[0].is_frozen);
  EXPECT_FALSE(n.graph.parameters[1].is_frozen);
  EXPECT_THROW(freeze(n.graph, {"conv"}), UserError);
}

TEST(OnnxImport, AParameterOfOneNumberIsTrained) {
  write::ModelParts parts = linear_model();
  parts.nodes.push_back(node("Mul", {"y", "scale"}, {"z"}));
  parts.nodes.push_back(node("Mul", {"z", "onnx::Mul_4"}, {"w"}));
  parts.initializers.push_back(write::tensor<float>("scale", {}, {1.5f}));
  parts.initializers.push_back(write::tensor<float>("onnx::Mul_4", {}, {0.5f}));
  parts.outputs = {write::value("w", {"batch", 4})};
  EXPECT_EQ(weights_of(imported(parts, {.train_tensors = {"scale"}}).graph).back(), "scale[1]");
}

TEST(OnnxImport, ABoundIsNoParameterWhateverItIsCalled) {
  write::ModelParts parts = linear_model();
  parts.nodes.push_back(node("Clip", {"y", "low", "high"}, {"z"}));
  parts.initializers.push_back(write::tensor<float>("low", {}, {0.0f}));
  parts.initializers.push_back(write::tensor<float>("high", {}, {6.0f}));
  parts.outputs = {write::value("z", {"batch", 4})};
  const Network n = imported(parts);
  EXPECT_EQ(imported_ops(n.graph), (std::vector<Op>{Op::linear, Op::activation, Op::cross_entropy}));
  EXPECT_EQ(n.graph.parameters.size(), 2u);
}

TEST(OnnxImport, ShapeArithmeticIsDoneBeforehand) {
  write::ModelParts parts = linear_model();
  parts.inputs = {write::value("image", {"batch", 2, 3})};
  parts.nodes.insert(
      parts.nodes.begin(),
      {node("Shape", {"image"}, {"s"}), node("Gather", {"s", "zero"}, {"b"}, {attribute("axis", 0)}),
       node("Unsqueeze", {"b", "axis"}, {"b1"}), node("Concat", {"b1", "rest"}, {"to"}, {attribute("axis", 0)}),
       node("Reshape", {"image", "to"}, {"x"})});
  parts.initializers.push_back(write::tensor<std::int64_t>("zero", {}, {0}));
  parts.initializers.push_back(integers("axis", {0}));
  parts.initializers.push_back(integers("rest", {-1}));
  EXPECT_EQ(imported_ops(imported(parts).graph), (std::vector<Op>{Op::reshape, Op::linear, Op::cross_entropy}));
}

// The graph takes one of the pieces that a batch is cut into.
TEST(OnnxImport, ABatchInPieces) {
  ImportOptions options = with("batch=6");
  options.pieces = 3;
  const Network n = imported(linear_model(), options);
  EXPECT_EQ(n.graph.buffers[n.graph.reads(TaskId{0})[0]].shape[0], 2);
  EXPECT_EQ(imported(linear_model(4), {.pieces = 2}).graph.buffers[0].shape[0], 2) << "its own is cut, too";
  options.pieces = 4;
  EXPECT_NE(import_error_of(linear_model(), options).find("`batch 6`: it must be a multiple of 4"), std::string::npos);
}

// A file exported for a batch of 2 has that number in its shapes, also merged with others.
TEST(OnnxImport, AnyBatchOfAStaticFile) {
  write::ModelParts parts;
  parts.inputs = {write::value("x", {2, 4, 6})};
  parts.nodes = {node("Transpose", {"x"}, {"t"}, {attribute("perm", Dims{1, 0, 2})}),  // [4, 2, 6]
                 node("Reshape", {"t", "flat"}, {"f"}),                                // [8, 6]
                 node("MatMul", {"f", "fc.weight"}, {"m"}),                            // [8, 4]
                 node("Reshape", {"m", "apart"}, {"a"}),                               // [4, 2, 4]
                 node("Transpose", {"a"}, {"y"}, {attribute("perm", Dims{1, 0, 2})})};
  parts.initializers = {weight("fc.weight", {6, 4}), integers("flat", {8, 6}), integers("apart", {4, 2, -1})};
  parts.outputs = {write::value("y", {2, 4, 4})};
  for (const std::int64_t batch : {1, 2, 3, 4, 8}) {
    const Network n = imported(parts, with("batch=" + std::to_string(batch)));
    const Graph& g = n.graph;
    EXPECT_EQ(g.buffers[g.reads(static_cast<TaskId>(g.tasks.size()) - 1)[0]].shape, (Shape{batch, 4, 4}));
    EXPECT_EQ(g.buffers[g.writes(TaskId{3})[0]].shape, (Shape{4, batch, 4}));
  }
}

// Sums over samples go on with their number, reshapes to numbers with the batch of the export: with another one the
// model would be another.
TEST(OnnxImportErrors, ABatchThatIsPartOfTheFile) {
  write::ModelParts sums = linear_model(2);
  sums.nodes = {node("ReduceSum", {"x", "axes"}, {"s"}, {attribute("keepdims", 1)}, "/sum/ReduceSum"),
                node("Mul", {"s", "onnx::Mul_3"}, {"m"}), node("Sub", {"x", "m"}, {"c"}), sums.nodes[0]};
  sums.nodes[3] = node("Gemm", {"c", "fc.weight", "fc.bias"}, {"y"}, {attribute("transB", 1)}, "fc");
  sums.initializers.push_back(integers("axes", {0}));
  sums.initializers.push_back(write::tensor<float>("onnx::Mul_3", {}, {0.5f}));
  EXPECT_EQ(import_error_of(sums), "");
  EXPECT_EQ(import_error_of(sums, with("batch=2")), "");
  EXPECT_TRUE(says(import_error_of(sums, with("batch=4")),
                   {"net.onnx", "batch of its export, 2", "sum", "over the samples", "python/overtake_export.py"}));

  // Halves of a batch side by side: at the export, one sample beside the other.
  write::ModelParts pairs = linear_model("batch");
  pairs.nodes = {node("Reshape", {"x", "pairs"}, {"p"}, {}, "/Reshape"), node("Tanh", {"p"}, {"t"}),
                 node("Reshape", {"t", "rows"}, {"r"}),
                 node("Gemm", {"r", "fc.weight", "fc.bias"}, {"y"}, {attribute("transB", 1)}, "fc")};
  pairs.initializers.push_back(integers("pairs", {2, -1}));
  pairs.initializers.push_back(integers("rows", {-1, 6}));
  EXPECT_TRUE(says(import_error_of(pairs, with("batch=4")), {"net.onnx", "/Reshape", "[2, ", "takes samples apart"}));
  pairs.inputs = {write::value("x", {2, 6})};
  pairs.outputs = {write::value("y", {2, 4})};
  EXPECT_EQ(import_error_of(pairs, with("batch=4")), "") << "a shape of the export's batch is one of any";
  // A number that is equal to the batch is no evidence.
  write::ModelParts twice = linear_model(2);
  twice.nodes = {node("Mul", {"x", "onnx::Mul_3"}, {"d"}),
                 node("Gemm", {"d", "fc.weight", "fc.bias"}, {"y"}, {attribute("transB", 1)}, "fc")};
  twice.initializers.push_back(write::tensor<float>("onnx::Mul_3", {}, {2.0f}));
  EXPECT_EQ(import_error_of(twice, with("batch=4")), "");
}

TEST(OnnxImport, InputsBesideTheTokensAreTakenAsPlain) {
  write::ModelParts parts = language_model();
  parts.initializers.push_back(weight("onnx::MatMul_9", {3, 7}));
  parts.inputs.push_back(write::value("attention_mask", {"batch", 5}, ElementType::i64));
  parts.nodes.push_back(node("Cast", {"attention_mask"}, {"m"}, {attribute("to", 1)}));
  parts.nodes.push_back(node("Unsqueeze", {"m", "last"}, {"m1"}));
  parts.nodes.push_back(node("Mul", {"y", "m1"}, {"z"}));
  parts.initializers.push_back(integers("last", {-1}));
  parts.outputs = {write::value("z", {"batch", 5, 7})};
  std::vector<std::string> notes;
  ImportOptions options;
  options.note = [&](const std::string& line) { notes.push_back(line); };
  imported(parts, options);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_TRUE(says(notes[0], {"attention_mask", "ones"}));
  EXPECT_TRUE(says(notes[1], {"net.onnx", "does not say all that PyTorch trains"}));
}

// RoBERTa's positions start behind the row of padding, which is zero; the file does not say so otherwise.
TEST(OnnxImport, PositionsStartWhereTheUserSays) {
  write::ModelParts parts = language_model();
  parts.inputs.push_back(write::value("position_ids", {"batch", 5}, ElementType::i64));
  std::vector<float> rows(8 * 3, 0.5f);
  parts.initializers.push_back(write::tensor<float>("wpe.weight", {8, 3}, rows));
  parts.initializers.push_back(weight("onnx::MatMul_9", {3, 7}));
  parts.nodes.push_back(node("Gather", {"wpe.weight", "p64"}, {"p"}, {}, "wpe"));
  parts.nodes.push_back(node("Add", {"e", "p"}, {"sum"}));
  parts.nodes[1] = node("MatMul", {"sum", "onnx::MatMul_9"}, {"y"}, {}, "/head/MatMul");
  std::rotate(parts.nodes.begin() + 1, parts.nodes.begin() + 2, parts.nodes.end());
  parts.nodes.insert(parts.nodes.begin(), node("Cast", {"position_ids"}, {"p64"}, {attribute("to", 7)}));
  const auto places = [&](ImportOptions options) {
    std::vector<std::string> notes;
    options.note = [&](const std::string& line) { notes.push_back(line); };
    options.train_tensors = {"wpe."};
    const Graph g = imported(parts, options).graph;
    EXPECT_EQ(notes.size(), 2u) << "of positions, and of what the file does not say";
    std::vector<std::int32_t> values(5);
    for (const Constant& c : g.constants)
      if (g.buffers[c.buffer].dtype == DType::i32) std::memcpy(values.data(), c.bytes->data(), 20);
    return values;
  };
  EXPECT_EQ(places({}), (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(places(with("position_ids=2")), (std::vector<std::int32_t>{2, 3, 4, 5, 6}));
  std::fill_n(rows.begin() + 3, 3, 0.0f);
  parts.initializers[parts.initializers.size() - 2] = write::tensor<float>("wpe.weight", {8, 3}, rows);
  EXPECT_TRUE(says(import_error_of(parts), {"Gather 'wpe'", "row 1", "`set position_ids=2`", "position_ids=0"}));
  EXPECT_EQ(places(with("position_ids=0")), (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(places(with("position_ids=2")), (std::vector<std::int32_t>{2, 3, 4, 5, 6}));
}

// Scores of every sample against every other: labels would be places in the batch, which is shuffled.
TEST(OnnxImportErrors, LabelsThatAreSamplesOfTheBatch) {
  write::ModelParts parts = linear_model();
  parts.nodes = {node("Gemm", {"x", "fc.weight", "fc.bias"}, {"h"}, {attribute("transB", 1)}, "fc"),
                 node("Transpose", {"h"}, {"t"}), node("MatMul", {"h", "t"}, {"y"})};
  const std::string error = import_error_of(parts, with("batch=8"));
  EXPECT_TRUE(says(error, {"net.onnx", "[8, 8]", "[9, 9]", "shuffled", "`loss mse`"}));
  EXPECT_EQ(import_error_of(linear_model(), with("batch=4")), "") << "four classes are no four samples";
  EXPECT_EQ(import_error_of(linear_model(4)), "");
}

TEST(OnnxImport, OnlyWhatTheOutputNeedsIsRead) {
  write::ModelParts parts = linear_model();
  parts.nodes.push_back(node("NonMaxSuppression", {"y"}, {"other"}));
  parts.outputs.push_back(write::value("other", {"batch", 4}));
  EXPECT_EQ(imported_ops(imported(parts).graph), (std::vector<Op>{Op::linear, Op::cross_entropy}));
  EXPECT_TRUE(says(import_error_of(parts, {.output = "other"}), {"NonMaxSuppression"}));
}

// As PyTorch's cross_entropy has it: classes are dimension 1 of maps and volumes, and the last of scores of positions.
TEST(OnnxImport, WhichDimensionIsTheClasses) {
  const auto labels_of = [](const Dims& dims) {
    write::ModelParts parts = linear_model();
    parts.nodes = {node("Gemm", {"x", "fc.weight", "fc.bias"}, {"h"}, {attribute("transB", 1)}, "fc"),
                   node("Reshape", {"h", "to"}, {"y"})};
    std::int64_t out = 1;
    for (const std::int64_t d : dims) out *= d;
    Dims to = dims;
    to.insert(to.begin(), -1);
    parts.initializers = {weight("fc.weight", {out, 6}), weight("fc.bias", {out}), integers("to", to)};
    const std::string error = import_error_of(parts);
    if (!error.empty()) return error;
    const Graph g = imported(parts).graph;
    const BufferId labels = g.reads(g.tasks.back())[1];
    return to_string(g.buffers[labels].shape) + " of " +
           std::to_string(g.buffers[g.reads(g.tasks.back())[0]].shape.back());
  };
  EXPECT_EQ(labels_of({5}), "[16] of 5");
  EXPECT_EQ(labels_of({7, 5}), "[16, 7] of 5");
  EXPECT_EQ(labels_of({5, 7, 3}), "[16, 7, 3] of 5");
  EXPECT_EQ(labels_of({5, 7, 3, 2}), "[16, 7, 3, 2] of 5");
  EXPECT_EQ(labels_of({5, 7, 1, 2, 3}), "[16, 7, 1, 2, 3] of 5");
  EXPECT_EQ(labels_of({5, 5, 1}), "[16, 5, 1] of 5");
}

// PyTorch's state_dict takes a tensor in no other shape.
TEST(OnnxImport, WeightsKeepTheShapesOfTheirFile) {
  const auto stored = [](const write::ModelParts& parts) {
    const Graph g = imported(parts).graph;
    EXPECT_EQ(load_graph_json(save_json(g)).parameters[0].stored_shape, g.parameters[0].stored_shape);
    std::vector<std::string> shapes;
    for (const Parameter& p : g.parameters)
      shapes.push_back(to_string(g.buffers[p.buffer].shape) +
                       (p.stored_shape ? " as " + to_string(*p.stored_shape) : ""));
    return shapes;
  };
  using Shapes = std::vector<std::string>;
  write::ModelParts conv = {.nodes = {node("Conv", {"x", "c.weight", "c.bias"}, {"y"})},
                            .initializers = {weight("c.weight", {4, 6, 3}), weight("c.bias", {4})},
                            .inputs = {write::value("x", {"batch", 6, 8})},
                            .outputs = {write::value("y", {"batch", 4, 6})}};
  EXPECT_EQ(stored(conv), (Shapes{"[4, 6, 1, 3] as [4, 6, 3]", "[4]"}));
  conv.nodes = {node("Conv", {"x", "c.weight", "c.bias"}, {"y"}, {attribute("group", 2)})};
  conv.initializers[0] = weight("c.weight", {4, 3, 3});
  EXPECT_EQ(stored(conv), (Shapes{"[2, 2, 3, 1, 3] as [4, 3, 3]", "[4]"}));
  const write::ModelParts norm = {
      .nodes = {node("LayerNormalization", {"x", "n.weight", "n.bias"}, {"y"}, {attribute("axis", -3)})},
      .initializers = {weight("n.weight", {3, 2, 4}), weight("n.bias", {3, 2, 4})},
      .inputs = {write::value("x", {"batch", 3, 2, 4})},
      .outputs = {write::value("y", {"batch", 3, 2, 4})}};
  EXPECT_EQ(stored(norm), (Shapes{"[24] as [3, 2, 4]", "[24] as [3, 2, 4]"}));
}

TEST(OnnxImport, RegressionHasTargets) {
  const Network n = imported(linear_model(), {.loss = "mse"});
  EXPECT_EQ(imported_ops(n.graph), (std::vector<Op>{Op::linear, Op::mse}));
}

TEST(OnnxImportErrors, AllUnsupportedNodesAtOnce) {
  write::ModelParts parts = linear_model();
  parts.nodes = {node("Det", {"x"}, {"a"}, {}, "first"), node("GridSample", {"a"}, {"b"}, {}, "second"),
                 node("STFT", {"x"}, {"c"}, {}, "third"), node("Add", {"b", "c"}, {"y"})};
  const std::string error = import_error_of(parts);
  EXPECT_TRUE(says(error, {"net.onnx: 3 of its nodes", "Det 'first'", "GridSample (PyTorch: grid_sample) 'second'",
                           "STFT (PyTorch: stft) 'third'"}));
  EXPECT_EQ(error.find("Add"), std::string::npos) << "it only waits for what is missing";
  // What can only be computed beforehand cannot follow data, but may follow a shape.
  parts.nodes = {node("Det", {"x"}, {"a"}, {}, "first"),
                 node("Relu", {"a"}, {"r"}),
                 node("Cos", {"r"}, {"y"}, {}, "last"),
                 node("Shape", {"a"}, {"s"}),
                 node("Cast", {"s"}, {"f"}, {attribute("to", 1)}),
                 node("Sin", {"f"}, {"g"}),
                 node("Add", {"y", "g"}, {"z"})};
  parts.outputs = {write::value("z", {"batch", 4})};
  EXPECT_TRUE(
      says(import_error_of(parts), {"2 of its nodes", "Det 'first'", "Cos 'last': of values that are not known"}));
}

// The dynamo exporter writes down what it called, in which module, and the shapes of all results.
TEST(OnnxImportErrors, UnsupportedNodesInPyTorchsWords) {
  const auto from = [](write::Message message, const char* module) {
    const std::string scopes = std::string("['', '") + module + "', 'call']";
    return message.message(9, write::Message().text(1, "pkg.torch.onnx.name_scopes").text(2, scopes))
        .message(
            9, write::Message()
                   .text(1, "pkg.torch.onnx.fx_node")
                   .text(2, "%e : [num_users=1] = call_function[target=torch.ops.aten.erfinv.default](args = (%x,))"));
  };
  write::ModelParts parts = linear_model();
  parts.nodes = {from(node("ErfInv", {"x"}, {"a"}, {}, "n1"), "up.0"),
                 from(node("ErfInv", {"a"}, {"b"}, {}, "n2"), "up.1"),
                 node("Pow", {"b", "exponent"}, {"c"}, {}, "/down/Pow"),
                 node("Gemm", {"c", "fc.weight", "fc.bias"}, {"y"}, {attribute("transB", 1)}, "fc")};
  parts.initializers.push_back(write::tensor<float>("exponent", {}, {7}));
  const std::string without = import_error_of(parts);
  EXPECT_TRUE(
      says(without, {"2 of its nodes", "ErfInv (PyTorch: aten.erfinv.default), 2 times, first 'n1' in module up.0"}));
  EXPECT_EQ(without.find("Pow"), std::string::npos) << "nothing is known of its input";
  parts.values = {write::value("b", {"batch", 6})};
  const std::string with_shapes = import_error_of(parts);
  EXPECT_TRUE(says(with_shapes, {"3 of its nodes", "2 times", "Pow '/down/Pow' in module down: an exponent"}));
  parts.nodes[3] = node("Reshape", {"c", "to"}, {"y"});
  parts.initializers.push_back(integers("to", {-1, 7}));
  EXPECT_EQ(import_error_of(parts).find("does not fit"), std::string::npos) << "what follows may follow from it";
}

// How to export for any batch is said where that is what is missing.
TEST(OnnxImportErrors, ABatchThatIsBakedIn) {
  write::ModelParts parts = linear_model(2);
  parts.nodes.push_back(node("Reshape", {"y", "to"}, {"z"}));
  parts.initializers.push_back(integers("to", {4, 2}));
  parts.outputs = {write::value("z", {4, 2})};
  EXPECT_TRUE(
      says(import_error_of(parts, with("batch=3")), {"dynamic_axes={\"x\": {0: \"batch\"}}", "dynamic_shapes"}));
}

TEST(OnnxImportErrors, ADimensionNobodyKnows) {
  write::ModelParts parts = language_model();
  parts.initializers.push_back(weight("onnx::MatMul_9", {3, 7}));
  parts.inputs = {write::value("ids", {"batch", "sequence"}, ElementType::i64)};
  EXPECT_TRUE(says(import_error_of(parts), {"sequence", "ids", "`set sequence=N`"}));
  EXPECT_EQ(import_error_of(parts, with("sequence=4")), "");
  EXPECT_TRUE(says(import_error_of(parts, with("length=4")), {"length", "batch, sequence"}));
  EXPECT_TRUE(says(import_error_of(parts, with("sequence=0")), {"sequence", "at least 1"}));
}

TEST(OnnxImportErrors, SecondInputsNoInputsNoOutputs) {
  write::ModelParts parts = linear_model();
  parts.inputs.push_back(write::value("speaker", {"batch", 6}));
  EXPECT_TRUE(says(import_error_of(parts), {"speaker", "single"}));
  parts.inputs.clear();
  EXPECT_TRUE(says(import_error_of(parts), {"net.onnx"}));
  parts = linear_model();
  parts.outputs.clear();
  EXPECT_TRUE(says(import_error_of(parts), {"no output"}));
  EXPECT_TRUE(says(import_error_of(linear_model(), {.output = "z"}), {"no output 'z'", "y"}));
  EXPECT_TRUE(says(import_error_of(linear_model(), {.loss = "hinge"}), {"`loss hinge`", "mse"}));
}

TEST(OnnxImportErrors, ShapesThatDoNotFit) {
  write::ModelParts parts = linear_model();
  parts.initializers[0] = weight("fc.weight", {4, 5});
  EXPECT_TRUE(says(import_error_of(parts), {"net.onnx", "fc"}));
  parts = linear_model();
  parts.initializers[1] = weight("fc.bias", {3});
  parts.nodes[0] = node("Conv", {"x", "fc.weight", "fc.bias"}, {"y"}, {}, "conv");
  EXPECT_TRUE(says(import_error_of(parts), {"conv"}));
}

TEST(OnnxImportErrors, PlacesOutsideATable) {
  write::ModelParts parts = language_model();
  parts.initializers.push_back(weight("onnx::MatMul_9", {3, 7}));
  parts.nodes.push_back(node("Gather", {"wpe.weight", "positions"}, {"p"}, {}, "wpe"));
  parts.nodes.push_back(node("Add", {"e", "p"}, {"sum"}));
  parts.nodes[1] = node("MatMul", {"sum", "onnx::MatMul_9"}, {"y"}, {}, "/head/MatMul");
  std::rotate(parts.nodes.begin() + 1, parts.nodes.begin() + 2, parts.nodes.end());
  parts.initializers.push_back(weight("wpe.weight", {5, 3}));
  parts.initializers.push_back(integers("positions", {0, 1, 2, 3, -1}));
  EXPECT_EQ(import_error_of(parts), "");
  parts.initializers.back() = integers("positions", {0, 1, 2, 3, 5});
  EXPECT_TRUE(says(import_error_of(parts), {"Gather 'wpe'", "index 5 into 5 rows"}));
}

TEST(OnnxImportErrors, AnOutputWithoutWeightsOrInput) {
  write::ModelParts parts = linear_model();
  parts.nodes = {node("Constant", {}, {"y"}, {attribute("value", weight("", {4}))})};
  EXPECT_TRUE(says(import_error_of(parts), {"does not depend on the input"}));
}

}  // namespace
}  // namespace overtake
