#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "models/onnx/proto.h"
#include "onnx_writer.h"
#include "temporary_folder.h"

namespace overtake::onnx {
namespace {

using write::Message;

// The only initializer of a file that has this one.
Tensor read_initializer(const Message& tensor) {
  return write::parsed(write::model({.initializers = {tensor}})).initializers.at(0);
}
std::string tensor_error(const Message& tensor) {
  return user_error([&] { read_initializer(tensor); });
}

TEST(OnnxTensor, ReadsRawValuesOfEveryType) {
  EXPECT_EQ(values_of<double>(read_initializer(write::tensor<double>("t", {1}, {0.1}))), (std::vector<double>{0.1}));
  EXPECT_EQ(values_of<std::int64_t>(read_initializer(write::tensor<std::int64_t>("t", {2}, {-1, 5}))),
            (std::vector<std::int64_t>{-1, 5}));
  EXPECT_EQ(
      values_of<std::uint16_t>(read_initializer(write::tensor<std::uint16_t>("t", {1}, {0x3c00}, ElementType::f16))),
      (std::vector<std::uint16_t>{0x3c00}));
  EXPECT_EQ(read_initializer(write::tensor<std::uint8_t>("t", {2}, {0, 1}, ElementType::boolean)).type,
            ElementType::boolean);
  EXPECT_TRUE(read_initializer(write::tensor<float>("t", {0, 3}, {})).bytes.empty());
}

TEST(OnnxTensor, ReadsTypedValuesPackedOrNot) {
  const auto bare = [](ElementType type, std::int64_t count) { return write::bare_tensor("t", type, {count}); };
  const std::vector<float> floats{1.5f, -2};
  EXPECT_EQ(values_of<float>(read_initializer(bare(ElementType::f32, 2).packed_fixed(4, floats))), floats);
  EXPECT_EQ(values_of<float>(read_initializer(bare(ElementType::f32, 2).real(4, 1.5f).real(4, -2))), floats);
  EXPECT_EQ(values_of<float>(read_initializer(bare(ElementType::f32, 3).packed_fixed(4, floats).real(4, 7))),
            (std::vector<float>{1.5f, -2, 7}));
  EXPECT_EQ(values_of<double>(read_initializer(bare(ElementType::f64, 1).packed_fixed(10, std::vector<double>{0.1}))),
            (std::vector<double>{0.1}));
  EXPECT_EQ(
      values_of<std::int64_t>(read_initializer(bare(ElementType::i64, 3).packed_numbers(7, {1, -1}).number(7, 9))),
      (std::vector<std::int64_t>{1, -1, 9}));
  EXPECT_EQ(values_of<std::int32_t>(read_initializer(bare(ElementType::i32, 2).packed_numbers(5, {-7, 7}))),
            (std::vector<std::int32_t>{-7, 7}));
  EXPECT_EQ(values_of<std::int8_t>(read_initializer(bare(ElementType::i8, 2).packed_numbers(5, {-128, 127}))),
            (std::vector<std::int8_t>{-128, 127}));
  EXPECT_EQ(values_of<std::uint8_t>(read_initializer(bare(ElementType::boolean, 2).packed_numbers(5, {1, 0}))),
            (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(values_of<std::uint16_t>(read_initializer(bare(ElementType::bf16, 1).packed_numbers(5, {0xbf80}))),
            (std::vector<std::uint16_t>{0xbf80}));
  EXPECT_EQ(values_of<std::uint32_t>(read_initializer(bare(ElementType::u32, 1).packed_numbers(11, {0xffffffff}))),
            (std::vector<std::uint32_t>{0xffffffff}));
  EXPECT_EQ(values_of<std::uint64_t>(read_initializer(bare(ElementType::u64, 1).packed_numbers(11, {-1}))),
            (std::vector<std::uint64_t>{~std::uint64_t{0}}));
}

TEST(OnnxTensor, TextKeepsNoBytes) {
  const Tensor tensor = read_initializer(write::bare_tensor("t", ElementType::text, {1}).text(6, "abc"));
  EXPECT_EQ(tensor.type, ElementType::text);
  EXPECT_TRUE(tensor.bytes.empty());
}

TEST(OnnxTensor, WhatDoesNotFitIsRefused) {
  EXPECT_TRUE(says(tensor_error(write::tensor<float>("w", {3}, {1, 2})),
                   {"model.onnx", "tensor 'w'", "8 bytes", "float32", "[3]", "12"}));
  EXPECT_TRUE(says(tensor_error(write::bare_tensor("w", ElementType::f32, {1})), {"'w'", "0 bytes"}));
  EXPECT_TRUE(says(tensor_error(write::bare_tensor("w", ElementType::i32, {1}).packed_numbers(5, {1, 2})),
                   {"more numbers than its shape"}));
  EXPECT_TRUE(says(tensor_error(write::bare_tensor("w", ElementType::f32, {1}).real(4, 1).real(4, 2)),
                   {"more numbers than its shape"}));
  EXPECT_TRUE(
      says(tensor_error(write::bare_tensor("w", ElementType::u8, {1}).packed_numbers(5, {256})), {"uint8", "256"}));
  EXPECT_TRUE(says(tensor_error(write::bare_tensor("w", static_cast<ElementType>(22), {1})),
                   {"'w'", "element type 22", "float32"}));
  EXPECT_TRUE(says(tensor_error(write::bare_tensor("w", ElementType::f32, {-1})), {"'w'", "shape", "[-1]"}));
  const std::int64_t large = std::int64_t{1} << 31;
  EXPECT_TRUE(says(tensor_error(write::bare_tensor("w", ElementType::f32, {large + 1})), {"shape"}));
  EXPECT_TRUE(says(tensor_error(write::bare_tensor("w", ElementType::f32, {large, large, large})), {"shape"}));
  EXPECT_TRUE(says(tensor_error(write::bare_tensor("w", ElementType::f32, {large, large, 0})), {"shape"}));
  EXPECT_TRUE(
      says(tensor_error(write::bare_tensor("w", ElementType::f32, std::vector<std::int64_t>(33, 1))), {"shape"}));
}

// ---- external data

Message entry(std::string_view key, std::string_view value) { return Message().text(1, key).text(2, value); }

Message external(const std::string& location, const std::string& offset, const std::string& length,
                 std::vector<std::int64_t> dims = {2}) {
  Message tensor = write::bare_tensor("w", ElementType::f32, dims).message(13, entry("location", location));
  if (!offset.empty()) tensor.message(13, entry("offset", offset));
  if (!length.empty()) tensor.message(13, entry("length", length));
  return tensor.number(14, 1);
}

class OnnxExternalData : public ::testing::Test {
 protected:
  OnnxExternalData() {
    const std::vector<float> values{1, 2, 3, 4};
    folder_.write("w.bin", std::string_view(reinterpret_cast<const char*>(values.data()), 16));
  }
  File read(const Message& tensor) const {
    return read_file(folder_.write("m.onnx", write::model({.initializers = {tensor}})));
  }
  std::string error(const Message& tensor) const {
    return user_error([&] { read(tensor); });
  }

  TemporaryFolder folder_;
};

TEST_F(OnnxExternalData, IsReadOnceAndShared) {
  const std::string content =
      write::model({.initializers = {external("w.bin", "4", "8"), external("./w.bin", "", "", {4}).text(8, "v"),
                                     external("w.bin", "8", "").text(8, "u")}});
  const File file = read_file(folder_.write("m.onnx", content));
  EXPECT_EQ(values_of<float>(file.initializers.at(0)), (std::vector<float>{2, 3}));
  EXPECT_EQ(values_of<float>(file.initializers.at(1)), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values_of<float>(file.initializers.at(2)), (std::vector<float>{3, 4}));
  EXPECT_EQ(file.initializers[0].owner, file.initializers[1].owner);
  EXPECT_EQ(file.bytes, std::ssize(content) + 16);
}

TEST_F(OnnxExternalData, MustLieInTheFolder) {
  EXPECT_TRUE(says(error(external("/etc/passwd", "", "")), {"tensor 'w'", "/etc/passwd", "folder of the model"}));
  EXPECT_TRUE(says(error(external("../w.bin", "", "")), {"../w.bin", "folder of the model"}));
  EXPECT_TRUE(says(error(external("a/../../w.bin", "", "")), {"folder of the model"}));
  EXPECT_TRUE(says(error(external("", "", "")), {"folder of the model"}));
  EXPECT_TRUE(says(error(external(std::string("w.bin\0x", 7), "", "")), {"folder of the model"}));
  EXPECT_TRUE(says(error(external("none.bin", "", "")), {"none.bin", "not there"}));
  EXPECT_TRUE(says(error(external(".", "", "")), {"no file"}));
  const TemporaryFolder elsewhere;
  elsewhere.write("secret", "12345678");
  std::filesystem::create_symlink(elsewhere.path() / "secret", folder_.path() / "link");
  EXPECT_TRUE(says(error(external("link", "", "")), {"a link out of the folder"}));
}

// Caches of downloaded models: the model and its data are links into one other folder.
TEST_F(OnnxExternalData, MayLieWhereTheModelIsALinkTo) {
  const TemporaryFolder links;
  folder_.write("blob", write::model({.initializers = {external("data", "0", "8")}}));
  std::filesystem::create_symlink(folder_.path() / "blob", links.path() / "model.onnx");
  std::filesystem::create_symlink(folder_.path() / "w.bin", links.path() / "data");
  EXPECT_EQ(values_of<float>(read_file(links.path() / "model.onnx").initializers.at(0)), (std::vector<float>{1, 2}));
}

TEST_F(OnnxExternalData, PartsThatTheFileDoesNotHaveAreRefused) {
  EXPECT_TRUE(says(error(external("w.bin", "12", "8")), {"8 bytes from byte 12", "w.bin", "16"}));
  EXPECT_TRUE(says(error(external("w.bin", "17", "")), {"byte 17"}));
  EXPECT_TRUE(says(error(external("w.bin", "9223372036854775807", "8")), {"byte 9223372036854775807"}));
  EXPECT_TRUE(says(error(external("w.bin", "-4", "8")), {"offset", "'-4'"}));
  EXPECT_TRUE(says(error(external("w.bin", "0", "8x")), {"length", "'8x'"}));
  EXPECT_TRUE(says(error(external("w.bin", "0", "4")), {"4 bytes", "[2]", "8"}));
}

}  // namespace
}  // namespace overtake::onnx
