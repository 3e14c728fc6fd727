// PyTorch's list of a module's tensors, in the forms it has had.

#include "models/onnx/signature.h"

#include <gtest/gtest.h>

#include "onnx_writer.h"
#include "temporary_folder.h"

namespace overtake::onnx {
namespace {

constexpr const char* kLines = R"(
# inputs
p_scale: PARAMETER target='scale'
p_bn_weight: PARAMETER target='bn.weight'
b_mean: BUFFER target='mean' persistent=False
b_bn_running_mean: BUFFER target='bn.running_mean' persistent=True
c_lifted_tensor_0: CONSTANT_TENSOR target='lifted_tensor_0'
x: USER_INPUT

# outputs
getitem_3: BUFFER_MUTATION target='bn.running_mean'
add_2: USER_OUTPUT
)";

// As str(graph_signature) was before PyTorch 2.7.
constexpr const char* kSpecs =
    "ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_scale'), "
    "target='scale', persistent=None), InputSpec(kind=<InputKind.PARAMETER: 2>, "
    "arg=TensorArgument(name='p_bn_weight'), target='bn.weight', persistent=None), "
    "InputSpec(kind=<InputKind.BUFFER: 3>, arg=TensorArgument(name='b_mean'), target='mean', persistent=False), "
    "InputSpec(kind=<InputKind.BUFFER: 3>, arg=TensorArgument(name='b_bn_running_mean'), target='bn.running_mean', "
    "persistent=True), InputSpec(kind=<InputKind.CONSTANT_TENSOR: 4>, "
    "arg=TensorArgument(name='c_lifted_tensor_0'), target='lifted_tensor_0', persistent=None), "
    "InputSpec(kind=<InputKind.USER_INPUT: 1>, arg=TensorArgument(name='x'), target=None, persistent=None)], "
    "output_specs=[OutputSpec(kind=<OutputKind.BUFFER_MUTATION: 3>, arg=TensorArgument(name='getitem_3'), "
    "target='bn.running_mean'), OutputSpec(kind=<OutputKind.USER_OUTPUT: 1>, arg=TensorArgument(name='add_2'), "
    "target=None)])";

std::string signature_error(const std::string& text) {
  return user_error([&] { Signature(text, "net.onnx"); });
}

TEST(OnnxSignature, ListsParametersBuffersAndConstants) {
  using Kind = SignatureTensor::Kind;
  for (const char* text : {kLines, kSpecs}) {
    const Signature s(text, "net.onnx");
    ASSERT_EQ(s.tensors().size(), 5u);
    EXPECT_EQ(s.tensors()[0].name, "scale");
    const SignatureTensor* weight = s.of_argument("p_bn_weight");
    ASSERT_NE(weight, nullptr);
    EXPECT_EQ(weight->name, "bn.weight");
    EXPECT_EQ(weight->kind, Kind::parameter);
    EXPECT_TRUE(weight->is_persistent);
    const SignatureTensor* statistics = s.of_name("bn.running_mean");
    ASSERT_NE(statistics, nullptr);
    EXPECT_EQ(statistics->argument, "b_bn_running_mean");
    EXPECT_EQ(statistics->kind, Kind::buffer);
    EXPECT_TRUE(statistics->is_persistent);
    EXPECT_TRUE(statistics->is_updated);
    const SignatureTensor* mean = s.of_name("mean");
    ASSERT_NE(mean, nullptr);
    EXPECT_FALSE(mean->is_persistent);
    EXPECT_FALSE(mean->is_updated);
    EXPECT_EQ(s.of_name("lifted_tensor_0")->kind, Kind::constant);
    EXPECT_EQ(s.of_argument("x"), nullptr);
    EXPECT_EQ(s.of_name("fc.weight"), nullptr);
  }
}

TEST(OnnxSignature, AModelWithoutTensorsHasNone) {
  EXPECT_TRUE(Signature("\n# inputs\nx: USER_INPUT\n\n# outputs\nrelu: USER_OUTPUT\n", "net.onnx").tensors().empty());
}

TEST(OnnxSignature, WhatCannotBeReadIsRefused) {
  for (const char* text : {"", "{'p_scale': 'scale'}", "# inputs\np_scale PARAMETER", "# inputs\np_scale: PARAMETER",
                           "# inputs\np_a: PARAMETER target='a'\np_a: PARAMETER target='b'",
                           "ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, target='a')])"})
    EXPECT_TRUE(says(signature_error(text), {"net.onnx: PyTorch's list of the model's parameters", "graph_signature",
                                             "export the model again"}))
        << text;
}

TEST(OnnxSignature, IsReadFromTheGraphsMetadataOrTheModels) {
  const write::ModelParts parts{.nodes = {write::node("Relu", {"x"}, {"y"})},
                                .inputs = {write::value("x", {"batch", 3})},
                                .outputs = {write::value("y", {"batch", 3})}};
  EXPECT_FALSE(write::parsed(write::model(parts)).signature.has_value());
  write::ModelParts with_list = parts;
  with_list.graph_metadata = {write::metadata("other", "text"), write::metadata(Signature::kKey, kLines)};
  const File file = write::parsed(write::model(with_list));
  ASSERT_TRUE(file.signature.has_value());
  EXPECT_EQ(file.signature->tensors().size(), 5u);
  const std::string old_form =
      write::model(parts) + write::Message().message(14, write::metadata(Signature::kKey, kSpecs)).bytes();
  EXPECT_TRUE(write::parsed(old_form).signature.has_value());
}

}  // namespace
}  // namespace overtake::onnx
