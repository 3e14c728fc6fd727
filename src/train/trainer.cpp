#include "overtake/trainer.h"

#include <utility>

#include "base/error.h"
#include "run/field.h"
#include "train/learning_rate.h"
#include "train/run.h"
#include "train/weights.h"

namespace overtake {
namespace {

// The spec of a run with a program that was compiled with it: what was left to the machine is filled in.
RunSpec spec_of(const Program& program, RunSpec spec) {
  if (spec.precision.empty()) spec.precision = program.spec.precision;
  if (spec.parts == 0) spec.parts = program.spec.parts;
  for (const Field& field : fields()) {
    if (!field.decides_plan) continue;
    const nlohmann::json given = value_of(spec, field), compiled = value_of(program.spec, field);
    if (given != compiled)
      fail_user("`{}`: it is {} here, and the program was compiled with {}; give the spec it was compiled with",
                field.name, given.dump(), compiled.dump());
  }
  return spec;
}

TrainingRun run_of(Program program, const RunSpec& given) {
  const RunSpec spec = spec_of(program, given);
  Workplace place = open_workplace(spec);
  const std::string where = "`program " + program.model.model + "`";
  program = fit_to_place(std::move(program), place, where);
  return TrainingRun({std::move(program), {}}, std::move(place), spec);
}

// A trainer takes no files that a spec names.
RunSpec without_plan(RunSpec spec) {
  spec.plan.clear();
  return spec;
}

// None where that is not given.
std::optional<std::uint64_t> steps_of(const RunSpec& spec) {
  return spec.steps > 0 ? std::optional(spec.steps) : std::nullopt;
}

}  // namespace

Input::Input(std::string of, std::span<const float> values)
    : name(std::move(of)), type(DType::f32), bytes(std::as_bytes(values)) {}
Input::Input(std::string of, std::span<const std::int32_t> values)
    : name(std::move(of)), type(DType::i32), bytes(std::as_bytes(values)) {}
Input::Input(std::string of, std::span<const std::uint8_t> values)
    : name(std::move(of)), type(DType::u8), bytes(std::as_bytes(values)) {}

struct Trainer::Run {
  RunSpec spec;
  TrainingRun training;

  // Of the next step.
  float rate(std::optional<float> given) const {
    if (given) return *given;
    const LearningRateSchedule rates = parse_schedule(spec.lr_schedule, spec.lr, spec.warmup, spec.steps);
    if (rates.kind == LearningRateSchedule::Kind::cosine && spec.steps == 0)
      fail_user(
          "`lr_schedule {}`: it ends with the run, and how long that is was not given; set `steps`, or give every "
          "step its learning rate",
          spec.lr_schedule);
    return rates.at(training.steps_done());
  }
};

Trainer::Trainer(Graph model, const RunSpec& spec, const CompileOptions& options,
                 std::function<void(const std::string&)> note)
    : run_(std::make_unique<Run>(Run{spec, TrainingRun(std::move(model), without_plan(spec),
                                                       {.initial = {},
                                                        .place = {.steps = steps_of(spec), .note = std::move(note)},
                                                        .compile = options})})) {}
Trainer::Trainer(Program program, const RunSpec& spec)
    : run_(std::make_unique<Run>(Run{spec, run_of(std::move(program), spec)})) {}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

StepResult Trainer::step(const std::vector<Input>& inputs, std::optional<float> learning_rate) {
  start_step(inputs, learning_rate);
  return finish_step();
}

void Trainer::start_step(const std::vector<Input>& inputs, std::optional<float> learning_rate) {
  run_->training.start_step(inputs, run_->rate(learning_rate));
}

StepResult Trainer::finish_step() { return run_->training.finish_step(); }

std::size_t Trainer::most_under_way() const { return run_->training.most_under_way(); }

StepResult Trainer::step_traced(const std::vector<Input>& inputs, std::optional<float> learning_rate) {
  return run_->training.step_traced(inputs, run_->rate(learning_rate));
}

StepResult Trainer::evaluate(const std::vector<Input>& inputs) { return run_->training.evaluate(inputs); }

Tensor Trainer::read(const std::string& name) const { return run_->training.read(name); }

std::vector<std::string> Trainer::parameters() const {
  const Graph& step = program().step;
  std::vector<std::string> names;
  for (const Parameter& p : step.parameters)
    for (StoredTensor& part : stored_tensors(step, p)) names.push_back(std::move(part.name));
  return names;
}

std::uint64_t Trainer::weights_hash() const { return run_->training.weights_hash(); }

std::uint64_t Trainer::steps_done() const { return run_->training.steps_done(); }

void Trainer::adopt(Program program) {
  TrainingRun& run = run_->training;
  const std::string where = "`program " + program.model.model + "`";
  run.adopt(run.prepare(fit_to_place(std::move(program), run.workplace(), where)));
}

const Program& Trainer::program() const { return run_->training.program(); }

const Plan& Trainer::plan() const { return run_->training.plan(); }

std::int64_t Trainer::batch() const { return run_->training.batch(); }

}  // namespace overtake
