#include "models/onnx/proto.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "models/onnx/proto_parts.h"
#include "onnx_writer.h"
#include "temporary_folder.h"

namespace overtake::onnx {
namespace {

using write::Message;

// What the reader says about a file.
std::string error_of(const std::string& content, const std::filesystem::path& path = "model.onnx") {
  return user_error([&] { write::parsed(content, path); });
}

std::string error_of(const write::ModelParts& parts) { return error_of(write::model(parts)); }

// ---- the wire format

std::string wire_error(const std::string& bytes) {
  const std::string file = "file";
  return user_error([&] {
    for (WireReader reader(std::as_bytes(std::span(bytes)), file, kWireAdvice); reader.next();) {
    }
  });
}

TEST(OnnxWire, ReadsEveryKindOfField) {
  const std::string file = "file";
  const Message message =
      Message().number(1, -1).number(2, 300).real(3, 1.5f).text(4, "abc").packed_numbers(5, {1, -2, 128});
  WireReader reader(std::as_bytes(std::span(message.bytes())), file, kWireAdvice);
  EXPECT_EQ(reader.count(2), 1u);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), 1u);
  EXPECT_EQ(reader.integer(), -1);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.integer(), 300);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.real(), 1.5f);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.text(), "abc");
  ASSERT_TRUE(reader.next());
  std::vector<std::int64_t> numbers;
  reader.append_integers(numbers);
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{1, -2, 128}));
  EXPECT_FALSE(reader.next());
}

TEST(OnnxWire, RefusesDamage) {
  EXPECT_TRUE(says(wire_error("\x08"), {"file: byte 0", "cut off", "damaged or no ONNX file"}));
  EXPECT_TRUE(says(wire_error("\x08\x80"), {"cut off"}));
  EXPECT_TRUE(says(wire_error("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), {"more than 64 bits"}));
  EXPECT_TRUE(says(wire_error("\x0d\x01\x02\x03"), {"cut off"}));
  EXPECT_TRUE(says(wire_error("\x09\x01\x02\x03"), {"cut off"}));
  EXPECT_TRUE(says(wire_error("\x0a\x05"
                              "abcd"),
                   {"5 bytes where 4 are left"}));
  EXPECT_TRUE(says(wire_error("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), {"bytes where 0 are left"}));
  EXPECT_TRUE(says(wire_error("\x0b"), {"wire type 3"}));
  EXPECT_TRUE(says(wire_error("\x0c"), {"wire type 4"}));
  EXPECT_TRUE(says(wire_error("\x0f"), {"wire type 7"}));
  EXPECT_TRUE(says(wire_error(std::string("\x00\x01", 2)), {"no field of that number"}));
  EXPECT_TRUE(says(wire_error("\xf8\xff\xff\xff\xff\x01\x01"), {"no field of that number"}));
}

TEST(OnnxWire, RefusesValuesOfAnotherTypeAndEndlessNesting) {
  const std::string file = "file";
  const Message message = Message().number(1, 7).text(2, "abc");
  WireReader reader(std::as_bytes(std::span(message.bytes())), file, kWireAdvice);
  reader.next();
  EXPECT_TRUE(says(user_error([&] { reader.text(); }), {"field 1 has wire type 0 instead of 2"}));
  EXPECT_TRUE(says(user_error([&] { reader.real(); }), {"wire type 0 instead of 5"}));
  reader.next();
  EXPECT_TRUE(says(user_error([&] { reader.integer(); }), {"byte 2", "wire type 2 instead of 0"}));
  std::vector<float> reals;
  EXPECT_TRUE(says(user_error([&] { reader.append_reals(reals); }), {"packed numbers are cut off"}));

  Message nested;
  for (int depth = 0; depth < 40; ++depth) nested = Message().message(1, nested);
  const auto descend = [&] {
    WireReader inner(std::as_bytes(std::span(nested.bytes())), file, kWireAdvice);
    while (inner.next()) inner = inner.message();
  };
  EXPECT_TRUE(says(user_error(descend), {"nested too deeply"}));
}

// ---- the whole file

TEST(OnnxProto, ReadsAModel) {
  const File file = write::parsed(
      write::model({.nodes = {write::node("Gemm", {"x", "w", ""}, {"h"}, {write::attribute("transB", 1)}, "/fc/Gemm"),
                              write::node("Relu", {"h"}, {"y"})},
                    .initializers = {write::tensor<float>("w", {2, 3}, {1, 2, 3, 4, 5, 6})},
                    .inputs = {write::value("x", {"batch", 3})},
                    .outputs = {write::value("y", {"batch", 2})},
                    .opset_imports = {write::opset_import("com.example", 99), write::opset_import("ai.onnx", 17)}}));
  EXPECT_EQ(file.path, "model.onnx");
  EXPECT_EQ(file.ir_version, 8);
  EXPECT_EQ(file.opset, 17);
  EXPECT_EQ(file.producer, "test");
  ASSERT_EQ(file.nodes.size(), 2u);
  EXPECT_EQ(file.nodes[0].op, "Gemm");
  EXPECT_EQ(file.nodes[0].name, "/fc/Gemm");
  EXPECT_EQ(file.nodes[0].inputs, (std::vector<std::string>{"x", "w", ""}));
  EXPECT_EQ(file.nodes[0].outputs, (std::vector<std::string>{"h"}));
  EXPECT_EQ(file.nodes[0].integer("transB", 0), 1);
  EXPECT_EQ(file.nodes[0].label(), "Gemm '/fc/Gemm'");
  EXPECT_EQ(file.nodes[1].label(), "Relu 'y'");
  ASSERT_EQ(file.initializers.size(), 1u);
  EXPECT_EQ(file.initializers[0].dims, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(values_of<float>(file.initializers[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(file.inputs.size(), 1u);
  EXPECT_EQ(file.inputs[0].name, "x");
  EXPECT_EQ(file.inputs[0].type, ElementType::f32);
  EXPECT_TRUE(file.inputs[0].has_shape);
  ASSERT_EQ(file.inputs[0].dims.size(), 2u);
  EXPECT_EQ(file.inputs[0].dims[0].value, -1);
  EXPECT_EQ(file.inputs[0].dims[0].symbol, "batch");
  EXPECT_EQ(file.inputs[0].dims[1].value, 3);
  ASSERT_EQ(file.outputs.size(), 1u);
  EXPECT_EQ(file.outputs[0].name, "y");
}

TEST(OnnxProto, RawWeightsAreViewsThatKeepTheFileAlive) {
  auto content = std::make_shared<const std::string>(
      write::model({.initializers = {write::tensor<float>("w", {4}, {1, 2, 3, 4})}}));
  const auto* first = reinterpret_cast<const std::byte*>(content->data());
  const auto* last = first + content->size();
  Tensor tensor = parse_file(content, "model.onnx").initializers.at(0);
  content.reset();
  EXPECT_TRUE(tensor.bytes.data() >= first && tensor.bytes.data() + tensor.bytes.size() <= last);
  EXPECT_EQ(values_of<float>(tensor), (std::vector<float>{1, 2, 3, 4}));
}

TEST(OnnxProto, InitializersThatAreInputsTooAreNoInputs) {
  const File file = write::parsed(write::model({.nodes = {write::node("Add", {"x", "w"}, {"y"})},
                                                .initializers = {write::tensor<float>("w", {1}, {1})},
                                                .inputs = {write::value("x", {1}), write::value("w", {1})}}));
  ASSERT_EQ(file.inputs.size(), 1u);
  EXPECT_EQ(file.inputs[0].name, "x");
}

TEST(OnnxProto, WhatIsNoModelIsRefused) {
  EXPECT_TRUE(says(error_of(""), {"model.onnx", "no graph", "damaged or no ONNX file"}));
  EXPECT_TRUE(says(error_of("PK\x03\x04 a zip archive"), {"model.onnx", "damaged or no ONNX file"}));
  const std::string good =
      write::model({.nodes = {write::node("Relu", {"x"}, {"y"})}, .inputs = {write::value("x", {1})}});
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(write::parsed(good.substr(0, length)), UserError) << length;
  }
  EXPECT_TRUE(says(error_of(Message().message(7, {}).message(7, {}).bytes()), {"second graph"}));
}

TEST(OnnxProto, OpsetsOutOfRangeAreRefused) {
  for (const std::int64_t opset : {-1, 12, 21}) {
    EXPECT_TRUE(
        says(error_of({.opset_imports = {write::opset_import("", opset)}}),
             {"model.onnx", "opset " + std::to_string(opset), "13 to 20", "torch.onnx.export(..., opset_version=18)"}));
  }
  EXPECT_TRUE(says(error_of({.opset_imports = {write::opset_import("other", 18)}}), {"opset 0"}));
  for (const std::int64_t opset : {13, 20}) {
    EXPECT_EQ(write::parsed(write::model({.opset_imports = {write::opset_import("", opset)}})).opset, opset);
  }
}

TEST(OnnxProto, ValuesAreMadeOnceAndBeforeTheyAreRead) {
  EXPECT_TRUE(says(error_of({.nodes = {write::node("Relu", {"x"}, {"y"}, {}, "act")}}),
                   {"model.onnx", "Relu 'act'", "reads value 'x'"}));
  EXPECT_TRUE(says(error_of({.nodes = {write::node("Relu", {"h"}, {"y"}), write::node("Relu", {"x"}, {"h"})},
                             .inputs = {write::value("x", {1})}}),
                   {"Relu 'y'", "'h'", "earlier node"}));
  EXPECT_TRUE(says(error_of({.nodes = {write::node("Relu", {"x"}, {"y"}), write::node("Tanh", {"x"}, {"y"})},
                             .inputs = {write::value("x", {1})}}),
                   {"'y' is made twice"}));
  EXPECT_TRUE(says(error_of({.nodes = {write::node("Relu", {"x"}, {"x"})}, .inputs = {write::value("x", {1})}}),
                   {"'x' is made twice"}));
  EXPECT_TRUE(says(error_of({.inputs = {write::value("x", {1}), write::value("x", {1})}}), {"'x' is made twice"}));
  EXPECT_TRUE(says(error_of({.initializers = {write::tensor<float>("w", {}, {1}), write::tensor<float>("w", {}, {1})}}),
                   {"'w' is made twice"}));
  EXPECT_TRUE(says(error_of({.outputs = {write::value("y", {1})}}), {"nothing makes", "'y'"}));
}

TEST(OnnxProto, PartsWithoutANameAreRefused) {
  EXPECT_TRUE(says(error_of({.nodes = {write::node("", {}, {"y"})}}), {"a node has no op"}));
  EXPECT_TRUE(says(error_of({.nodes = {write::node("Relu", {}, {"y"}, {write::attribute("", 1)})}}),
                   {"an attribute has no name"}));
  EXPECT_TRUE(says(error_of({.initializers = {write::tensor<float>("", {}, {1})}}), {"an initializer has no name"}));
  EXPECT_TRUE(says(error_of({.inputs = {write::value("", {1})}}), {"input or output has no name"}));
  EXPECT_TRUE(says(error_of({.functions = {write::function({})}}), {"a function has no name"}));
}

TEST(OnnxProto, ForeignValuesAreRefused) {
  const auto input_of = [](std::uint32_t type_field) {
    return Message().text(1, "x").message(2, Message().message(type_field, {}));
  };
  EXPECT_TRUE(says(error_of({.inputs = {input_of(4)}}), {"'x'", "of kind sequence", "plain tensors"}));
  EXPECT_TRUE(says(error_of({.inputs = {input_of(5)}}), {"of kind map"}));
  EXPECT_TRUE(says(error_of({.outputs = {input_of(8)}}), {"of kind sparse tensor"}));
  EXPECT_TRUE(says(error_of({.outputs = {input_of(9)}}), {"of kind optional"}));
  EXPECT_TRUE(says(error_of(Message().message(7, Message().message(15, {})).bytes()), {"sparse initializers"}));
}

TEST(OnnxProto, NamesInErrorsArePrintable) {
  const std::string text = error_of({.nodes = {write::node("Relu", {"a\x1b[31m\n" + std::string(1000, 'b')}, {"y"})}});
  EXPECT_TRUE(says(text, {"a\\x1b[31m\\x0abbb", "..."}));
  EXPECT_LT(text.size(), 500u);
}

// They go into files that are UTF-8.
TEST(OnnxProto, NamesThatAreNoUtf8AreRefused) {
  EXPECT_TRUE(
      says(error_of({.nodes = {write::node("Relu", {"x"}, {"y"}, {}, "a\xff")}, .inputs = {write::value("x", {1})}}),
           {"model.onnx", "name of a node is not UTF-8", "'a\\xff'", "rename it"}));
  EXPECT_TRUE(says(error_of({.initializers = {write::tensor<float>("w\xff", {}, {1})}}), {"a tensor is not UTF-8"}));
  EXPECT_TRUE(says(error_of({.inputs = {write::value("\xff", {1})}}), {"an input is not UTF-8"}));
  EXPECT_TRUE(says(error_of(write::model({}), "m\xff.onnx"), {"m\\xff.onnx", "name of the file is not UTF-8"}));
}

TEST(OnnxProto, InputsMayHaveNoShape) {
  const Message input = Message().text(1, "x").message(2, Message().message(1, Message().number(1, 1)));
  const File file = write::parsed(write::model({.inputs = {input, write::value("s", {})}}));
  EXPECT_FALSE(file.inputs.at(0).has_shape);
  EXPECT_TRUE(file.inputs.at(1).has_shape);
  EXPECT_TRUE(file.inputs.at(1).dims.empty());
}

// ---- attributes

TEST(OnnxProto, ReadsAttributesOfEveryKind) {
  const Message every = write::node(
      "Op", {}, {"y"},
      {write::attribute("int", -7), write::attribute("float", 0.5f), write::attribute("text", "SAME_UPPER"),
       write::attribute("tensor", write::tensor<std::int32_t>("", {2}, {3, 4})),
       write::attribute("floats", std::vector<float>{1, 2}), write::attribute("ints", std::vector<std::int64_t>{1, -1}),
       write::attribute("texts", std::vector<std::string>{"a", "b"}),
       Message().text(1, "graph").message(6, {}).number(20, 5), Message().text(1, "tensors").number(20, 9)});
  const Node node = write::parsed(write::model({.nodes = {every}})).nodes.at(0);
  EXPECT_EQ(node.integer("int", 0), -7);
  EXPECT_EQ(node.real("float", 0), 0.5f);
  EXPECT_EQ(node.text("text", ""), "SAME_UPPER");
  EXPECT_EQ(values_of<std::int32_t>(node.find("tensor")->tensor), (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(node.find("floats")->reals, (std::vector<float>{1, 2}));
  EXPECT_EQ(node.integers("ints", {}), (std::vector<std::int64_t>{1, -1}));
  EXPECT_EQ(node.find("texts")->texts, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(node.find("graph")->kind, Attribute::Kind::graph);
  EXPECT_EQ(node.find("tensors")->kind, Attribute::Kind::other);

  EXPECT_EQ(node.find("none"), nullptr);
  EXPECT_EQ(node.integer("none", 3), 3);
  EXPECT_EQ(node.real("none", 0.25f), 0.25f);
  EXPECT_EQ(node.text("none", "d"), "d");
  EXPECT_EQ(node.integers("none", {1}), (std::vector<std::int64_t>{1}));
  EXPECT_TRUE(says(user_error([&] { node.integer("text", 0); }), {"Op 'y'", "attribute text is not a whole number"}));
  EXPECT_TRUE(says(user_error([&] { node.real("int", 0); }), {"attribute int is not a number"}));
  EXPECT_TRUE(says(user_error([&] { node.text("int", ""); }), {"attribute int is not a text"}));
  EXPECT_TRUE(says(user_error([&] { node.integers("int", {}); }), {"attribute int is not a list of whole numbers"}));
}

TEST(OnnxProto, AttributesWithoutATypeAndUnpackedNumbers) {
  const Message numbers = Message().text(1, "axes").number(8, 1).number(8, 2);
  const Message reals = Message().text(1, "scales").real(7, 1).real(7, 2);
  const Node node =
      write::parsed(write::model({.nodes = {write::node("Op", {}, {"y"}, {numbers, reals})}})).nodes.at(0);
  EXPECT_EQ(node.integers("axes", {}), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(node.find("scales")->reals, (std::vector<float>{1, 2}));
  EXPECT_EQ(node.find("scales")->kind, Attribute::Kind::reals);
}

TEST(OnnxProto, AttributesThatAreWrongAreRefused) {
  const auto with = [](const Message& attribute) {
    return write::ModelParts{.nodes = {write::node("Op", {}, {"y"}, {attribute})}};
  };
  EXPECT_TRUE(says(error_of(with(Message().text(1, "value").number(20, 4))), {"attribute 'value' has no value"}));
  EXPECT_TRUE(says(error_of(with(write::reference("axis", "dim"))), {"Op 'y'", "attribute axis", "function"}));
  EXPECT_TRUE(says(error_of(with(Message().text(1, "axis").text(3, "x"))), {"wire type 2 instead of 0"}));
}

}  // namespace
}  // namespace overtake::onnx
