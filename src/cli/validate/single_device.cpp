#include "cli/validate/single_device.h"

#include <fmt/format.h>

#include <array>

namespace overtake {
namespace {

// Of every table, rows with an even number (from 1, in the order of the table) were set aside before the tables of
// src/machine/kernel_times were made (docs/validation-method.md), and have sources of their own.
constexpr std::string_view kOurs = "Overtake on one H200", kOursAside = "Overtake on one H200, set aside",
                           kTheirs = "one GPU, published", kTheirsAside = "one GPU, published, set aside";
constexpr bool is_set_aside(std::size_t index) { return index % 2 == 1; }

// docs/benchmarks.md, "GPU: is out of order faster than in order?": milliseconds in order, batches 8, 16, 32, 64.
struct OursRow {
  const char *network, *settings;
  std::array<double, 4> ms;
};
constexpr std::array<std::int64_t, 4> kBatches = {8, 16, 32, 64};
constexpr std::array<OursRow, 8> kOnH200 = {{{"densenet-121", "", {5.30, 6.69, 9.00, 13.83}},
                                             {"densenet-169", "", {7.15, 8.75, 11.64, 17.28}},
                                             {"mobilenet-v3-large", "", {2.45, 2.91, 3.70, 5.21}},
                                             {"resnet-50", "", {2.86, 3.79, 5.67, 9.40}},
                                             {"inception-v3", "", {5.04, 6.44, 9.02, 14.06}},
                                             {"bert-12", "sequence=128,dropout=0", {3.48, 4.82, 7.54, 13.40}},
                                             {"lstm", "", {0.727, 0.757, 0.802, 0.879}},
                                             {"ffnn", "", {0.052, 0.055, 0.051, 0.053}}}};

// What a framework's step has that ours has not, where that can be said by leaving out passes.
enum class System : std::uint8_t {
  fused,   // XLA, or MXNet's kernels of batch norm, add and ReLU
  unfused  // PyTorch without a compiler: a kernel for each op
};

// What was found where a table's rows do not fit.
constexpr const char* kConvolutionNote =
    "Convolutions of images inside wider ones (DenseNet) and of odd channel counts (Inception) take longer than the "
    "products that they amount to; other convolutional networks are within 6 %.";
constexpr const char* kLaunchNote =
    "Small kernels: the table has one number each for launches, products and recurrences.";
constexpr const char* kTf32Note =
    "TF32 convolutions reach less of the peak than bfloat16 ones on the A100; the table has one number for both.";
constexpr const char* kBertNote =
    "BERT of TensorFlow keeps attention's probabilities in memory, draws masks for them, and runs norms, GELU "
    "and sums in float32: from bfloat16 to TF32 its step grows by half only, so more than half of it is not "
    "products.";
constexpr const char* kMptNote =
    "Eight GPUs gathered sharded weights for every micro-batch, and PyTorch's losses and norms are in float32, "
    "which ours are not. The H100's rows would fit if products reached about 0.5 of its peak; they reach 0.65 to "
    "0.8 in the table, which is of our H200";

// A table of published throughputs of one GPU. Sources are named beside each.
struct Published {
  std::string what;
  const char* network;
  std::string settings;
  const char *machine, *precision;
  std::int64_t batch;           // of one micro-batch
  std::uint32_t micro_batches;  // where gradients are added up
  double samples_per_s;
};
struct PublishedTable {
  const char* title;
  System system;
  const char* optimizer;
  double clip_norm;
  const char* note;  // what was found of rows that do not fit
  std::vector<Published> rows;
};

constexpr int kSteps = 2;  // one behind the other, in order on one device: all take the same

constexpr const char *kV100 = "p3.8xlarge", *kA100Machine = "dgx-a100", *kH100 = "dgx-h100";
// NVIDIA, A100 data sheet, 2021: the 40GB A100 is the 80GB one with 1,555 GB/s.
constexpr const char* kA100With40GB = R"(name = "a100-40gb"
[device.a100]
f32 = "19.5 TFLOP/s"
tf32 = "156 TFLOP/s"
bf16 = "312 TFLOP/s"
memory = [{ name = "HBM2", capacity = "40 GB", bandwidth = "1555 GB/s" }]
sms = 108
kernels = "ampere"
[node.host]
devices = { a100 = 1 }
)";

constexpr const char* kPhase1 = "sequence=128,vocabulary=4769,plain_attention=1";  // 20 of 128 places are predicted
constexpr const char* kPhase2 = "sequence=512,vocabulary=4769,plain_attention=1";  // 80 of 512
constexpr const char* kQuestions = "sequence=384,vocabulary=2,plain_attention=1";  // a start and an end
constexpr std::uint32_t kSum = 16;  // micro-batches, where thousands were added up

// Shapes of MPT by its configurations (scripts/train/yamls/pretrain/mpt-*.yaml) and the numbers of parameters that the
// table gives: GPT-2 with tied words and 50,368 of them.
struct MptShape {
  const char *name, *settings;
};
constexpr MptShape kMpt125m{"125m", "layers=12,width=768,heads=12"}, kMpt350m{"350m", "layers=24,width=1024,heads=16"},
    kMpt760m{"760m", "layers=24,width=1536,heads=12"}, kMpt1b{"1b", "layers=24,width=2048,heads=16"},
    kMpt3b{"3b", "layers=32,width=2560,heads=20"};
struct Mpt {
  bool is_hopper;
  const MptShape* shape;
  std::int64_t sequence, batch;
  std::uint32_t micro_batches;
  double tokens_per_s;  // of one GPU
};
constexpr Mpt kMpt[] = {
    {true, &kMpt3b, 1024, 20, 6, 27046},     {true, &kMpt3b, 512, 40, 6, 27965},
    {true, &kMpt1b, 2048, 14, 1, 45455},     {true, &kMpt1b, 1024, 18, 4, 48910},
    {true, &kMpt1b, 512, 56, 4, 52275},      {true, &kMpt760m, 2048, 24, 2, 63147},
    {true, &kMpt760m, 1024, 48, 2, 78581},   {true, &kMpt760m, 512, 96, 2, 83749},
    {false, &kMpt3b, 2048, 10, 2, 10811},    {false, &kMpt3b, 1024, 20, 6, 11580},
    {false, &kMpt3b, 512, 40, 6, 12127},     {false, &kMpt1b, 2048, 14, 4, 20513},
    {false, &kMpt1b, 1024, 18, 4, 22112},    {false, &kMpt1b, 512, 56, 4, 23148},
    {false, &kMpt760m, 2048, 24, 2, 32434},  {false, &kMpt760m, 1024, 48, 2, 29765},
    {false, &kMpt760m, 512, 96, 2, 29446},   {false, &kMpt350m, 2048, 32, 2, 58782},
    {false, &kMpt350m, 1024, 64, 2, 64813},  {false, &kMpt350m, 512, 128, 2, 69330},
    {false, &kMpt125m, 2048, 40, 2, 142830}, {false, &kMpt125m, 2048, 32, 2, 141737},
    {false, &kMpt125m, 1024, 64, 2, 156468}, {false, &kMpt125m, 512, 128, 2, 165681},
};

std::vector<PublishedTable> published_tables() {
  std::vector<PublishedTable> all;
  // github.com/NVIDIA/DeepLearningExamples, TensorFlow/Classification/ConvNets/resnet50v1.5/README.md, "Training
  // performance results": one GPU, with XLA, TensorFlow 20.06.
  all.push_back({"ResNet-50, TensorFlow and XLA",
                 System::fused,
                 "sgd",
                 0,
                 kTf32Note,
                 {{"A100 40GB, TF32, batch 256", "resnet-50", "", kA100With40GB, "tf32", 256, 1, 909},
                  {"A100 40GB, AMP, batch 256", "resnet-50", "", kA100With40GB, "bf16", 256, 1, 2375},
                  {"V100 16GB, FP32, batch 128", "resnet-50", "", kV100, "f32", 128, 1, 412},
                  {"V100 16GB, AMP, batch 256", "resnet-50", "", kV100, "bf16", 256, 1, 1270},
                  {"V100 32GB, FP32, batch 128", "resnet-50", "", kV100, "f32", 128, 1, 432},
                  {"V100 32GB, AMP, batch 256", "resnet-50", "", kV100, "bf16", 256, 1, 1300}}});
  // The same, MxNet/Classification/RN50v1.5/README.md, "Training performance results": one GPU, MXNet 20.12.
  all.push_back({"ResNet-50, MXNet",
                 System::fused,
                 "sgd",
                 0,
                 kTf32Note,
                 {{"A100 80GB, AMP, batch 256", "resnet-50", "", kA100Machine, "bf16", 256, 1, 2180},
                  {"A100 80GB, TF32, batch 256", "resnet-50", "", kA100Machine, "tf32", 256, 1, 1022},
                  {"V100 16GB, AMP, batch 192", "resnet-50", "", kV100, "bf16", 192, 1, 1376},
                  {"V100 16GB, FP32, batch 96", "resnet-50", "", kV100, "f32", 96, 1, 384},
                  {"V100 32GB, AMP, batch 256", "resnet-50", "", kV100, "bf16", 256, 1, 1492},
                  {"V100 32GB, FP32, batch 128", "resnet-50", "", kV100, "f32", 128, 1, 417}}});
  // The same, PyTorch/Classification/ConvNets/resnet50v1.5/README.md, "Training performance results": one GPU, PyTorch
  // 21.03; batches of configs.yml beside it.
  all.push_back({"ResNet-50, PyTorch",
                 System::unfused,
                 "sgd",
                 0,
                 kTf32Note,
                 {{"A100 80GB, TF32, batch 256", "resnet-50", "", kA100Machine, "tf32", 256, 1, 938},
                  {"A100 80GB, AMP, batch 256", "resnet-50", "", kA100Machine, "bf16", 256, 1, 2470},
                  {"V100 16GB, FP32, batch 112", "resnet-50", "", kV100, "f32", 112, 1, 367},
                  {"V100 16GB, AMP, batch 256", "resnet-50", "", kV100, "bf16", 256, 1, 1200},
                  {"V100 32GB, FP32, batch 112", "resnet-50", "", kV100, "f32", 112, 1, 356},
                  {"V100 32GB, AMP, batch 256", "resnet-50", "", kV100, "bf16", 256, 1, 1156}}});
  // The same, TensorFlow/LanguageModeling/BERT/README.md, "Training performance results": BERT large, one GPU,
  // TensorFlow 20.06; pre-training with LAMB, fine-tuning for SQuAD with sequences of 384.
  all.push_back({"BERT large, TensorFlow and XLA",
                 System::fused,
                 "adamw",
                 0,
                 kBertNote,
                 {{"V100 16GB, AMP, 16 of 128", "bert-24", kPhase1, kV100, "bf16", 16, kSum, 134.34},
                  {"V100 16GB, FP32, 8 of 128", "bert-24", kPhase1, kV100, "f32", 8, kSum, 39.43},
                  {"V100 16GB, AMP, 4 of 512", "bert-24", kPhase2, kV100, "bf16", 4, kSum, 28.72},
                  {"V100 16GB, FP32, 2 of 512", "bert-24", kPhase2, kV100, "f32", 2, kSum, 9.80},
                  {"V100 16GB, AMP, SQuAD, 4", "bert-24", kQuestions, kV100, "bf16", 4, 1, 29.74},
                  {"V100 16GB, FP32, SQuAD, 2", "bert-24", kQuestions, kV100, "f32", 2, 1, 7.36},
                  {"V100 32GB, AMP, 64 of 128", "bert-24", kPhase1, kV100, "bf16", 64, kSum, 168.63},
                  {"V100 32GB, FP32, 32 of 128", "bert-24", kPhase1, kV100, "f32", 32, kSum, 46.78},
                  {"V100 32GB, AMP, 8 of 512", "bert-24", kPhase2, kV100, "bf16", 8, kSum, 31.23},
                  {"V100 32GB, FP32, 8 of 512", "bert-24", kPhase2, kV100, "f32", 8, kSum, 10.67},
                  {"V100 32GB, AMP, SQuAD, 24", "bert-24", kQuestions, kV100, "bf16", 24, 1, 51.02},
                  {"V100 32GB, FP32, SQuAD, 10", "bert-24", kQuestions, kV100, "f32", 10, 1, 10.42},
                  {"A100 40GB, AMP, 64 of 128", "bert-24", kPhase1, kA100With40GB, "bf16", 64, kSum, 356.845},
                  {"A100 40GB, TF32, 64 of 128", "bert-24", kPhase1, kA100With40GB, "tf32", 64, kSum, 238.10},
                  {"A100 40GB, AMP, 16 of 512", "bert-24", kPhase2, kA100With40GB, "bf16", 16, kSum, 70.856},
                  {"A100 40GB, TF32, 8 of 512", "bert-24", kPhase2, kA100With40GB, "tf32", 8, kSum, 39.96},
                  {"A100 40GB, AMP, SQuAD, 32", "bert-24", kQuestions, kA100With40GB, "bf16", 32, 1, 102.26},
                  {"A100 40GB, TF32, SQuAD, 16", "bert-24", kQuestions, kA100With40GB, "tf32", 16, 1, 61.364}}});
  // github.com/mosaicml/llm-foundry, scripts/train/benchmarking/README.md: tokens per second and GPU on 8 GPUs,
  // bfloat16, up to 3b, sequences of up to 2048, without activation checkpointing.
  const auto mpt = [](const Mpt& m) {
    return Published{fmt::format("{}, {}, {} x {} of {}", m.is_hopper ? "H100" : "A100", m.shape->name, m.micro_batches,
                                 m.batch, m.sequence),
                     "gpt2",
                     fmt::format("{},vocabulary=50368,dropout=0,sequence={},positions={}", m.shape->settings,
                                 m.sequence, m.sequence),
                     m.is_hopper ? kH100 : kA100Machine,
                     "bf16",
                     m.batch,
                     m.micro_batches,
                     m.tokens_per_s / static_cast<double>(m.sequence)};
  };
  PublishedTable& table = all.emplace_back(PublishedTable{"MPT, PyTorch", System::unfused, "adamw", 1, kMptNote, {}});
  for (const Mpt& m : kMpt) table.rows.push_back(mpt(m));
  return all;
}

Setting setting_of(const PublishedTable& table, const Published& row) {
  Setting s{.spec = {}, .steps = kSteps};
  s.spec.model = row.network;
  s.spec.settings = row.settings;
  s.spec.machine = row.machine;
  s.spec.precision = row.precision;
  s.spec.optimizer = table.optimizer;
  s.spec.clip_norm = table.clip_norm;
  s.spec.batch = row.batch * row.micro_batches;
  s.spec.micro_batches = row.micro_batches;
  s.spec.schedule = "in-order";
  if (table.system == System::unfused) s.spec.skip_passes = {"fuse", "fuse_elementwise", "fuse_gradients"};
  return s;
}

}  // namespace

std::vector<PublishedSource> single_device_sources() {
  constexpr const char* kMeasured = "\"GPU: is out of order faster than in order?\", the times in order";
  constexpr const char* kPublished =
      "README.md of TensorFlow/Classification/ConvNets/resnet50v1.5, MxNet/Classification/RN50v1.5, "
      "PyTorch/Classification/ConvNets/resnet50v1.5 and TensorFlow/LanguageModeling/BERT; and "
      "github.com/mosaicml/llm-foundry, scripts/train/benchmarking/README.md";
  constexpr const char *kOurPage = "docs/benchmarks.md", *kTheirPage = "https://github.com/NVIDIA/DeepLearningExamples";
  return {{kOurs, kMeasured, kOurPage, Area::steps},
          {kOursAside, kMeasured, kOurPage, Area::steps},
          {kTheirs, kPublished, kTheirPage, Area::steps},
          {kTheirsAside, kPublished, kTheirPage, Area::steps}};
}

std::vector<PublishedFigure> single_device_figures() {
  std::vector<PublishedFigure> all;
  std::size_t row = 0;
  for (const OursRow& net : kOnH200)
    for (std::size_t i = 0; i < kBatches.size(); ++i) {
      Setting s{.spec = {}, .steps = kSteps};
      s.spec.model = net.network;
      s.spec.settings = net.settings;
      s.spec.machine = "h200";
      s.spec.precision = "bf16";
      s.spec.batch = kBatches[i];
      s.spec.schedule = "in-order";
      all.push_back(
          {std::string(is_set_aside(row++) ? kOursAside : kOurs), fmt::format("{}, batch {}", net.network, kBatches[i]),
           "ms", net.ms[i], net.ms[i], [s](Laboratory& lab) { return lab.run(s).step_ms; },
           net.settings[0] == 0 && std::string_view(net.network).size() > 4 ? kConvolutionNote : kLaunchNote});
    }
  for (const PublishedTable& table : published_tables()) {
    row = 0;
    for (const Published& p : table.rows)
      all.push_back({std::string(is_set_aside(row++) ? kTheirsAside : kTheirs),
                     fmt::format("{}: {}", table.title, p.what), "samples/s", p.samples_per_s, p.samples_per_s,
                     [s = setting_of(table, p)](Laboratory& lab) { return lab.run(s).samples_per_s; }, table.note});
  }
  return all;
}

}  // namespace overtake
