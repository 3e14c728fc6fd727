// A model from a file, through every command.

#include <gtest/gtest.h>

#include "base/safetensors.h"
#include "command.h"
#include "unit/npy_writer.h"
#include "unit/onnx_writer.h"

namespace overtake::tests {
namespace {

namespace write = onnx::write;

write::Message weight(const std::string& name, const std::vector<std::int64_t>& dims) {
  std::int64_t count = 1;
  for (const std::int64_t d : dims) count *= d;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(0.3f * static_cast<float>((i * 7 + 3) % 11 - 5) / 5.0f);
  return write::tensor<float>(name, dims, values);
}

// Two layers over 12 features, as PyTorch would export them.
std::string two_layers() {
  using write::attribute;
  using write::node;
  return write::model({.nodes = {node("Gemm", {"x", "fc1.weight", "fc1.bias"}, {"h"}, {attribute("transB", 1)}, "fc1"),
                                 node("Relu", {"h"}, {"r"}),
                                 node("Gemm", {"r", "fc2.weight", "fc2.bias"}, {"y"}, {attribute("transB", 1)}, "fc2")},
                       .initializers = {weight("fc1.weight", {8, 12}), weight("fc1.bias", {8}),
                                        weight("fc2.weight", {4, 8}), weight("fc2.bias", {4})},
                       .inputs = {write::value("x", {"batch", 12})},
                       .outputs = {write::value("y", {"batch", 4})}});
}

class OnnxCommands : public testing::Test {
 protected:
  OnnxCommands() { write_text(file_, two_layers()); }

  const ScratchFolder folder_;
  const std::string file_ = folder_ / "net.onnx";
  const std::string run_ = "train " + file_ + " --data synthetic:128 --batch 16 --lr 0.1 --schedule in-order --json ";
};

TEST_F(OnnxCommands, TrainsFromTheFilesWeightsAndResumes) {
  const CommandResult straight = overtake(run_ + "--steps 12");
  ASSERT_EQ(straight.exit_code, 0) << straight.err;
  ASSERT_EQ(overtake(run_ + "--steps 5 --save " + (folder_ / "half")).exit_code, 0);
  const CommandResult resumed = overtake(run_ + "--steps 12 --resume " + (folder_ / "half"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.json().at("weights_hash"), straight.json().at("weights_hash"));
  // The seed orders the samples; at a rate of nothing it changes nothing, for no weight is drawn.
  const std::string still = "train " + file_ + " --data synthetic:128 --steps 1 --lr 0 --schedule in-order --json ";
  EXPECT_EQ(overtake(still + "--seed 1").json().at("weights_hash"),
            overtake(still + "--seed 2").json().at("weights_hash"));
}

TEST_F(OnnxCommands, ExportsUnderTheNamesOfTheFileAndStartsFromIt) {
  const std::string save = folder_ / "run", weights = folder_ / "w.safetensors";
  const CommandResult trained = overtake(run_ + "--steps 6 --save " + save);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const CommandResult exported = overtake("export " + save + " -o " + weights + " --json");
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(exported.json().at("tensors"), 4);
  EXPECT_EQ(exported.json().at("step"), 6);
  std::vector<std::string> names;
  for (const NamedTensor& t : read_safetensors(weights).tensors) names.push_back(t.name);
  EXPECT_EQ(names, (std::vector<std::string>{"fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"}));
  const CommandResult still = overtake("train " + file_ + " --data synthetic:128 --batch 16 --steps 1 --lr 0 --json " +
                                       "--schedule in-order --init " + weights);
  ASSERT_EQ(still.exit_code, 0) << still.err;
  EXPECT_EQ(still.json().at("weights_hash"), trained.json().at("weights_hash"));
}

TEST_F(OnnxCommands, BenchAndModelsTakeTheFile) {
  const CommandResult bench = overtake("bench " + file_ + " --batch 4 --steps 2 --schedules in-order,ooo --json");
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_EQ(bench.json().at("rows")[0].at("weights_hash"), bench.json().at("rows")[1].at("weights_hash"));
  const CommandResult models = overtake("models " + file_ + " --json");
  ASSERT_EQ(models.exit_code, 0) << models.err;
  EXPECT_EQ(models.json().at("models")[0].at("parameters"), 8 * 12 + 8 + 4 * 8 + 4);
}

TEST_F(OnnxCommands, ModelsSaysWhatIsInAFile) {
  using nlohmann::json;
  using write::node;
  const std::vector<float> mask = {1, 0, 1, 1};
  write_text(
      file_,
      write::model(
          {.nodes = {node("BatchNormalization", {"x", "n.weight", "n.bias", "n.running_mean", "n.running_var"}, {"b"}),
                     node("MatMul", {"b", "onnx::MatMul_7"}, {"m"}, {}, "/fc/MatMul"),
                     node("Add", {"m", "fc.bias"}, {"h"}, {}, "/fc/Add"), node("Sigmoid", {"h"}, {"s"}),
                     node("Mul", {"h", "s"}, {"g"}),
                     node("Constant", {}, {"mask"}, {write::attribute("value", write::tensor<float>("", {4}, mask))}),
                     node("Mul", {"g", "mask"}, {"y"})},
           .initializers = {weight("n.weight", {12}), weight("n.bias", {12}), weight("n.running_mean", {12}),
                            weight("n.running_var", {12}), weight("onnx::MatMul_7", {12, 4}), weight("fc.bias", {4})},
           .inputs = {write::value("x", {"batch", 12})},
           .outputs = {write::value("y", {"batch", 4})}}));
  const json m = overtake("models " + file_ + " --json").json().at("models")[0];
  EXPECT_EQ(m.at("inputs"), json::parse(R"([{"name": "x", "type": "float32", "shape": ["batch", 12]}])"));
  EXPECT_EQ(m.at("outputs"), json::parse(R"([{"name": "y", "type": "float32", "shape": ["batch", 4]}])"));
  EXPECT_EQ(m.at("trained").size(), 4u);
  EXPECT_EQ(m.at("trained")[2], json::parse(R"({"name": "fc.weight", "shape": [4, 12]})"));
  EXPECT_EQ(m.at("statistics").size(), 2u);
  EXPECT_EQ(m.at("frozen").size(), 0u);
  ASSERT_EQ(m.at("constants").size(), 1u);
  EXPECT_EQ(m.at("constants")[0].at("shape"), json::parse("[4]"));
  EXPECT_EQ(m.at("layers"), json::parse(R"({"batch_norm": 1, "linear": 1, "silu": 1})"));
  EXPECT_EQ(m.at("put_together"), json::parse(R"({"silu": 1})"));
  const std::string text = overtake("models " + file_).out;
  for (const char* said :
       {"x [batch, 12] float32", "4 tensors, 76 numbers: n.weight [12], n.bias [12]", "n.running_var [12]", "1 silu"})
    EXPECT_NE(text.find(said), std::string::npos) << said << " is not in\n" << text;
}

// Over images, PyTorch's normalisation has weights of several dimensions, and its convolution over sequences three.
TEST_F(OnnxCommands, WeightsGoBackInTheShapesTheyCameIn) {
  using write::attribute;
  using write::node;
  const std::vector<std::int64_t> to = {-1, 4, 2, 3};
  write_text(
      file_,
      write::model(
          {.nodes = {node("Conv", {"x", "conv.weight", "conv.bias"}, {"c"}), node("Reshape", {"c", "to"}, {"r"}),
                     node("LayerNormalization", {"r", "norm.weight", "norm.bias"}, {"n"}, {attribute("axis", -3)}),
                     node("Flatten", {"n"}, {"y"})},
           .initializers = {weight("conv.weight", {4, 2, 3}), weight("conv.bias", {4}),
                            weight("norm.weight", {4, 2, 3}), weight("norm.bias", {4, 2, 3}),
                            write::tensor<std::int64_t>("to", {4}, to)},
           .inputs = {write::value("x", {"batch", 2, 8})},
           .outputs = {write::value("y", {"batch", 24})}}));
  const std::string save = folder_ / "run", weights = folder_ / "w.safetensors";
  const CommandResult trained = overtake(run_ + "--steps 3 --save " + save);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  ASSERT_EQ(overtake("export " + save + " -o " + weights).exit_code, 0);
  const std::vector<std::int64_t> of_bias = {4}, of_others = {4, 2, 3};
  for (const NamedTensor& t : read_safetensors(weights).tensors)
    EXPECT_EQ(t.dims, t.name == "conv.bias" ? of_bias : of_others) << t.name;
  const CommandResult still = overtake("train " + file_ + " --data synthetic:128 --batch 16 --steps 1 --lr 0 --json " +
                                       "--schedule in-order --init " + weights);
  ASSERT_EQ(still.exit_code, 0) << still.err;
  EXPECT_EQ(still.json().at("weights_hash"), trained.json().at("weights_hash"));
  const CommandResult resumed = overtake(run_ + "--steps 4 --resume " + save);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
}

// Images that are to come out as they went in are compared value by value, not with the channels moved.
TEST_F(OnnxCommands, TargetsOfImagesAreNotTurned) {
  const std::vector<float> identity = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  write_text(file_, write::model({.nodes = {write::node("Conv", {"x", "c.weight"}, {"y"})},
                                  .initializers = {write::tensor<float>("c.weight", {3, 3, 1, 1}, identity)},
                                  .inputs = {write::value("x", {"batch", 3, 2, 5})},
                                  .outputs = {write::value("y", {"batch", 3, 2, 5})}}));
  std::vector<float> images;
  for (int i = 0; i < 4 * 30; ++i) images.push_back(static_cast<float>(i));
  const std::string x = folder_ / "x.npy";
  write_text(x, npy("<f4", "(4, 3, 2, 5)", images));
  const CommandResult r =
      overtake("train " + file_ + " --loss mse --batch 4 --steps 1 --lr 0 --schedule in-order --json" +
               " --data npy:" + x + "," + x + "," + x + "," + x);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.json().at("loss"), 0.0);
  EXPECT_EQ(r.json().at("test_loss"), 0.0);
}

TEST_F(OnnxCommands, FrozenWeightsStay) {
  const std::string save = folder_ / "run", weights = folder_ / "w.safetensors";
  ASSERT_EQ(overtake(run_ + "--steps 3 --freeze fc1. --save " + save).exit_code, 0);
  ASSERT_EQ(overtake("export " + save + " -o " + weights).exit_code, 0);
  const TensorFile trained = read_safetensors(weights);
  ASSERT_EQ(trained.tensors.size(), 4u);
  const std::string start = folder_ / "start", fresh = folder_ / "start.safetensors";
  ASSERT_EQ(overtake("train " + file_ + " --data synthetic:128 --steps 1 --lr 0 --schedule in-order --save " + start)
                .exit_code,
            0);
  ASSERT_EQ(overtake("export " + start + " -o " + fresh).exit_code, 0);
  const TensorFile untrained = read_safetensors(fresh);
  for (const NamedTensor& t : trained.tensors)
    EXPECT_EQ(std::ranges::equal(t.bytes, find_tensor(untrained.tensors, t.name)->bytes), t.name.starts_with("fc1."))
        << t.name;
}

// PyTorch's list has a parameter of which the file's only call is left.
TEST_F(OnnxCommands, WhatTheExportLostIsNamedAndCanBeAccepted) {
  const std::string list =
      "\n# inputs\np_fc_weight: PARAMETER target='fc.weight'\np_fc_bias: PARAMETER target='fc.bias'\nx: USER_INPUT\n";
  const write::Message product = write::recorded(
      write::node("Gemm", {"x", "fc.weight"}, {"y"}, {write::attribute("transB", 1)}),
      "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_fc_weight, "
      "%p_fc_bias), kwargs = {})",
      "['', 'fc', 'linear']");
  write_text(file_, write::model({.nodes = {product},
                                  .initializers = {weight("fc.weight", {4, 12})},
                                  .inputs = {write::value("x", {"batch", 12})},
                                  .outputs = {write::value("y", {"batch", 4})},
                                  .graph_metadata = {write::metadata(onnx::Signature::kKey, list)}}));
  const CommandResult refused = overtake(run_ + "--steps 2");
  EXPECT_EQ(refused.exit_code, 2);
  for (const char* part : {"net.onnx", "fc.bias (1)", "optimize=False", "--accept-folded"})
    EXPECT_NE(refused.err.find(part), std::string::npos) << part << ": " << refused.err;
  const std::string save = folder_ / "run";
  const CommandResult accepted = overtake(run_ + "--steps 2 --accept-folded --save " + save);
  EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_NE(accepted.err.find("fc.bias (1)"), std::string::npos) << accepted.err;
  EXPECT_EQ(overtake(run_ + "--steps 4 --accept-folded --resume " + save).exit_code, 0);
  EXPECT_EQ(overtake("models " + file_).exit_code, 0);
}

// A state_dict has a tensor that the file has lost.
TEST_F(OnnxCommands, AStateDictTellsWhatTheExportLost) {
  const std::string weights = folder_ / "state.safetensors";
  std::vector<NamedTensor> tensors;
  const std::vector<float> values(8 * 12, 0.25f);
  const auto add = [&](const char* name, const std::vector<std::int64_t>& dims) {
    std::size_t count = 1;
    for (const std::int64_t d : dims) count *= static_cast<std::size_t>(d);
    tensors.push_back(owning_tensor(name, StoredType::f32, dims, std::as_bytes(std::span(values).first(count))));
  };
  add("fc1.weight", {8, 12});
  add("fc1.bias", {8});
  add("fc2.weight", {4, 8});
  add("fc2.bias", {4});
  add("norm.weight", {12});
  write_safetensors(weights, tensors);
  const CommandResult refused = overtake(run_ + "--steps 2 --init " + weights);
  EXPECT_EQ(refused.exit_code, 2);
  for (const char* part : {"norm.weight (1)", "do_constant_folding=False", "--init-skip", "--accept-folded"})
    EXPECT_NE(refused.err.find(part), std::string::npos) << part << ": " << refused.err;
  EXPECT_EQ(overtake(run_ + "--steps 2 --accept-folded --init " + weights).exit_code, 0);
  EXPECT_EQ(overtake(run_ + "--steps 2 --init-skip norm. --init " + weights).exit_code, 0);
}

}  // namespace
}  // namespace overtake::tests
