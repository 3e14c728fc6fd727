// The zoo against what is published: numbers of parameters, and the names and shapes of PyTorch's tensors.

#include "overtake/zoo.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "models/network.h"
#include "overtake/model.h"
#include "train/weights.h"

namespace overtake {
namespace {

// PyTorch's facts; golden/make_zoo_names.py made them.
nlohmann::json facts() {
  std::ifstream in(std::string(OVERTAKE_GOLDEN_DIR) + "/zoo_names.json");
  return nlohmann::json::parse(in);
}

// "conv1.weight [64, 3, 7, 7]" for all that is stored, sorted.
std::vector<std::string> stored_lines(const Graph& g) {
  std::vector<std::string> lines;
  for (const Parameter& p : g.parameters)
    lines.push_back(fmt::format("{} [{}]", g.buffer_name(p.buffer), fmt::join(stored_dims(g, p), ", ")));
  std::ranges::sort(lines);
  return lines;
}

// FNV-1a, as make_zoo_names.py has it.
std::string fnv1a(const std::string& text) {
  std::uint64_t state = 0xcbf29ce484222325u;
  for (const char byte : text) state = (state ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return fmt::format("{:016x}", state);
}

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : zoo()) names.push_back(entry.name);
  return names;
}

// Letters and digits only, as GoogleTest wants.
std::string test_name(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

Init init_of(const Graph& g, const std::string& name) {
  for (const Parameter& p : g.parameters)
    if (g.buffer_name(p.buffer) == name) return p.init;
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

class Zoo : public testing::TestWithParam<std::string> {};

TEST_P(Zoo, NamesAndShapesArePyTorchs) {
  const nlohmann::json all = facts();
  ASSERT_TRUE(all.contains(GetParam())) << "make_zoo_names.py does not know it";
  const Graph g = build_model(GetParam(), {});
  const std::vector<std::string> lines = stored_lines(g);
  const std::string text = fmt::format("{}\n", fmt::join(lines, "\n"));
  EXPECT_EQ(figures_of(g).parameters, all.at(GetParam()).at("parameters"));
  EXPECT_EQ(lines.size(), all.at(GetParam()).at("tensors"));
  EXPECT_EQ(fnv1a(text), all.at(GetParam()).at("hash"))
      << "ours (make_zoo_names.py --print " << GetParam() << " has PyTorch's):\n"
      << text;
}

TEST_P(Zoo, NoTwoParametersHaveOneName) {
  const Graph g = build_model(GetParam(), {});
  std::set<std::string> names;
  for (const Parameter& p : g.parameters)
    EXPECT_TRUE(names.insert(g.buffer_name(p.buffer)).second) << g.buffer_name(p.buffer);
}

INSTANTIATE_TEST_SUITE_P(Networks, Zoo, testing::ValuesIn(zoo_names()),
                         [](const auto& test) { return test_name(test.param); });

TEST(ZooFigures, ParametersAsPublished) {
  const std::map<std::string, std::int64_t> published = {
      {"lenet", 61'706},
      {"resnet-32-cifar", 464'154},
      {"vgg-16", 138'357'544},
      {"resnet-18", 11'689'512},
      {"resnet-34", 21'797'672},
      {"resnet-50", 25'557'032},
      {"resnet-101", 44'549'160},
      {"resnet-152", 60'192'808},
      {"densenet-121", 7'978'856},
      {"densenet-169", 14'149'480},
      {"mobilenet-v3-large", 5'483'032},
      {"inception-v3", 23'834'568},
      {"inception-v4", 42'679'816},
      {"vit-b-16", 86'567'656},
      {"bert-12", 109'514'298},
      {"gpt2", 124'439'808},
  };
  for (const auto& [name, parameters] : published)
    EXPECT_EQ(figures_of(build_model(name, {})).parameters, parameters) << name;
}

// Multiply-adds per image that torchvision and the papers give; ours counts two per multiply-add, and the rest.
TEST(ZooFigures, WorkAsPublished) {
  const std::map<std::string, double> giga_multiply_adds = {
      {"vgg-16", 15.47},   {"resnet-18", 1.814},    {"resnet-50", 4.089},          {"resnet-152", 11.514},
      {"vit-b-16", 17.56}, {"densenet-121", 2.834}, {"mobilenet-v3-large", 0.217}, {"inception-v3", 5.713}};
  for (const auto& [name, giga] : giga_multiply_adds) {
    const double ratio = figures_of(build_model(name, {})).forward_flops / (2e9 * giga);
    EXPECT_GT(ratio, 0.99) << name;
    EXPECT_LT(ratio, 1.06) << name;
  }
}

TEST(ZooSettings, ChangeWhatTheySay) {
  const auto parameters = [](const char* name, const char* settings) {
    return figures_of(build_model(name, ModelSettings::parse(settings))).parameters;
  };
  EXPECT_EQ(parameters("resnet-18", "classes=10"), 11'689'512 - 990 * 513);
  EXPECT_EQ(parameters("resnet-18", "channels=1"), 11'689'512 - 2 * 64 * 49);
  EXPECT_EQ(parameters("resnet-18", "stem=1"), 11'689'512 - 3 * 64 * (49 - 9));
  EXPECT_EQ(parameters("resnet-18", "image=64,batch=2"), 11'689'512);
  EXPECT_EQ(parameters("vgg-16", "image=32"), 138'357'544);  // the adaptive pool
  EXPECT_EQ(parameters("gpt2", "sequence=64"), 124'439'808);
  EXPECT_EQ(parameters("gpt2", "sequence=64,positions=64"), 124'439'808 - 960 * 768);
  EXPECT_EQ(parameters("gpt2", "tied=0"), 124'439'808 + 50257 * 768);
  EXPECT_EQ(parameters("vit-b-16", "image=32"), 86'567'656 - 192 * 768);  // positions
  EXPECT_LT(parameters("inception-v3", "width_multiplier=0.5"), 23'834'568 * 3 / 10);
  EXPECT_LT(parameters("inception-v4", "width_multiplier=0.5"), 42'679'816 * 3 / 10);
  EXPECT_EQ(parameters("mobilenet-v3-large", "width_multiplier=0.75"), 3'377'576);
}

TEST(ZooSettings, NormIsAWordOrGroups) {
  EXPECT_EQ(ModelSettings::parse("norm=batch").all().at("norm"), 0);
  EXPECT_EQ(ModelSettings::parse("norm=group").all().at("norm"), 32);
  EXPECT_EQ(ModelSettings::parse("norm=8").all().at("norm"), 8);
  EXPECT_THROW(ModelSettings::parse("norm=layer"), UserError);
  EXPECT_THROW(ModelSettings::parse("image=batch"), UserError);

  // The same weights, no states; 32 groups or what of them divides the channels.
  for (const char* name : {"resnet-50", "densenet-121", "mobilenet-v3-large", "resnet-32-cifar", "cnn"}) {
    const Graph batch = build_model(name, {}), group = build_model(name, ModelSettings::parse("norm=group"));
    EXPECT_EQ(figures_of(group).parameters, figures_of(batch).parameters) << name;
    std::vector<std::string> lines = stored_lines(batch);
    std::erase_if(lines, [](const std::string& line) { return line.find(".running_") != std::string::npos; });
    EXPECT_EQ(stored_lines(group), lines) << name;
    for (const Task& t : group.tasks) {
      if (t.op != Op::group_norm) continue;
      const std::int64_t channels = group.buffers[group.reads(t)[0]].shape[1];
      EXPECT_EQ(group.attrs_of(t).integer("groups"), std::gcd(channels, 32)) << name << " " << channels;
    }
  }
}

// Against formulas of the reference implementations, written out as numbers.
TEST(ZooInit, IsTheReferences) {
  const auto is = [](const Init& init, Init::Kind kind, double scale) {
    return init.kind == kind && std::abs(init.scale - scale) <= 1e-6 * scale;
  };
  const auto normal = Init::Kind::normal, uniform = Init::Kind::uniform, zeros = Init::Kind::zeros;
  const Graph resnet = build_model("resnet-18", {});
  EXPECT_TRUE(is(init_of(resnet, "conv1.weight"), normal, 0.0252538));  // sqrt(2 / (64 * 49))
  EXPECT_TRUE(is(init_of(resnet, "fc.weight"), uniform, 0.0441942));    // 1 / sqrt(512)
  const Graph densenet = build_model("densenet-121", {});
  EXPECT_TRUE(is(init_of(densenet, "features.conv0.weight"), normal, 0.1166424));  // sqrt(2 / (3 * 49))
  EXPECT_TRUE(is(init_of(densenet, "classifier.bias"), zeros, 0));
  const Graph mobilenet = build_model("mobilenet-v3-large", {});
  EXPECT_TRUE(is(init_of(mobilenet, "features.1.block.0.0.weight"), normal, 0.1178511));  // sqrt(2 / (16 * 9))
  EXPECT_TRUE(is(init_of(mobilenet, "features.4.block.2.fc1.bias"), zeros, 0));
  EXPECT_TRUE(is(init_of(mobilenet, "classifier.0.weight"), normal, 0.01));
  const Graph vgg = build_model("vgg-16", {});
  EXPECT_TRUE(is(init_of(vgg, "features.0.weight"), normal, 0.0589256));  // sqrt(2 / (64 * 9))
  EXPECT_TRUE(is(init_of(vgg, "features.0.bias"), zeros, 0));
  EXPECT_TRUE(is(init_of(vgg, "classifier.6.weight"), normal, 0.01));
  const Graph inception = build_model("inception-v3", {});
  EXPECT_TRUE(is(init_of(inception, "Mixed_5b.branch1x1.conv.weight"), normal, 0.1));
  EXPECT_TRUE(is(init_of(inception, "fc.bias"), uniform, 0.0220971));  // 1 / sqrt(2048)
  const Graph inception4 = build_model("inception-v4", {});
  EXPECT_TRUE(is(init_of(inception4, "features.0.conv.weight"), uniform, 0.1924501));  // 1 / sqrt(27)
  const Graph vit = build_model("vit-b-16", {});
  const std::string layer = "encoder.layers.encoder_layer_0";
  EXPECT_TRUE(is(init_of(vit, "conv_proj.weight"), normal, 0.0360844));                          // 1 / sqrt(768)
  EXPECT_TRUE(is(init_of(vit, layer + ".self_attention.in_proj_weight"), uniform, 0.0441942));   // sqrt(6 / 3072)
  EXPECT_TRUE(is(init_of(vit, layer + ".self_attention.out_proj.weight"), uniform, 0.0360844));  // 1 / sqrt(768)
  EXPECT_TRUE(is(init_of(vit, layer + ".mlp.0.weight"), uniform, 0.0395285));                    // sqrt(6 / 3840)
  EXPECT_TRUE(is(init_of(vit, layer + ".mlp.0.bias"), normal, 1e-6));
  EXPECT_TRUE(is(init_of(vit, "heads.head.weight"), zeros, 0));
  const Graph gpt = build_model("gpt2", {});
  EXPECT_TRUE(is(init_of(gpt, "transformer.h.0.attn.c_attn.weight"), normal, 0.02));
  EXPECT_TRUE(is(init_of(gpt, "transformer.h.0.mlp.c_proj.weight"), normal, 0.00408248));  // 0.02 / sqrt(24)
  EXPECT_TRUE(is(init_of(gpt, "transformer.h.0.mlp.c_proj.bias"), zeros, 0));
  const Graph bert = build_model("bert-12", {});
  EXPECT_TRUE(is(init_of(bert, "bert.embeddings.position_embeddings.weight"), normal, 0.02));
  EXPECT_TRUE(is(init_of(bert, "cls.predictions.bias"), zeros, 0));
  const Graph lstm = build_model("lstm", {});
  EXPECT_TRUE(is(init_of(lstm, "rnn.bias_hh_l1"), uniform, 0.0441942));  // 1 / sqrt(512)
}

// The user's mistakes: each names the network and the setting, and says what is right.
TEST(ZooErrors, SettingsOutOfRange) {
  const struct {
    const char *model, *settings;
    std::vector<const char*> words;
  } mistakes[] = {
      {"vgg-16", "image=31", {"vgg-16", "image", "31", "32"}},
      {"inception-v3", "image=74", {"inception-v3", "image", "74", "75"}},
      {"inception-v4", "image=74", {"inception-v4", "image", "75"}},
      {"densenet-121", "image=28", {"densenet-121", "image", "29"}},
      {"lenet", "image=11", {"lenet", "image", "12"}},
      {"vit-b-16", "image=40", {"vit-b-16", "image", "40", "multiple of 16"}},
      {"vit-b-16", "heads=7", {"vit-b-16", "heads", "7", "width", "768"}},
      {"bert-12", "heads=5", {"bert-12", "heads", "5", "divide"}},
      {"bert-12", "sequence=513", {"bert-12", "sequence", "513", "512"}},
      {"gpt2", "sequence=1025", {"gpt2", "sequence", "1024"}},
      {"gpt2", "layers=0", {"gpt2", "layers", "0", "from 1"}},
      {"transformer", "heads=3", {"transformer", "heads", "width"}},
      {"lstm", "layers=1.5", {"lstm", "layers", "1.5", "whole"}},
      {"gru", "dropout=1", {"gru", "dropout", "below 1"}},
      {"ffnn", "width=1e9", {"ffnn", "width", "16777216"}},
      {"ffnn", "batch=nan", {"ffnn", "batch", "nan"}},
      {"resnet-18", "image=inf", {"resnet-18", "image", "inf"}},
      {"resnet-18", "stem=2", {"resnet-18", "stem", "0 to 1"}},
      {"resnet-18", "norm=-1", {"resnet-18", "norm", "-1"}},
      {"resnet-18", "classes=0", {"resnet-18", "classes"}},
      {"mobilenet-v3-large", "width_multiplier=0", {"mobilenet-v3-large", "width_multiplier", "above 0"}},
  };
  for (const auto& [model, settings, words] : mistakes) {
    try {
      build_model(model, ModelSettings::parse(settings));
      ADD_FAILURE() << model << " was built with " << settings;
    } catch (const UserError& e) {
      for (const char* word : words) EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  }
}

// The smallest images that are allowed do build.
TEST(ZooErrors, SmallestImages) {
  for (const auto& [model, settings] : std::map<std::string, std::string>{{"vgg-16", "image=32"},
                                                                          {"inception-v3", "image=75"},
                                                                          {"inception-v4", "image=75"},
                                                                          {"densenet-169", "image=29"},
                                                                          {"lenet", "image=12"},
                                                                          {"vit-b-16", "image=16"},
                                                                          {"resnet-152", "image=1"},
                                                                          {"resnet-32-cifar", "image=1"},
                                                                          {"mobilenet-v3-large", "image=1"},
                                                                          {"cnn", "image=1"},
                                                                          {"ffnn", "image=1"}})
    EXPECT_GT(figures_of(build_model(model, ModelSettings::parse(settings))).parameters, 0) << model;
}

// A layer that does not fit names itself and its input.
TEST(ZooErrors, LayersThatDoNotFit) {
  Model m("own", 2);
  const Value x = m.input({3, 4, 4});
  try {
    m.conv2d(x, {.out = 1, .kernel = 5}, "conv9");
    FAIL() << "nothing was thrown";
  } catch (const UserError& e) {
    for (const char* word : {"own", "conv9", "5", "[2, 3, 4, 4]"})
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
  }
}

// Replicas and micro-batches: the batch is cut, whether it was given or is the network's own.
TEST(ZooBatch, IsCutIntoPieces) {
  const auto samples = [](const std::string& settings, std::int64_t pieces) {
    const Graph g = load_network("lenet", {.settings = ModelSettings::parse(settings), .pieces = pieces}).graph;
    const auto input = std::ranges::find(g.buffers, Role::input, &Buffer::role);
    return input->shape[0];
  };
  EXPECT_EQ(samples("batch=12", 3), 4);
  EXPECT_EQ(4 * samples("", 4), samples("", 1));
  for (const char* settings : {"batch=10", "batch=2.5", "batch=0"})
    EXPECT_THROW(samples(settings, 3), UserError) << settings;
}

}  // namespace
}  // namespace overtake
