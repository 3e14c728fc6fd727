#pragma once
// Session: a model made ready to train on a device. It compiles the graph, chooses a schedule, holds the weights, and
// runs steps.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "exec/backend.h"
#include "machine/profile.h"
#include "passes/training_passes.h"
#include "train/device_ranks.h"
#include "train/loader.h"
#include "train/parallel.h"
#include "train/planning.h"

namespace overtake {

struct SessionOptions {
  OptimizerSettings optimizer;
  ScheduleChoice schedule = ScheduleChoice::automatic;
  // Makes the plan of one device instead of `schedule`; it is verified, and its memory is placed here.
  std::function<Plan(const Graph&)> own_plan = {};
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
  // The forward graph is then of one micro-batch. With backend.groups this process is a rank of as many as there are
  // devices; without, it has all devices.
  ParallelOptions parallel = {};
  MakeDeviceGroup make_device_group = {};  // where backend.device_groups are there: connects GPUs
};

struct StepResult {
  float loss = 0;
  float counted = 0;  // rows that count, for the accuracy
  float correct = 0;
  bool is_asked_to_stop = false;  // by one of the processes
  Trace trace;
  std::optional<std::int64_t> idle_ns = {};  // see FinishedStep
};

class Session {
 public:
  Session(Graph forward, SessionOptions options);

  // One training step on a batch, or on what the input buffers hold.
  StepResult step(const HostBatch& batch, float learning_rate);
  StepResult step(float learning_rate);
  // The same in two halves: on devices of their own the host goes on while up to most_under_way() steps run. With other
  // ranks, the losses of a step go round beside the next one.
  void start_step(const HostBatch& batch, float learning_rate);
  void start_step(float learning_rate);
  StepResult finish_step();
  std::size_t most_under_way() const { return executor_->most_under_way() + (has_ranks() ? 1 : 0); }
  // One step with a span for every task.
  StepResult step_traced(const HostBatch& batch, float learning_rate);
  StepResult step_traced(float learning_rate);
  // What the last step left for the next one to do; see Executor.
  Trace settle() { return executor_->settle(); }
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
  const ParallelOptions& parallel() const { return options_.parallel; }  // with what planning chose
  // Of several devices, where it was asked for; only the first rank has it.
  const std::optional<PredictedStep>& predicted() const { return predicted_; }
  std::optional<double> predicted_ms() const;
  Executor& executor() { return *executor_; }
  Precision precision() const { return backend_->precision(); }
  // Samples per step, of all processes; and which of them this one is fed with.
  std::int64_t batch() const { return batch_; }
  std::int64_t first_sample() const { return first_sample_; }
  std::int64_t own_samples() const { return own_samples_; }
  // Rank 0 of the processes, or the only one.
  bool is_first() const { return rank() == 0; }
  // From the next step that is finished on, all processes are told that this one was asked to stop.
  void ask_to_stop() { wants_to_stop_ = true; }
  bool is_parallel() const { return options_.parallel.is_used(); }
  bool has_ranks() const { return options_.backend.groups != nullptr; }

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
  // The plan of `whole` is one lane in order.
  void plan_one_device(const Detail& whole);
  void plan_devices(const Graph& graph);
  int rank() const { return options_.backend.groups ? options_.backend.groups->world->rank() : 0; }
  void write_batch(const HostBatch& batch);
  void write_input(BufferId buffer, const HostBatch& batch, std::int64_t first);
  // A weight or state of the model, wherever it lies; only the first rank gets it.
  std::vector<std::byte> collect(std::size_t parameter) const;
  StepArgs next_step(float learning_rate);
  enum class Mean : std::uint8_t { of_losses, of_rows };
  // A step that has ended, whose sums over all ranks are on their way.
  struct Ended {
    Mean mean;
    Trace trace;
    std::optional<std::int64_t> idle_ns;
    std::shared_ptr<std::array<float, 4>> sums;
    TransferHandle transfer;  // where there are ranks
  };
  Ended ended(FinishedStep step, Mean mean) const;
  void end_step();
  StepResult result_of(Ended step) const;
  std::vector<std::byte> read_values(BufferId buffer) const;
  // What of the parameter is among the tensors; empty: nothing.
  std::vector<std::byte> values_from(std::size_t parameter, const std::vector<NamedTensor>& tensors) const;
  void write_values(std::size_t parameter, std::span<const std::byte> values);

  SessionOptions options_;
  std::vector<PassRecord> passes_;
  PlanChoice planned_;
  std::optional<PredictedStep> predicted_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> executor_;  // program 0 trains, program 1 evaluates
  std::uint64_t steps_ = 0;
  std::size_t running_ = 0;  // steps that are with the executor
  std::deque<Ended> ended_;  // steps that were, and are not finished
  std::int64_t batch_ = 0, first_sample_ = 0, own_samples_ = 0, of_a_micro_batch_ = 0;
  std::vector<Detail::Input> inputs_;  // by place among this process's micro-batches
  std::vector<char> counts_rows_;      // per loss of the graph: the first of its rows
  bool wants_to_stop_ = false;
  // Several devices: the model as one has it, and where each of its parameters lies first.
  struct Home {
    int rank = 0;
    std::vector<BufferId> here;  // its buffers in this process
  };
  Graph model_;
  std::vector<Home> homes_;  // per parameter of it
};

// What a model takes, for opening data.
SampleForm sample_form_of(const Graph& graph);

}  // namespace overtake
