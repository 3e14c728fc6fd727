#pragma once
// The training loop: data in, steps, progress, checkpoints, evaluation.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/checkpoint_saver.h"
#include "train/data.h"
#include "train/learning_rate.h"
#include "train/run.h"

namespace overtake {

// Both splits, opened.
struct TrainingData {
  std::shared_ptr<const Dataset> train, test;
};

struct LoopOptions {
  std::string data = "synthetic";
  DataConversion conversion = {};           // of `data`
  std::optional<TrainingData> opened = {};  // `data`, by prepare()
  std::uint64_t seed = 0;
  std::uint64_t steps = 0;   // in all, counted from the very start; 0: by epochs
  std::uint64_t epochs = 1;  // where steps is 0
  std::uint64_t total = 0;   // steps in all, by prepare()
  double learning_rate = 0.01;
  std::string lr_schedule = "constant";
  std::uint64_t warmup = 0;
  bool augment = false;
  std::string save = {};                        // checkpoint to write; empty: none
  std::uint64_t save_every = 0;                 // steps; 0: at the end only
  std::uint64_t keep = 1;                       // generations of the checkpoint
  bool overwrite = false;                       // of another run
  std::shared_ptr<CheckpointSaver> saver = {};  // of `save`, by open_saver(); the first process has one
  std::string resume = {};                      // checkpoint to go on from; empty: start anew
  std::string model = {};  // name and settings, kept in checkpoints and compared when one is taken up
  nlohmann::json model_settings = nlohmann::json::object();
  nlohmann::json training_settings = nlohmann::json::object();  // see run/resume.h
  bool keep_traces = false;
  std::function<void(const std::string&)> note = [](const std::string&) {};  // lines for the user
  std::function<void()> after_steps = {};  // called when the last step is done, before it is saved and evaluated
};

struct Progress {
  std::uint64_t step = 0, steps = 0;  // done, in all
  std::uint64_t epoch = 0;
  std::uint64_t steps_since = 0;  // the last report
  double loss = 0;                // mean of these
  double accuracy = -1;           // likewise; -1: the model has none
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
  std::string not_saved;  // why the checkpoint does not have the end of the run; empty: it has, or there is none
  // Of the last steps; of ranks also of what they delayed (a step_ns of 0) that was not done beside the next one.
  std::vector<Trace> traces;
};

// Of the first process, before all else: claims the name that checkpoints are saved under.
void open_saver(LoopOptions& options);

// Before a run is planned, which takes a while: opens the data and finds what is wrong with the options, for a
// model that takes such samples, `batch` in a step.
void prepare(LoopOptions& options, const SampleForm& form, std::int64_t batch);

// The settings of the run that a checkpoint is of, and of one that is to be, by the names of fields; and what else a
// checkpoint keeps of them.
nlohmann::json all_settings(const CheckpointState& state);
nlohmann::json all_settings(const LoopOptions& options);

// A run with these settings goes on after `steps` of a checkpoint: see compare_with_kept. Returns lines for the user
// about what differs and may. A user error too if it is to end before that step; once prepared, it is known where it
// ends.
std::vector<std::string> check_same_run(const nlohmann::json& kept, std::uint64_t steps, const LoopOptions& options);

// Runs to the end or until `is_interrupted`. Everything is a pure function of the options: a run that was stopped and
// resumed ends with the same bits. A loss that is not finite is a user error that names the first task that made it;
// the last checkpoint stays as it is.
LoopResult run_training(TrainingRun& run, const LoopOptions& options,
                        const std::function<void(const Progress&)>& report,
                        const std::function<bool()>& is_interrupted);

EvalResult evaluate(TrainingRun& run, const Dataset& dataset);

}  // namespace overtake
