// What an export has lost, folded or merged of a PyTorch model is found, named and refused; what only looks so trains.

#include <gtest/gtest.h>

#include <algorithm>

#include "models/onnx/import.h"
#include "models/onnx/lost.h"
#include "unit/onnx_writer.h"
#include "unit/temporary_folder.h"

namespace overtake::lost {
namespace {

namespace write = onnx::write;
using write::attribute;
using write::node;
using Dims = std::vector<std::int64_t>;

Network imported(const write::ModelParts& parts, const ImportOptions& options = {}) {
  return import_onnx(std::make_shared<const std::string>(write::model(parts)), "net.onnx", options);
}

std::string error_of(const write::ModelParts& parts) {
  return user_error([&] { imported(parts); });
}

// Sorted.
std::vector<std::string> weights_of(const Network& n) {
  std::vector<std::string> names;
  for (const Parameter& p : n.graph.parameters) names.push_back(n.graph.buffer_name(p.buffer));
  std::ranges::sort(names);
  return names;
}

write::Message weight(const std::string& name, const Dims& dims, float first = 0.1f) {
  std::int64_t count = 1;
  for (const std::int64_t d : dims) count *= d;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(first + 0.01f * static_cast<float>(i));
  return write::tensor<float>(name, dims, values);
}

write::Message zeros(const std::string& name, std::int64_t count) {
  return write::tensor<float>(name, {count}, std::vector<float>(static_cast<std::size_t>(count), 0.0f));
}

// As torch.export records a call of one of PyTorch's operators in a module.
write::Message call(write::Message message, const std::string& result, const std::string& op,
                    const std::string& arguments, const std::string& module = "") {
  const std::string scopes = module.empty() ? "['', '" + result + "']" : "['', '" + module + "', '" + result + "']";
  return write::recorded(std::move(message),
                         "%" + result + " : [num_users=1] = call_function[target=torch.ops.aten." + op + "](args = (" +
                             arguments + "), kwargs = {})",
                         scopes);
}

// The entry of metadata that lists a module's tensors; the model's input is %x.
std::vector<write::Message> listing(const std::vector<std::string>& parameters,
                                    const std::vector<std::string>& buffers = {}) {
  std::string text = "\n# inputs\n";
  const auto argument = [](std::string name) {
    std::ranges::replace(name, '.', '_');
    return name;
  };
  for (const std::string& name : parameters) text += "p_" + argument(name) + ": PARAMETER target='" + name + "'\n";
  for (const std::string& name : buffers)
    text += "b_" + argument(name) + ": BUFFER target='" + name + "' persistent=True\n";
  text += "x: USER_INPUT\n\n# outputs\ny: USER_OUTPUT\n";
  return {write::metadata(onnx::Signature::kKey, text)};
}

// x [batch, 6] -> fc -> y [batch, 4]
write::ModelParts listed_linear() {
  return {.nodes = {call(node("Gemm", {"in", "fc.weight", "fc.bias"}, {"linear"}, {attribute("transB", 1)}), "linear",
                         "linear.default", "%x, %p_fc_weight, %p_fc_bias", "fc")},
          .initializers = {weight("fc.weight", {4, 6}), weight("fc.bias", {4})},
          .inputs = {write::value("in", {"batch", 6})},
          .outputs = {write::value("linear", {"batch", 4})},
          .graph_metadata = listing({"fc.weight", "fc.bias"})};
}

TEST(OnnxLost, AFileThatHasAllParametersIsTrained) {
  EXPECT_EQ(weights_of(imported(listed_linear())), (std::vector<std::string>{"fc.bias", "fc.weight"}));
}

TEST(OnnxLost, ABiasThatWasDropped) {
  write::ModelParts parts = listed_linear();
  parts.nodes = {call(node("Gemm", {"in", "fc.weight"}, {"linear"}, {attribute("transB", 1)}), "linear",
                      "linear.default", "%x, %p_fc_weight, %p_fc_bias", "fc")};
  EXPECT_TRUE(
      says(error_of(parts), {"net.onnx", "dropped or folded", "fc.bias (1)", "optimize=False", "`accept_folded`"}));
  std::vector<std::string> notes;
  ImportOptions accepting{.accept_folded = true};
  accepting.note = [&](const std::string& line) { notes.push_back(line); };
  EXPECT_EQ(weights_of(imported(parts, accepting)), (std::vector<std::string>{"fc.weight"}));
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_TRUE(says(notes[0], {"warning", "fc.bias (1)"}));
  EXPECT_TRUE(says(notes[1], {"does not say all that PyTorch trains"}));
}

TEST(OnnxLost, ABatchNormThatWasFoldedIntoItsConvolution) {
  write::ModelParts parts;
  parts.nodes = {
      call(node("Conv", {"in", "c.weight", "c.weight_bias"}, {"getitem"}), "_native_batch_norm_legit_functional",
           "_native_batch_norm_legit_functional.default",
           "%conv2d, %p_bn_weight, %p_bn_bias, %b_bn_running_mean, %b_bn_running_var, True, 0.1, 1e-05", "bn"),
      node("Flatten", {"getitem"}, {"y"})};
  parts.initializers = {weight("c.weight", {2, 1, 3, 3}), weight("c.weight_bias", {2})};
  parts.inputs = {write::value("in", {"batch", 1, 5, 5})};
  parts.outputs = {write::value("y", {"batch", 18})};
  parts.graph_metadata = listing({"c.weight", "bn.weight", "bn.bias"}, {"bn.running_mean", "bn.running_var"});
  EXPECT_TRUE(says(error_of(parts), {"bn.weight, bn.bias (2)"}));
}

// exp(scale) was computed by the export; nothing but the gap says so.
TEST(OnnxLost, AParameterWhoseCallsAreGone) {
  write::ModelParts parts = listed_linear();
  parts.nodes.push_back(call(node("Mul", {"linear", "exp"}, {"mul"}), "mul", "mul.Tensor", "%linear, %exp"));
  parts.initializers.push_back(write::tensor<float>("exp", {}, {14.0f}));
  parts.outputs = {write::value("mul", {"batch", 4})};
  parts.graph_metadata = listing({"scale", "fc.weight", "fc.bias"});
  EXPECT_TRUE(says(error_of(parts), {"scale (1)"}));
}

// A recurrent cell that starts from zeros: its first product is known to the export, which leaves the result. Its
// parameters are used elsewhere, so none of them is missing.
TEST(OnnxLost, ALayerOfKnownValuesThatOtherwiseIsThere) {
  write::ModelParts parts = listed_linear();
  parts.nodes = {call(node("Gemm", {"in", "fc.weight", "fc.bias"}, {"linear"}, {attribute("transB", 1)}), "linear",
                      "linear.default", "%x, %p_fc_weight, %p_fc_bias", "fc"),
                 call(node("Add", {"linear", "linear_1"}, {"add"}, {}, "node_add"), "add", "add.Tensor",
                      "%linear, %getitem_1", "cell")};
  parts.initializers.push_back(weight("linear_1", {1, 4}));
  parts.outputs = {write::value("add", {"batch", 4})};
  EXPECT_TRUE(says(error_of(parts), {"net.onnx", "folded layers", "linear_1 of module cell", "'node_add'", "(1)",
                                     "optimize=False", "`accept_folded`"}));
  // A parameter may be called so.
  parts.initializers.pop_back();
  parts.initializers.push_back(weight("linear_1", {4}));
  parts.nodes[1] =
      call(node("Add", {"linear", "linear_1"}, {"add"}, {}, "node_add"), "add", "add.Tensor", "%linear, %p_linear_1");
  parts.graph_metadata = listing({"fc.weight", "fc.bias", "linear_1"});
  EXPECT_EQ(weights_of(imported(parts)), (std::vector<std::string>{"fc.bias", "fc.weight", "linear_1"}));
}

TEST(OnnxLost, AParameterThatTheModelDoesNotUseIsNotLost) {
  write::ModelParts parts = listed_linear();
  parts.graph_metadata = listing({"fc.weight", "fc.bias", "pooler.weight"});
  EXPECT_EQ(imported(parts).graph.parameters.size(), 2u);
}

// The list has a tied weight under both names, calls under one.
TEST(OnnxLost, ATiedParameterIsNotLost) {
  write::ModelParts parts = listed_linear();
  parts.nodes = {call(node("Gemm", {"in", "b.weight"}, {"linear"}, {attribute("transB", 1)}), "linear",
                      "linear.default", "%x, %p_b_weight", "a"),
                 call(node("Gemm", {"linear", "b.weight"}, {"linear_1"}, {attribute("transB", 1)}), "linear_1",
                      "linear.default", "%clone, %p_b_weight", "b")};
  parts.initializers = {weight("b.weight", {6, 6})};
  parts.outputs = {write::value("linear_1", {"batch", 6})};
  parts.graph_metadata = listing({"a.weight", "b.weight"});
  EXPECT_EQ(weights_of(imported(parts)), (std::vector<std::string>{"b.weight"}));
}

TEST(OnnxLost, ATransposeThatWasComputedFromAParameter) {
  write::ModelParts parts;
  parts.nodes = {call(node("MatMul", {"in", "w"}, {"matmul"}), "matmul", "matmul.default", "%x, %p_w"),
                 call(node("MatMul", {"matmul", "t"}, {"matmul_1"}), "matmul_1", "matmul.default", "%matmul, %t")};
  parts.initializers = {weight("w", {6, 4}), weight("t", {4, 6})};
  parts.inputs = {write::value("in", {"batch", 6})};
  parts.outputs = {write::value("matmul_1", {"batch", 6})};
  parts.graph_metadata = listing({"w"});
  EXPECT_TRUE(says(error_of(parts), {"'t' of MatMul 'matmul_1' was computed by the export", "optimize=False"}));
}

// linear(x, w.t()): the file has both transposes, one of them from linear itself.
TEST(OnnxLost, ATransposeInTheFileIsTheParameter) {
  write::ModelParts parts;
  const auto turned = [](const std::string& from, const std::string& to) {
    return node("Transpose", {from}, {to}, {attribute("perm", Dims{1, 0})});
  };
  parts.nodes = {call(turned("w", "t"), "t", "t.default", "%p_w"),
                 call(turned("t", "val_0"), "linear", "linear.default", "%x, %t"),
                 call(node("MatMul", {"in", "val_0"}, {"linear"}), "linear", "linear.default", "%x, %t")};
  parts.initializers = {weight("w", {6, 4})};
  parts.inputs = {write::value("in", {"batch", 6})};
  parts.outputs = {write::value("linear", {"batch", 4})};
  parts.graph_metadata = listing({"w"});
  EXPECT_EQ(weights_of(imported(parts)), (std::vector<std::string>{"w"}));
}

// Equal tensors are stored once; the calls tell them apart, also a buffer from a parameter.
TEST(OnnxLost, CallsTellEqualTensorsApart) {
  write::ModelParts parts = listed_linear();
  parts.nodes.push_back(call(node("Mul", {"linear", "scale"}, {"mul"}), "mul", "mul.Tensor", "%linear, %p_scale"));
  parts.nodes.push_back(call(node("Mul", {"mul", "scale"}, {"mul_1"}), "mul_1", "mul.Tensor", "%mul, %b_mask"));
  parts.nodes.push_back(call(node("Mul", {"mul_1", "scale"}, {"mul_2"}), "mul_2", "mul.Tensor", "%p_gain, %mul_1"));
  parts.initializers.push_back(weight("scale", {4}));
  parts.outputs = {write::value("mul_2", {"batch", 4})};
  parts.graph_metadata = listing({"scale", "gain", "fc.weight", "fc.bias"}, {"mask"});
  const Network n = imported(parts);
  EXPECT_EQ(weights_of(n), (std::vector<std::string>{"fc.bias", "fc.weight", "gain", "mask", "scale"}));
  EXPECT_EQ(std::ranges::count(n.graph.parameters, true, &Parameter::is_frozen), 1) << "the buffer";
}

// The rewritten Split says nothing of where it comes from, and reads another module's bias.
TEST(OnnxLost, AParameterThatIsNowhereAfterRewriting) {
  write::ModelParts parts = listed_linear();
  parts.nodes = {call(node("Gemm", {"in", "a.weight", "a.bias"}, {"linear"}, {attribute("transB", 1)}), "linear",
                      "linear.default", "%x, %p_a_weight, %p_a_bias", "a"),
                 node("Split", {"a.bias"}, {"s0", "s1"}, {attribute("num_outputs", 2)}),
                 call(node("Add", {"linear", "s0"}, {"add"}), "add", "add.Tensor", "%linear, %getitem", "b")};
  parts.initializers = {weight("a.weight", {3, 6}), zeros("a.bias", 6)};
  parts.initializers[0] = weight("a.weight", {6, 6});
  parts.nodes[0] = call(node("Gemm", {"in", "a.weight", "a.bias"}, {"wide"}, {attribute("transB", 1)}), "wide",
                        "linear.default", "%x, %p_a_weight, %p_a_bias", "a");
  parts.nodes[2] = call(node("Concat", {"s0", "s1"}, {"cat"}, {attribute("axis", 0)}), "cat", "cat.default",
                        "[%getitem, %getitem_1]", "b");
  parts.nodes.push_back(call(node("Add", {"wide", "cat"}, {"add"}), "add", "add.Tensor", "%wide, %cat", "b"));
  parts.outputs = {write::value("add", {"batch", 6})};
  parts.graph_metadata = listing({"a.weight", "a.bias", "b.bias"});
  EXPECT_TRUE(says(error_of(parts), {"b.bias (1)"}));
}

TEST(OnnxLost, ManyNamesAreShortenedInTheMiddle) {
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("w" + std::to_string(i));
  EXPECT_EQ(onnx::shortened(names), "w0, w1, w2, w3, w4, w5, ..., w34, w35, w36, w37, w38, w39 (40)");
  names.resize(12);
  EXPECT_EQ(onnx::shortened(names), "w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11 (12)");
}

// ---- files of the older exporter, which have no list

// x [batch, 6] -> two products -> y [batch, 6]
write::ModelParts two_products(const std::string& first, const std::string& second, const std::string& module) {
  return {.nodes = {node("MatMul", {"x", first}, {"h"}, {}, "/" + module + "MatMul"),
                    node("MatMul", {"h", second}, {"y"}, {}, "/" + module + "MatMul_1")},
          .initializers = {weight("onnx::MatMul_1", {6, 6}), weight("onnx::MatMul_2", {6, 6}, 0.5f)},
          .inputs = {write::value("x", {"batch", 6})},
          .outputs = {write::value("y", {"batch", 6})}};
}

TEST(OnnxLost, TwoNamelessMatricesOfOneModuleAreNotOne) {
  const write::ModelParts parts = two_products("onnx::MatMul_1", "onnx::MatMul_2", "att/");
  EXPECT_TRUE(says(error_of(parts), {"'onnx::MatMul_1' and 'onnx::MatMul_2' would both be att.weight",
                                     "do_constant_folding=False", "TrainingMode.TRAINING", "`accept_folded`"}));
  EXPECT_EQ(weights_of(imported(parts, {.accept_folded = true})),
            (std::vector<std::string>{"att.weight", "att.weight.1"}));
}

TEST(OnnxLost, ANamelessMatrixWithoutAModuleIsRefused) {
  const write::ModelParts parts = two_products("onnx::MatMul_1", "onnx::MatMul_2", "");
  EXPECT_TRUE(says(error_of(parts), {"'onnx::MatMul_1' of MatMul '/MatMul' belongs to no module"}));
}

TEST(OnnxLost, ANamelessCopyOfAMatrixMayBeTiedOrNot) {
  write::ModelParts parts = two_products("w", "onnx::MatMul_2", "att/");
  std::vector<float> values, turned(36);
  for (std::size_t i = 0; i < 36; ++i) values.push_back(0.3f * static_cast<float>(i));
  for (std::size_t i = 0; i < 36; ++i) turned[i % 6 * 6 + i / 6] = values[i];
  parts.initializers = {write::tensor<float>("w", {6, 6}, values),
                        write::tensor<float>("onnx::MatMul_2", {6, 6}, turned)};
  EXPECT_TRUE(says(error_of(parts), {"'onnx::MatMul_2' of MatMul '/att/MatMul_1' is equal to 'w'"}));
}

TEST(OnnxLost, EqualNamelessMatricesMayBeTiedOrNot) {
  write::ModelParts parts = two_products("onnx::MatMul_1", "onnx::MatMul_3", "");
  parts.nodes[0] = node("MatMul", {"x", "onnx::MatMul_1"}, {"h"}, {}, "/a/MatMul");
  parts.nodes[1] = node("MatMul", {"h", "onnx::MatMul_3"}, {"y"}, {}, "/b/MatMul");
  parts.nodes.insert(parts.nodes.begin(), node("Identity", {"onnx::MatMul_1"}, {"onnx::MatMul_3"}));
  EXPECT_TRUE(says(error_of(parts), {"'onnx::MatMul_3' of MatMul '/b/MatMul' is equal to 'onnx::MatMul_1'"}));
}

TEST(OnnxLost, ANamelessVectorThatWasComputedIsRefused) {
  write::ModelParts parts = two_products("w", "w", "");
  parts.nodes = {node("MatMul", {"x", "w"}, {"h"}, {}, "/MatMul"),
                 node("Add", {"h", "onnx::Add_3"}, {"y"}, {}, "/att/Add")};
  parts.initializers = {weight("w", {6, 6}), weight("onnx::Add_3", {6})};
  EXPECT_TRUE(says(error_of(parts), {"'onnx::Add_3' of Add '/att/Add' was computed by the export"}));
}

// h = x w, y = h w': one parameter, used both ways round. Square, so that no shape tells.
TEST(OnnxLost, AMatrixAndItsTransposeAreOneParameter) {
  write::ModelParts parts = two_products("w", "t", "");
  parts.nodes.insert(parts.nodes.begin(), node("Transpose", {"w"}, {"t"}));
  parts.initializers = {weight("w", {6, 6})};
  const Network n = imported(parts, {.train_tensors = {"w"}});
  EXPECT_EQ(weights_of(n), (std::vector<std::string>{"w"}));
  ASSERT_EQ(n.graph.tasks.size(), 3u);
  EXPECT_EQ(n.graph.tasks[0].op, Op::linear);
  EXPECT_EQ(n.graph.tasks[1].op, Op::matmul);
  EXPECT_EQ(n.graph.reads(0)[1], n.graph.reads(1)[1]);
}

// Equal at the start, but PyTorch has two.
TEST(OnnxLost, ANamedCopyOfAnEmbeddingIsNotTied) {
  write::ModelParts parts;
  parts.nodes = {node("Gather", {"wte.weight", "ids"}, {"e"}, {}, "/wte/Gather"),
                 node("Transpose", {"head.weight"}, {"t"}, {}, "/head/Transpose"),
                 node("MatMul", {"e", "t"}, {"y"}, {}, "/head/MatMul")};
  parts.initializers = {weight("wte.weight", {7, 3}), weight("head.weight", {7, 3})};
  parts.inputs = {write::value("ids", {"batch", 5}, onnx::ElementType::i64)};
  parts.outputs = {write::value("y", {"batch", 5, 7})};
  EXPECT_EQ(weights_of(imported(parts)), (std::vector<std::string>{"head.weight", "wte.weight"}));
}

}  // namespace
}  // namespace overtake::lost
