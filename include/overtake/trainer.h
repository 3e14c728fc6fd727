#pragma once
// Trainer: a program at work on a device of this process. It runs training steps on what the caller gives it, shows
// what they computed, and goes on with another program between two of them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "overtake/compile.h"
#include "overtake/graph.h"
#include "overtake/plan.h"
#include "overtake/program.h"
#include "overtake/run_spec.h"

namespace overtake {

// Values for an input of the model, of all samples of a step, row-major in the shape that the model gives it: images
// [N, C, H, W], or where `is_channels_last` [N, H, W, C], as they lie in memory and need not be converted. The values
// belong to the caller, and are not looked at after the call that takes them.
struct Input {
  Input(std::string of, std::span<const float> values);         // Model::input, and "targets"
  Input(std::string of, std::span<const std::int32_t> values);  // Model::tokens, and "labels"
  Input(std::string of, std::span<const std::uint8_t> values);  // Model::mask

  std::string name;
  DType type;
  std::span<const std::byte> bytes;
  bool is_channels_last = false;
};

struct StepResult {
  float loss = 0;
  float counted = 0;  // rows that count, for the accuracy
  float correct = 0;
  bool is_asked_to_stop = false;  // by one of the processes of a job
  // Of the program's plan. It has spans of tasks where they cost nothing, and where they were asked for.
  Trace trace;
  // What the device idled between the step before and this one; none where that was not under way when this was
  // started.
  std::optional<std::int64_t> idle_ns = {};
};

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // row-major
};

class Trainer {
 public:
  // Compiles the model for the spec's device in this process, as `overtake train` does: what its tasks take is
  // measured, and the best plans are tried out. Then weights start from the spec's seed. What a spec says of data,
  // checkpoints and files is not looked at: samples come from the caller. `note` gets lines for people.
  Trainer(Graph model, const RunSpec& spec, const CompileOptions& options = {},
          std::function<void(const std::string&)> note = {});
  // A program that is there already. `spec` is what it was compiled with. User errors: another one; the kernels of the
  // spec's device want another step than the program has.
  Trainer(Program program, const RunSpec& spec);
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // One training step. Every input of the model is given, and no other. The learning rate is what the spec says of this
  // step, or the one given. A loss that is not finite is for the caller to look at.
  StepResult step(const std::vector<Input>& inputs, std::optional<float> learning_rate = {});
  // The same in two halves: on a GPU the host goes on while up to most_under_way() steps run.
  void start_step(const std::vector<Input>& inputs, std::optional<float> learning_rate = {});
  StepResult finish_step();
  std::size_t most_under_way() const;
  // One step with a span for every task.
  StepResult step_traced(const std::vector<Input>& inputs, std::optional<float> learning_rate = {});
  // Forward only, with running statistics and without dropout; changes nothing.
  StepResult evaluate(const std::vector<Input>& inputs);

  // While no step is under way, by name: a weight, a running statistic or a state of the optimizer ("fc1.weight"), in
  // the shape that PyTorch gives it; or what CompileOptions::readable kept of the last step ("fc1", "fc1.weight.grad"),
  // in the shape it has in the step.
  Tensor read(const std::string& name) const;
  // Names of all that lives across steps.
  std::vector<std::string> parameters() const;
  // Over all weights in their order in the model; equal where all bits are. `overtake train --json` prints it as 16
  // hexadecimal digits.
  std::uint64_t weights_hash() const;
  std::uint64_t steps_done() const;

  // Goes on with another program of the same model, between two steps: other lanes, other stages, another order of
  // micro-batches. Weights and states stay what they are, and the steps go on counting. User errors: a program of
  // another model or optimizer, or for other kernels; a step that is not finished. Nothing is changed then.
  void adopt(Program program);

  const Program& program() const;
  const Plan& plan() const;    // what the device runs, with its memory
  std::int64_t batch() const;  // samples of a step

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

}  // namespace overtake
