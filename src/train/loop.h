#pragma once
// The training loop: data in, steps, progress, checkpoints, evaluation.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/data.h"
#include "train/schedule.h"
#include "train/session.h"

namespace overtake {

// Both splits, opened.
struct TrainingData {
  std::shared_ptr<const Dataset> train, test;
};
TrainingData open_training_data(const std::string& spec, const SampleForm& form, std::uint64_t seed);

struct LoopOptions {
  std::string data = "synthetic";
  std::optional<TrainingData> opened;  // `data`, where it was opened before: a mistake there should show at once
  std::uint64_t seed = 0;
  std::uint64_t steps = 0;   // in all, counted from the very start; 0: by epochs
  std::uint64_t epochs = 1;  // where steps is 0
  double learning_rate = 0.01;
  std::string lr_schedule = "constant";
  std::uint64_t warmup = 0;
  bool augment = false;
  std::string save;              // checkpoint to write; empty: none
  std::uint64_t save_every = 0;  // steps; 0: at the end only
  std::string resume;            // checkpoint to go on from; empty: start anew
  std::string model;             // name and settings, kept in checkpoints and compared when one is taken up
  nlohmann::json model_settings = nlohmann::json::object();
  nlohmann::json training_settings = nlohmann::json::object();
  bool keep_traces = false;
  std::function<void()> after_steps = {};  // called when the last step is done, before it is saved and evaluated
};

struct Progress {
  std::uint64_t step = 0, steps = 0;  // done, in all
  std::uint64_t epoch = 0;
  double loss = 0;       // mean since the last report
  double accuracy = -1;  // likewise; -1: the model has none
  double samples_per_s = 0;
  double seconds_left = 0;
};

struct EvalResult {
  double loss = 0;
  double accuracy = -1;  // -1: none
  std::int64_t samples = 0;
};

struct LoopResult {
  std::uint64_t steps = 0;
  float loss = 0;      // of the last step
  double step_ms = 0;  // median
  EvalResult test;
  bool interrupted = false;
  // Of the last steps; of ranks also of what they delayed (a step_ns of 0) that was not done beside the next one.
  std::vector<Trace> traces;
};

// Runs to the end or until `is_interrupted`. Everything is a pure function of the options: a run that was stopped and
// resumed ends with the same bits. A loss that is not finite is a user error that names the first task that made it;
// the last checkpoint stays as it is.
LoopResult run_training(Session& session, const LoopOptions& options,
                        const std::function<void(const Progress&)>& report,
                        const std::function<bool()>& is_interrupted);

EvalResult evaluate(Session& session, const Dataset& dataset);

// The pieces sums were cut into in a checkpoint's run: resuming takes the same, whatever the machine.
std::optional<unsigned> checkpoint_parts(const std::string& path);

}  // namespace overtake
