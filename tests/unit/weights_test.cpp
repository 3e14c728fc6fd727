// Weights in files of other programs: found by name, fitted, given back.

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "overtake/zoo.h"
#include "train/weights.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

NamedTensor numbers(const std::string& name, const std::vector<std::int64_t>& dims, float first = 1) {
  std::int64_t count = 1;
  for (const std::int64_t d : dims) count *= d;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i));
  return owning_tensor(name, StoredType::f32, dims, std::as_bytes(std::span(values)));
}

// A file with every weight and state of a graph, as PyTorch would have written it.
TensorFile file_of(const Graph& g) {
  TensorFile file;
  float first = 0;
  for (const Parameter& p : g.parameters)
    file.tensors.push_back(numbers(g.buffer_name(p.buffer), stored_dims(g, p), first += 1000));
  return file;
}

Graph network(const std::string& name, const std::string& settings) {
  return build_model(name, ModelSettings::parse(settings));
}

const Graph& small_gpt() {
  static const Graph g = network("gpt2", "layers=1,width=8,heads=2,vocabulary=11,positions=6,sequence=4,batch=2");
  return g;
}

std::string error_of(const Graph& g, const TensorFile& file, const std::vector<std::string>& skip = {}) {
  try {
    find_weights(g, file, skip, "`init w.safetensors`");
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Weights, AreFoundUnderTheirNames) {
  const Graph g = network("cnn", "width=4,batch=2");
  const FoundWeights found = find_weights(g, file_of(g), {}, "f");
  EXPECT_EQ(found.tensors.size(), g.parameters.size());
  EXPECT_EQ(found.names.remove + found.names.add, "");
}

TEST(Weights, TransposedOnesKeepTheirValues) {
  const Graph& g = small_gpt();
  for (const Parameter& p : g.parameters) {
    const Shape& shape = g.buffers[p.buffer].shape;
    const NamedTensor stored = numbers("x", stored_dims(g, p));
    const std::vector<std::byte> ours = from_stored(g, p, stored.bytes);
    EXPECT_EQ(to_stored(g, p, ours), std::vector<std::byte>(stored.bytes.begin(), stored.bytes.end()));
    if (!p.stored_transposed) continue;
    ASSERT_EQ(stored.dims, (std::vector<std::int64_t>{shape[1], shape[0]}));
    float first_of_second_row;  // ours [1, 0] is theirs [0, 1]
    std::memcpy(&first_of_second_row, ours.data() + static_cast<std::size_t>(shape[1]) * 4, 4);
    EXPECT_EQ(first_of_second_row, 2.0f);
  }
}

TEST(Weights, APrefixMayBeMissingOrTooMuch) {
  const Graph& g = small_gpt();
  TensorFile bare = file_of(g), wrapped = file_of(g);
  for (NamedTensor& t : bare.tensors) t.name = t.name.substr(std::string("transformer.").size());
  for (NamedTensor& t : wrapped.tensors) t.name = "module." + t.name;
  const FoundWeights from_bare = find_weights(g, bare, {}, "f"), from_wrapped = find_weights(g, wrapped, {}, "f");
  EXPECT_EQ(from_bare.names.apply("transformer.wte.weight"), "wte.weight");
  EXPECT_EQ(from_wrapped.names.apply("transformer.wte.weight"), "module.transformer.wte.weight");
  EXPECT_EQ(from_bare.tensors.size(), g.parameters.size());
  EXPECT_EQ(from_bare.tensors[0].name, from_wrapped.tensors[0].name);
}

TEST(Weights, BookkeepingAndCopiesArePassedOver) {
  const Graph& g = small_gpt();
  TensorFile file = file_of(g);
  NamedTensor copy = *find_tensor(file.tensors, "transformer.wte.weight");
  copy.name = "lm_head.weight";
  file.tensors.push_back(copy);
  file.tensors.push_back(numbers("transformer.h.0.attn.bias", {1, 1, 6, 6}));
  EXPECT_EQ(error_of(g, file), "");
  file.tensors.push_back(numbers("lm_head.other", copy.dims, 77));
  EXPECT_TRUE(says(error_of(g, file), {"too much [lm_head.other]"}));
}

TEST(Weights, OtherTypesBecomeFloat32) {
  const Graph g = network("ffnn", "batch=2,image=2,width=3,layers=1,classes=2");
  TensorFile file = file_of(g);
  for (NamedTensor& t : file.tensors) {
    const std::size_t count = t.bytes.size() / 4;
    if (t.name == "fc1.weight") {
      const std::vector<double> doubles(count, 0.5);
      t = owning_tensor(t.name, StoredType::f64, t.dims, std::as_bytes(std::span(doubles)));
    } else if (t.name == "fc1.bias") {
      const std::vector<std::uint16_t> halves = {0x3800, 0xc000, 0x0001};  // 0.5, -2, 2^-24
      t = owning_tensor(t.name, StoredType::f16, t.dims, std::as_bytes(std::span(halves)));
    } else if (t.name == "head.bias") {
      const std::vector<std::uint16_t> brains = {0x3f00, 0xc000};  // 0.5, -2
      t = owning_tensor(t.name, StoredType::bf16, t.dims, std::as_bytes(std::span(brains)));
    }
  }
  const FoundWeights found = find_weights(g, file, {}, "f");
  const auto value = [&](const char* name, std::size_t i) {
    float x;
    std::memcpy(&x, find_tensor(found.tensors, name)->bytes.data() + 4 * i, 4);
    return x;
  };
  EXPECT_EQ(value("fc1.weight", 0), 0.5f);
  EXPECT_EQ(value("fc1.bias", 0), 0.5f);
  EXPECT_EQ(value("fc1.bias", 1), -2.0f);
  EXPECT_EQ(value("fc1.bias", 2), 0x1p-24f);
  EXPECT_EQ(value("head.bias", 1), -2.0f);
}

TEST(Weights, WhatDoesNotFitIsListed) {
  const Graph g = network("ffnn", "batch=2,image=2,width=3,layers=1,classes=2");
  TensorFile file = file_of(g);
  std::erase_if(file.tensors, [](const NamedTensor& t) { return t.name == "fc1.bias"; });
  for (NamedTensor& t : file.tensors)
    if (t.name == "head.weight") t = numbers(t.name, {7, 3});
  file.tensors.push_back(numbers("aux.weight", {2}));
  EXPECT_TRUE(says(error_of(g, file), {"`init w.safetensors`", "ffnn", "missing [fc1.bias]", "head.weight", "[7, 3]",
                                       "[2, 3]", "too much [aux.weight]", "`init_skip`"}));
  EXPECT_EQ(error_of(g, file, {"head.", "aux", "fc1.bias"}), "");
}

TEST(Weights, WhatAnImportedModelHasNotIsLeftToItsImport) {
  const Graph g = network("ffnn", "batch=2,image=2,width=3,layers=1,classes=2");
  TensorFile file = file_of(g);
  file.tensors.push_back(numbers("aux.weight", {2}));
  EXPECT_EQ(find_weights(g, file, {}, "f", ExtraWeights::allowed).extra, (std::vector<std::string>{"aux.weight"}));
}

TEST(Weights, IntegersAreNoWeights) {
  const Graph g = network("ffnn", "batch=2,image=2,width=3,layers=1,classes=2");
  TensorFile file = file_of(g);
  for (NamedTensor& t : file.tensors)
    if (t.name == "fc1.bias") t.type = StoredType::i32;
  EXPECT_TRUE(says(error_of(g, file), {"fc1.bias", "I32"}));
}

TEST(Weights, ExportLeavesTheOptimizerOut) {
  CheckpointState state;
  state.step = 12;
  state.settings["weight_names"] = {{"remove", "transformer."}, {"add", ""}};
  for (const char* name : {"transformer.a.weight", "transformer.a.weight.momentum", "bn.running_mean", "lone.momentum"})
    state.tensors.push_back(numbers(name, {2}));
  std::vector<std::string> names;
  for (const NamedTensor& t : exported_weights(state)) names.push_back(t.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"a.weight", "bn.num_batches_tracked", "bn.running_mean", "lone.momentum"}));
  const std::vector<NamedTensor> all = exported_weights(state);
  std::int64_t tracked;
  std::memcpy(&tracked, find_tensor(all, "bn.num_batches_tracked")->bytes.data(), 8);
  EXPECT_EQ(tracked, 12);
}

}  // namespace
}  // namespace overtake
