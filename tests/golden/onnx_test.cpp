// Networks exported from PyTorch, trained for ten steps against PyTorch in float64. make_onnx_golden.py made the files
// and says what is in them.

#include "golden/golden.h"
#include "models/onnx/import.h"

namespace overtake::golden {
namespace {

constexpr double kOnnxTolerance = 1e-3;

// An initializer of the file that is a tensor of the PyTorch model.
struct StoredWeight {
  std::string initializer, name;
  std::vector<std::int64_t> dims;  // in PyTorch
  bool is_transposed;              // in the file
  std::int64_t offset;             // in NAME.bin; -1: inside the file

  explicit StoredWeight(const json& row)
      : initializer(row[0]), name(row[1]), dims(row[2]), is_transposed(row[3]), offset(row[4]) {}
};

// [rows, columns] -> [columns, rows]
std::vector<float> transposed(const std::vector<float>& values, std::size_t rows, std::size_t columns) {
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) result[j * rows + i] = values[i * columns + j];
  return result;
}

std::vector<float> initial_value(const StoredWeight& w, const json& initial) {
  if (w.name.ends_with("running_mean")) return uniform(w.name, elements_of(w.dims), 0.125);
  if (w.name.ends_with("running_var")) return uniform(w.name, elements_of(w.dims), 0.5, 1.0);
  return initial_weight(w.name, w.dims, initial);
}

// NAME.json, and NAME.onnx with its weights beside it in a folder of its own.
class OnnxCase {
 public:
  explicit OnnxCase(const std::string& name)
      : facts_(read_json(golden::folder() / "onnx" / (name + ".json"))),
        folder_(std::filesystem::path(testing::TempDir()) / ("overtake-onnx-" + name)),
        file_(folder_ / (name + ".onnx")) {
    for (const json& row : facts_.at("weights")) weights_.emplace_back(row);
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(golden::folder() / "onnx" / (name + ".onnx"), file_,
                               std::filesystem::copy_options::overwrite_existing);
    write_weights(folder_ / (name + ".bin"));
  }
  ~OnnxCase() { std::filesystem::remove_all(folder_); }
  OnnxCase(const OnnxCase&) = delete;
  OnnxCase& operator=(const OnnxCase&) = delete;

  const json& facts() const { return facts_; }
  // Of parameters that are not called like a layer's weight the file does not say that they are trained.
  std::vector<std::string> train_tensors() const {
    std::vector<std::string> names;
    for (const StoredWeight& w : weights_) {
      const std::string leaf = w.name.substr(w.name.rfind('.') + 1);
      const bool is_plain =
          leaf.find("weight") != leaf.npos || leaf.find("bias") != leaf.npos || leaf.starts_with("running_");
      if (w.initializer == w.name && !is_plain) names.push_back(w.name);
    }
    return names;
  }
  const std::filesystem::path& file() const { return file_; }

  // The same tensors under PyTorch's names: some still have the file's name, and then its form.
  Tensors renamed(Tensors tensors) const {
    Tensors all;
    for (auto& [name, values] : tensors) {
      const StoredWeight* w = find(name);
      if (w == nullptr || w->name == name)
        all[name] = std::move(values);
      else if (w->is_transposed)
        all[w->name] = transposed(values, static_cast<std::size_t>(w->dims[1]), static_cast<std::size_t>(w->dims[0]));
      else
        all[w->name] = std::move(values);
    }
    return all;
  }

 private:
  const StoredWeight* find(const std::string& initializer) const {
    for (const StoredWeight& w : weights_)
      if (w.initializer == initializer) return &w;
    return nullptr;
  }

  void write_weights(const std::filesystem::path& path) const {
    std::ofstream out(path, std::ios::binary);
    for (const StoredWeight& w : weights_) {
      if (w.offset < 0) continue;
      std::vector<float> values = initial_value(w, facts_.at("initial"));
      if (w.is_transposed)
        values = transposed(values, static_cast<std::size_t>(w.dims[0]), static_cast<std::size_t>(w.dims[1]));
      out.seekp(w.offset);
      out.write(reinterpret_cast<const char*>(values.data()),
                static_cast<std::streamsize>(values.size() * sizeof(float)));
    }
    if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
  }

  json facts_;
  std::filesystem::path folder_, file_;
  std::vector<StoredWeight> weights_;
};

// In a random order where no schedule is given.
TrainingRun run_for(const OnnxCase& onnx, std::optional<std::string> schedule, Precision precision) {
  Network network = import_onnx(onnx.file(), {.settings = ModelSettings({{"batch", onnx.facts().at("batch")}}),
                                              .train_tensors = onnx.train_tensors()});
  RunSetup options;
  set_optimizer(options.spec, optimizer_of(onnx.facts().at("optimizer")));
  if (schedule)
    options.spec.schedule = *schedule;
  else
    options.more.compile.own_order = [&](const Graph& g) { return random_order(onnx.file().filename(), g); };
  options.spec.plan_seconds = 0.3;
  use_test_device(options, precision, 2);
  options.more.initial = std::move(network.values);
  options.more.compile.extra_passes = {keep_gradients()};
  return run_of(std::move(network.graph), std::move(options));
}

// Trains as the case says, comparing on the way; returns the hash of the weights at the end.
std::uint64_t train_and_compare(const OnnxCase& onnx, const std::string& schedule) {
  const json& facts = onnx.facts();
  TrainingRun training = run_for(onnx, schedule, Precision::f32);
  const std::vector<double> losses = facts.at("losses");
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const StepResult result = run_step(training, facts, step);
    EXPECT_NEAR(result.loss / losses[step], 1.0, kOnnxTolerance) << "step " << step + 1;
    if (step > 0) continue;
    const Tensors gradients = onnx.renamed(gradients_of(training));
    const double norm = facts.at("norm");
    EXPECT_EQ(gradients.size(), facts.at("gradients").size());
    EXPECT_NEAR(global_norm(gradients) / norm, 1.0, kOnnxTolerance);
    expect_sketched(gradients, facts.at("gradients"), kSmall * norm, kOnnxTolerance);
  }
  const Tensors states = onnx.renamed(states_of(training));
  EXPECT_EQ(states.size(), facts.at("states").size());
  expect_sketched(states, facts.at("states"), 0, kOnnxTolerance);
  return training.weights_hash();
}

class OnnxGolden : public testing::TestWithParam<std::string> {};

TEST_P(OnnxGolden, TrainsAsPyTorchUnderEverySchedule) {
  const OnnxCase onnx(GetParam());
  std::uint64_t in_order = 0, out_of_order = 0;
  {
    SCOPED_TRACE("in order");
    in_order = train_and_compare(onnx, "in-order");
  }
  {
    SCOPED_TRACE("out of order");
    out_of_order = train_and_compare(onnx, "ooo");
  }
  EXPECT_EQ(in_order, out_of_order);
}

TEST_P(OnnxGolden, TrainsInBfloat16) {
  OVERTAKE_NEEDS_BF16();
  const OnnxCase onnx(GetParam());
  TrainingRun training = run_for(onnx, {}, Precision::bf16);
  const std::vector<double> losses = onnx.facts().at("losses");
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const StepResult result = run_step(training, onnx.facts(), step);
    EXPECT_NEAR(result.loss / losses[step], 1.0, kBf16Loss) << "step " << step + 1;
    if (step > 0) continue;
    EXPECT_LE(sketched_error(onnx.renamed(gradients_of(training)), onnx.facts().at("gradients")),
              bf16_gradient_bound(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, OnnxGolden,
                         testing::Values("squeezenet", "shufflenet_v2", "mobilenet_v2", "efficientnet_v2", "regnet_y",
                                         "googlenet", "convnext", "swin", "groupnorm_cnn", "distilbert",
                                         "bert_classifier", "opt", "opt_tied", "llama", "gpt_neox", "encoder",
                                         "lstm_lm", "gru_lm"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace overtake::golden
