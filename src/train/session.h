#pragma once
// Session: a model made ready to train on a device. It compiles the graph, chooses a schedule, holds the weights, and
// runs steps.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "cost/profile.h"
#include "exec/backend.h"
#include "passes/pipeline.h"
#include "train/loader.h"
#include "train/planning.h"

namespace overtake {

struct SessionOptions {
  OptimizerSettings optimizer;
  ScheduleChoice schedule = ScheduleChoice::automatic;
  std::string device = "cpu";  // see open_backend
  BackendOptions backend;      // its note is set from the one below
  unsigned parts = 0;  // pieces that sums are cut into; 0: as many as cores. Another number may change last bits.
  std::uint64_t seed = 0;
  // Weights and states that start from these, under the model's names and in stored form (train/weights.h), instead of
  // at random.
  std::vector<NamedTensor> initial = {};
  std::optional<std::uint64_t> memory_cap;
  double plan_seconds = 10;  // for searching schedules; measuring tasks side by side takes at most twice as long
  std::filesystem::path profiles = default_profile_folder();  // what was measured is kept there
  bool use_kept_profile = true;
  std::set<std::string> skip_passes;
  bool propagate_layouts = true;  // false: back to row-major after every layer, for measuring
  std::vector<Pass<Graph>> extra_passes = {};
  std::function<void(const std::string&)> print_passes = {};  // gets the graph whenever a pass changed it
  std::function<void(const std::string&)> note = {};          // gets lines for the user: what was chosen, and why
};

struct StepResult {
  float loss = 0;
  float counted = 0;  // rows that count, for the accuracy
  float correct = 0;
  Trace trace;
};

class Session {
 public:
  Session(Graph forward, SessionOptions options);

  // One training step on a batch, or on what the input buffers hold.
  StepResult step(const HostBatch& batch, float learning_rate);
  StepResult step(float learning_rate);
  // The same in two halves: on devices of their own the host goes on while up to most_under_way() steps run.
  void start_step(const HostBatch& batch, float learning_rate);
  void start_step(float learning_rate);
  StepResult finish_step();
  std::size_t most_under_way() const { return executor_->most_under_way(); }
  // One step with a span for every task.
  StepResult step_traced(const HostBatch& batch, float learning_rate);
  StepResult step_traced(float learning_rate);
  // Forward only, with running statistics and without dropout; changes nothing.
  StepResult evaluate(const HostBatch& batch);
  StepResult evaluate();
  // Random numbers of a sensible range into every input, for measuring.
  void fill_inputs(std::uint64_t seed);

  const Plan& plan() const { return executor_->plan(0); }
  const Graph& graph() const { return plan().graph; }
  std::uint64_t peak_bytes() const { return plan().arena_bytes; }
  std::uint64_t steps_done() const { return steps_; }
  const std::vector<PassRecord>& passes() const { return passes_; }
  const PlanChoice& planned() const { return planned_; }
  Executor& executor() { return *executor_; }
  Precision precision() const { return backend_->precision(); }
  std::int64_t batch() const;

  // Starts the weights anew, from the seed and `initial`.
  void initialise();
  // Everything that is learnt and lives across steps, by name, in stored form.
  std::vector<NamedTensor> tensors() const;
  // Takes all of them; a user error lists what is missing, too much or of another shape. Nothing is changed then.
  void restore(const std::vector<NamedTensor>& tensors, std::uint64_t steps, const std::string& where);
  // Over all weights in their order in the model.
  std::uint64_t weights_hash() const;
  // Name of the first task that makes a number that is not finite in this step; see Executor.
  std::string find_non_finite(const HostBatch& batch, std::uint64_t step);

 private:
  void write_batch(const HostBatch& batch);
  StepArgs next_step(float learning_rate);
  StepResult result_of(FinishedStep step) const;
  std::vector<std::byte> read_values(const Parameter& parameter) const;
  // What of the parameter is among the tensors.
  void write_stored(const Parameter& parameter, const std::vector<NamedTensor>& tensors);

  SessionOptions options_;
  std::vector<PassRecord> passes_;
  PlanChoice planned_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> executor_;  // program 0 trains, program 1 evaluates
  std::uint64_t steps_ = 0;
};

// What a model takes, for opening data.
SampleForm sample_form_of(const Graph& graph);

}  // namespace overtake
