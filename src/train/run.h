#pragma once
// TrainingRun: a program at work on the devices of a place. It runs steps, and goes on with another program between two
// of them.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "overtake/trainer.h"
#include "train/installed.h"
#include "train/loader.h"
#include "train/planner.h"
#include "train/workplace.h"

namespace overtake {

// What a spec cannot say of a run.
struct RunOptions {
  // Weights and states that start from these, under the model's names and in stored form (train/weights.h), instead of
  // at random.
  std::vector<NamedTensor> initial = {};
  WorkplaceOptions place = {};
  CompileOptions compile = {};
};

class TrainingRun {
 public:
  // Opens the spec's device, plans the model for it, or takes the plan that the spec names, and starts the weights.
  // `model` is the forward graph of one micro-batch.
  TrainingRun(Graph model, const RunSpec& spec, RunOptions options = {});
  // A program that is there already. `spec` is the run's: its seed, and the most memory of this process's device.
  TrainingRun(PlannedRun planned, Workplace place, const RunSpec& spec, std::vector<NamedTensor> initial = {});

  // One training step on a batch, or on what the input buffers hold.
  StepResult step(const HostBatch& batch, float learning_rate);
  StepResult step(const std::vector<Input>& inputs, float learning_rate);
  StepResult step(float learning_rate);
  // The same in two halves: on devices of their own the host goes on while up to most_under_way() steps run. With other
  // ranks, the losses of a step go round beside the next one.
  void start_step(const HostBatch& batch, float learning_rate);
  void start_step(const std::vector<Input>& inputs, float learning_rate);
  void start_step(float learning_rate);
  StepResult finish_step();
  std::size_t most_under_way() const { return executor().most_under_way() + (has_ranks() ? 1 : 0); }
  // One step with a span for every task.
  StepResult step_traced(const HostBatch& batch, float learning_rate);
  StepResult step_traced(const std::vector<Input>& inputs, float learning_rate);
  StepResult step_traced(float learning_rate);
  // What the last step left for the next one to do; see Executor.
  Trace settle() { return executor().settle(); }
  // Forward only, with running statistics and without dropout; changes nothing.
  StepResult evaluate(const HostBatch& batch);
  StepResult evaluate(const std::vector<Input>& inputs);
  StepResult evaluate();
  // Random numbers of a sensible range into every input, for measuring.
  void fill_inputs(std::uint64_t seed);

  // Going on with another program of the same model: other lanes, other stages, another order of micro-batches. It is
  // allocated and bound beside training, without communication. A user error if it learns other weights or keeps other
  // states.
  using Prepared = std::unique_ptr<Installed>;
  Prepared prepare(Program program) const;
  // Between two steps; all ranks at once. Parameters and states are found by name, stay where they are if the new
  // program has them there too, and otherwise move. The steps go on counting. A user error while one is under way.
  void adopt(Prepared prepared);

  const Program& program() const { return now_->program(); }
  const Plan& plan() const { return now_->plan(); }
  const Graph& graph() const { return now_->graph(); }
  const Workplace& workplace() const { return place_; }
  std::uint64_t peak_bytes() const { return plan().arena_bytes; }
  std::uint64_t steps_done() const { return steps_; }
  const std::vector<PassRecord>& passes() const { return passes_; }
  // What a step was predicted to take; none where nothing was measured to base it on.
  std::optional<double> predicted_ms() const;
  Executor& executor() const { return now_->executor(); }
  ParameterStore& parameters() { return now_->parameters(); }
  Precision precision() const { return place_.backend->precision(); }
  // Samples per step, of all processes; and which of them this one is fed with.
  std::int64_t batch() const { return now_->batch(); }
  std::int64_t first_sample() const { return now_->first_sample(); }
  std::int64_t own_samples() const { return now_->own_samples(); }
  // Rank 0 of the processes, or the only one.
  bool is_first() const { return place_.rank() == 0; }
  // From the next step that is finished on, all processes are told that this one was asked to stop.
  void ask_to_stop() { wants_to_stop_ = true; }
  bool is_divided() const;  // over devices, or into micro-batches
  bool has_ranks() const { return place_.groups() != nullptr; }

  // Starts the weights anew, from the seed and what they started from before.
  void start_anew();
  // Everything that is learnt and lives across steps, by name, in stored form.
  std::vector<NamedTensor> tensors() const { return now_->parameters().tensors(); }
  // Takes all of them; a user error lists what is missing, too much or of another shape. Nothing is changed then.
  void restore(const std::vector<NamedTensor>& tensors, std::uint64_t steps, const std::string& where);
  // Over all weights in their order in the model.
  std::uint64_t weights_hash() const { return now_->parameters().weights_hash(); }
  // Of what lives across steps, or what CompileOptions::readable kept of the last step; see Trainer::read. A
  // user error if there is none of that name, or while a step is under way. All ranks call it at once; what lives
  // across steps only the first gets.
  Tensor read(const std::string& name) const;
  // Name of the first task that makes a number that is not finite in this step; see Executor.
  std::string find_non_finite(const HostBatch& batch, std::uint64_t step);

 private:
  void check_room_for_step() const;
  StepArgs next_step(float learning_rate);
  // A user error while a step is under way; `what` begins it.
  void check_at_rest(std::string_view what) const;
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

  Workplace place_;
  std::uint64_t seed_ = 0;
  std::optional<std::uint64_t> memory_cap_;
  std::vector<NamedTensor> initial_;
  std::vector<PassRecord> passes_;
  std::unique_ptr<Installed> now_;
  std::uint64_t steps_ = 0;
  std::size_t running_ = 0;  // steps that are with the executor
  std::deque<Ended> ended_;  // steps that were, and are not finished
  bool wants_to_stop_ = false;
};

}  // namespace overtake
