#include "base/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "temporary_folder.h"

namespace overtake {
namespace {

template <class T>
NamedTensor tensor_of(std::string name, StoredType type, std::vector<std::int64_t> dims, const std::vector<T>& values) {
  return owning_tensor(std::move(name), type, std::move(dims), std::as_bytes(std::span(values)));
}

std::vector<NamedTensor> one_of_each() {
  return {tensor_of<float>("conv1.weight", StoredType::f32, {2, 3}, {1.5f, -2.0f, 0.0f, 1e30f, -0.0f, 7.25f}),
          tensor_of<std::uint16_t>("embedding", StoredType::bf16, {3, 1}, {0x3F80, 0xC000, 0x7F80}),
          tensor_of<std::int32_t>("labels", StoredType::i32, {4}, {0, -1, INT32_MAX, INT32_MIN}),
          tensor_of<std::int64_t>("step", StoredType::i64, {}, {1234567890123}),
          tensor_of<std::uint8_t>("bytes \"quoted\" \xC3\xA4", StoredType::u8, {5}, {0, 1, 2, 254, 255}),
          tensor_of<float>("empty", StoredType::f32, {0, 7}, {})};
}

void expect_equal(const NamedTensor& actual, const NamedTensor& expected) {
  EXPECT_EQ(actual.name, expected.name);
  EXPECT_EQ(actual.type, expected.type) << expected.name;
  EXPECT_EQ(actual.dims, expected.dims) << expected.name;
  EXPECT_TRUE(std::equal(actual.bytes.begin(), actual.bytes.end(), expected.bytes.begin(), expected.bytes.end()))
      << expected.name;
}

// A file made by hand: the header's text, then the data.
std::string raw_file(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string content(sizeof(length), '\0');
  std::memcpy(content.data(), &length, sizeof(length));
  return content + header + std::string(data_bytes, 'x');
}

TEST(Safetensors, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  const auto tensors = one_of_each();
  const TensorMetadata metadata{{"writer", "overtake"}, {"note", "line\n\"quoted\""}};
  const WrittenTensors written = write_safetensors(folder.path() / "a.safetensors", tensors, metadata);
  const TensorFile file = read_safetensors(folder.path() / "a.safetensors");
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const NamedTensor& tensor : tensors) {
    const NamedTensor* found = find_tensor(file.tensors, tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    expect_equal(*found, tensor);
  }
  EXPECT_EQ(find_tensor(file.tensors, "none"), nullptr);

  const std::string content = read_file(folder.path() / "a.safetensors");
  EXPECT_EQ(written.bytes, std::ssize(content));
  EXPECT_EQ(written.hash, hash64(std::as_bytes(std::span(content))));
  EXPECT_EQ(file.hash, written.hash);
}

TEST(Safetensors, NoTensorsIsAFileToo) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "a", {});
  EXPECT_TRUE(read_safetensors(folder.path() / "a").tensors.empty());
}

TEST(Safetensors, TheBytesDoNotDependOnTheOrderGiven) {
  const TemporaryFolder folder;
  auto tensors = one_of_each();
  const auto first = write_safetensors(folder.path() / "a", tensors);
  std::reverse(tensors.begin(), tensors.end());
  EXPECT_EQ(write_safetensors(folder.path() / "b", tensors).hash, first.hash);
}

// Laid out by the format's description: the header's length, the header padded to 8, each tensor where it says.
TEST(Safetensors, FollowsTheFormat) {
  const TemporaryFolder folder;
  const auto tensors = one_of_each();
  write_safetensors(folder.path() / "a", tensors, {{"k", "v"}});
  const std::string content = read_file(folder.path() / "a");
  std::uint64_t length;
  std::memcpy(&length, content.data(), sizeof(length));
  EXPECT_EQ(length % 8, 0u);
  const auto header = nlohmann::json::parse(content.substr(8, length));
  EXPECT_EQ(header.size(), tensors.size() + 1);
  EXPECT_EQ(header["__metadata__"]["k"], "v");
  EXPECT_EQ(header["embedding"]["dtype"], "BF16");
  for (const NamedTensor& tensor : tensors) {
    const auto& entry = header[tensor.name];
    EXPECT_EQ(entry["shape"], tensor.dims);
    const auto begin = entry["data_offsets"][0].get<std::size_t>(), end = entry["data_offsets"][1].get<std::size_t>();
    EXPECT_EQ(begin % static_cast<std::size_t>(element_bytes(tensor.type)), 0u) << "aligned";
    ASSERT_EQ(end - begin, tensor.bytes.size());
    EXPECT_TRUE(tensor.bytes.empty() ||
                std::memcmp(content.data() + 8 + length + begin, tensor.bytes.data(), tensor.bytes.size()) == 0);
  }
}

TEST(Safetensors, TensorsOutliveTheFile) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "a", one_of_each());
  NamedTensor kept;
  {
    const TensorFile file = read_safetensors(folder.path() / "a");
    kept = *find_tensor(file.tensors, "labels");
  }
  expect_equal(kept, one_of_each()[2]);
}

TEST(Safetensors, OurOwnMistakesAreInternalErrors) {
  const TemporaryFolder folder;
  auto twice = one_of_each();
  twice.push_back(twice.front());
  EXPECT_THROW(write_safetensors(folder.path() / "a", twice), InternalError);
  auto wrong_size = one_of_each();
  wrong_size[0].dims = {7};
  EXPECT_THROW(write_safetensors(folder.path() / "a", wrong_size), InternalError);
  EXPECT_EQ(folder.file_count(), 0u) << "nothing is left behind";
}

TEST(Safetensors, EveryTruncationIsAUserError) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "a", one_of_each(), {{"k", "v"}});
  const std::string whole = read_file(folder.path() / "a");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto path = folder.write("cut", std::string_view(whole).substr(0, size));
    EXPECT_TRUE(says(user_error([&] { read_safetensors(path); }), {"cut: ", "; "})) << size;
  }
  EXPECT_TRUE(says(user_error([&] { read_safetensors(folder.write("long", whole + "x")); }), {"1 bytes behind"}));
}

// Any damage gives a user error or a file of tensors that lie within it; the sanitizers watch for the rest.
TEST(Safetensors, NoDamagedByteCrashes) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "a", one_of_each(), {{"k", "v"}});
  const std::string whole = read_file(folder.path() / "a");
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\0', '9', '"', '[', '}', '\xFF'}) {
      std::string damaged = whole;
      damaged[at] = value;
      const auto path = folder.write("damaged", damaged);
      try {
        for (const NamedTensor& tensor : read_safetensors(path).tensors) hash64(tensor.bytes);
      } catch (const UserError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

struct Malformed {
  const char* header;
  std::size_t data_bytes;
  std::initializer_list<std::string_view> says;
};

TEST(Safetensors, MalformedHeadersAreUserErrors) {
  const Malformed cases[] = {
      {"{", 0, {"not JSON"}},
      {"", 0, {"not JSON"}},
      {"[]", 0, {"not a JSON object"}},
      {"\xFF\xFE", 0, {"not JSON"}},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8,
       {"tensor w is there twice"}},
      {R"({"w":[[[[[1]]]]]})", 0, {"nested too deeply"}},
      {R"({"w":3})", 0, {"tensor w", "its entry"}},
      {R"({"w":{"dtype":"F32","shape":[2]}})", 0, {"tensor w", "its entry"}},
      {R"({"w":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", 8, {"tensor w", "its entry"}},
      {R"({"w":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8, {"tensor w", "its entry"}},
      {R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, {"tensor w", "its entry"}},
      {R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, {"tensor w", "its entry"}},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", 8, {"tensor w", "its entry"}},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", 8, {"tensor w", "its entry"}},
      {R"({"w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", 4, {"tensor w has type F8_E4M3", "convert"}},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, {"tensor w lies at bytes 8 to 0 of 8"}},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, {"tensor w lies at bytes 0 to 8 of 4"}},
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, {"tensor w", "shape [3] has 8 bytes"}},
      {R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, {"tensor w", "0 bytes"}},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6,
       {"tensor b overlaps a"}},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       4,
       {"tensor b overlaps a"}},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
       6,
       {"gap between a and tensor b"}},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, {"gap between the header and tensor a"}},
      {R"({"__metadata__":{"k":1}})", 0, {"__metadata__ is not a map of texts"}},
      {R"({"__metadata__":"k"})", 0, {"__metadata__ is not a map of texts"}},
  };
  const TemporaryFolder folder;
  for (const Malformed& malformed : cases) {
    const auto path = folder.write("bad.safetensors", raw_file(malformed.header, malformed.data_bytes));
    const std::string text = user_error([&] { read_safetensors(path); });
    EXPECT_TRUE(says(text, {"bad.safetensors: "}) && says(text, malformed.says)) << malformed.header;
  }
}

TEST(Safetensors, HeadersBeyondTheFileOrTheLimitAreUserErrors) {
  const TemporaryFolder folder;
  std::string content = raw_file("{}", 100);
  content[7] = '\x7F';
  EXPECT_TRUE(
      says(user_error([&] { read_safetensors(folder.write("a", content)); }), {"its header would take", "of 110"}));
  EXPECT_TRUE(says(user_error([&] { read_safetensors(folder.write("b", std::string(4096, '\x89'))); }),
                   {"b: its header would take", "no safetensors file"}));
  EXPECT_TRUE(says(user_error([&] { read_safetensors(folder.path() / "none"); }), {"none: cannot read"}));
}

TEST(Safetensors, AHeaderOfBracketsIsRefusedEarly) {
  const TemporaryFolder folder;
  const auto path = folder.write("deep", raw_file("{\"w\":" + std::string(1 << 20, '['), 0));
  EXPECT_TRUE(says(user_error([&] { read_safetensors(path); }), {"nested too deeply"}));
}

}  // namespace
}  // namespace overtake
