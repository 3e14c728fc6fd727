#include "train/run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bf16.h"
#include "base/error.h"
#include "plan/divide/parallel_options.h"
#include "train/initial_values.h"
#include "train/tags.h"

namespace overtake {
namespace {

// What is summed over all ranks after a step.
enum Metric : std::uint8_t { loss, counted, correct, stops };

std::vector<NamedInput> inputs_of(const HostBatch& batch) {
  return {{"input", std::as_bytes(std::span(batch.values))},
          {"tokens", std::as_bytes(std::span(batch.tokens))},
          {"labels", std::as_bytes(std::span(batch.labels))},
          {"targets", std::as_bytes(std::span(batch.targets))}};
}

PlannedRun planned(Graph model, const RunSpec& spec, const Workplace& place, const PlannerOptions& options) {
  if (spec.plan.empty()) return plan_run(std::move(model), spec, place, options);
  return {load_program(spec.plan, place), {}};
}

}  // namespace

TrainingRun::TrainingRun(Graph model, const RunSpec& spec, RunOptions options) : seed_(spec.seed) {
  place_ = open_workplace(spec, options.place);
  PlannedRun plan = planned(std::move(model), spec, place_, options.planner);
  *this = TrainingRun(std::move(plan), std::move(place_), spec, std::move(options.initial));
}

TrainingRun::TrainingRun(PlannedRun planned, Workplace place, const RunSpec& spec, std::vector<NamedTensor> initial)
    : place_(std::move(place)), seed_(spec.seed), initial_(std::move(initial)), passes_(std::move(planned.passes)) {
  memory_cap_ = memory_cap_of(spec);
  now_ = std::make_unique<Installed>(std::move(planned.program), place_, memory_cap_, nullptr);
  start_anew();
}

void TrainingRun::start_anew() {
  now_->parameters().initialise(seed_, initial_);
  steps_ = 0;
}

TrainingRun::Prepared TrainingRun::prepare(Program program) const {
  OVERTAKE_CHECK(program.model.parameters.size() == this->program().model.parameters.size(),
                 "a program of another model: {}", program.model.model);
  program.machine.target = this->program().machine.target;
  return std::make_unique<Installed>(std::move(program), place_, memory_cap_, now_.get());
}

void TrainingRun::adopt(Prepared prepared) {
  OVERTAKE_CHECK(running_ == 0 && ended_.empty(), "{} steps are not finished", running_ + ended_.size());
  settle();
  if (!prepared->shares_memory()) prepared->parameters().take(now_->parameters());
  // No transfer of the program before is under way when one of the next begins.
  if (has_ranks()) place_.groups()->world->barrier({.tag = kPlanningTag + 2});
  now_ = std::move(prepared);
}

std::optional<double> TrainingRun::predicted_ms() const {
  const std::int64_t ns = program().choice().predicted_ns;
  return ns > 0 ? std::optional(static_cast<double>(ns) * 1e-6) : std::nullopt;
}

bool TrainingRun::is_divided() const { return program().has_several_devices() || program().spec.micro_batches > 1; }

void TrainingRun::fill_inputs(std::uint64_t seed) { fill_random_inputs(executor(), seed); }

TrainingRun::Ended TrainingRun::ended(FinishedStep step, Mean mean) const {
  Ended out{mean, std::move(step.trace), step.idle_ns, std::make_shared<std::array<float, 4>>(), nullptr};
  std::array<float, 4>& sums = *out.sums;
  for (std::size_t i = 0; 3 * i < step.metrics.size(); ++i) {
    const float* metrics = &step.metrics[3 * i];
    if (mean == Mean::of_losses)
      sums[loss] += metrics[0];
    else if (metrics[1] > 0)
      sums[loss] += metrics[0] * metrics[1];
    if (now_->counts_rows()[i]) sums[counted] += metrics[1];
    if (now_->counts_rows()[i]) sums[correct] += metrics[2];
  }
  sums[stops] = wants_to_stop_ ? 1.0f : 0.0f;
  if (has_ranks()) {
    const auto keep = [kept = out.sums] {};  // until nobody writes there any more
    out.transfer = place_.groups()->world->all_reduce(sums.data(), sums.size(), DType::f32,
                                                      {.tag = kMetricsTag, .priority = kUrgent, .when_done = keep});
  }
  return out;
}

StepResult TrainingRun::result_of(Ended step) const {
  if (step.transfer) place_.groups()->world->wait(step.transfer);
  const std::array<float, 4>& sums = *step.sums;
  const auto pieces = static_cast<float>(program().spec.replicas * program().spec.micro_batches);
  StepResult result;
  result.trace = std::move(step.trace);
  result.idle_ns = step.idle_ns;
  result.loss = sums[loss] / (step.mean == Mean::of_losses ? pieces : std::max(sums[counted], 1.0f));
  result.counted = sums[counted];
  result.correct = sums[correct];
  result.is_asked_to_stop = sums[stops] > 0;
  return result;
}

StepArgs TrainingRun::next_step(float learning_rate) {
  return {.step = steps_++, .seed = seed_, .learning_rate = learning_rate};
}

void TrainingRun::start_step(const HostBatch& batch, float learning_rate) {
  now_->write_inputs(inputs_of(batch), batch.samples);
  start_step(learning_rate);
}

void TrainingRun::start_step(const std::vector<NamedInput>& inputs, float learning_rate) {
  now_->write_inputs(inputs, batch());
  start_step(learning_rate);
}

void TrainingRun::start_step(float learning_rate) {
  if (has_ranks() && running_ == executor().most_under_way()) end_step();
  executor().start(0, next_step(learning_rate));
  ++running_;
}

void TrainingRun::end_step() {
  --running_;
  ended_.push_back(ended(executor().finish(), Mean::of_losses));
}

StepResult TrainingRun::finish_step() {
  if (ended_.empty()) end_step();
  Ended step = std::move(ended_.front());
  ended_.pop_front();
  return result_of(std::move(step));
}

StepResult TrainingRun::step(const HostBatch& batch, float learning_rate) {
  start_step(batch, learning_rate);
  return finish_step();
}

StepResult TrainingRun::step(const std::vector<NamedInput>& inputs, float learning_rate) {
  start_step(inputs, learning_rate);
  return finish_step();
}

StepResult TrainingRun::step(float learning_rate) {
  start_step(learning_rate);
  return finish_step();
}

StepResult TrainingRun::step_traced(const HostBatch& batch, float learning_rate) {
  now_->write_inputs(inputs_of(batch), batch.samples);
  return step_traced(learning_rate);
}

StepResult TrainingRun::step_traced(float learning_rate) {
  FinishedStep step{executor().run_traced(0, next_step(learning_rate)), {}};
  for (const BufferId b : graph().losses) {
    const auto* metrics = reinterpret_cast<const float*>(executor().bytes(b).data());
    step.metrics.insert(step.metrics.end(), metrics, metrics + 3);
  }
  return result_of(ended(std::move(step), Mean::of_losses));
}

StepResult TrainingRun::evaluate(const HostBatch& batch) {
  now_->write_inputs(inputs_of(batch), batch.samples);
  return evaluate();
}

StepResult TrainingRun::evaluate(const std::vector<NamedInput>& inputs) {
  now_->write_inputs(inputs, batch());
  return evaluate();
}

StepResult TrainingRun::evaluate() {
  executor().start(1, {.step = steps_, .seed = seed_});
  return result_of(ended(executor().finish(), Mean::of_rows));
}

void TrainingRun::restore(const std::vector<NamedTensor>& tensors, std::uint64_t steps, const std::string& where) {
  now_->parameters().restore(tensors, where);
  steps_ = steps;
  if (!has_ranks()) return;
  Group& world = *place_.groups()->world;
  world.wait(world.broadcast(0, &steps_, sizeof steps_, DType::u8, {.tag = kMetricsTag}));
}

std::vector<float> TrainingRun::read(const std::string& name) {
  const Graph& g = graph();
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    const Buffer& x = g.buffers[b];
    if (g.buffer_name(b) != name || !(is_persistent(x.role) || x.role == Role::output || x.role == Role::input))
      continue;
    const auto count = static_cast<std::size_t>(x.shape.elements());
    std::vector<std::byte> bytes(count * static_cast<std::size_t>(bytes_of(x.dtype)));
    executor().read_plain(b, bytes);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (x.dtype == DType::bf16)
        values[i] = to_float(reinterpret_cast<const bf16*>(bytes.data())[i]);
      else if (x.dtype == DType::i32)
        values[i] = static_cast<float>(reinterpret_cast<const std::int32_t*>(bytes.data())[i]);
      else if (x.dtype == DType::u8)
        values[i] = static_cast<float>(std::to_integer<unsigned>(bytes[i]));
      else
        std::memcpy(&values[i], bytes.data() + i * sizeof(float), sizeof(float));
    }
    return values;
  }
  fail_user("{}: model {} has no value of that name that outlives a step; keep it with the pass keep_buffers", name,
            g.model);
}

std::string TrainingRun::find_non_finite(const HostBatch& batch, std::uint64_t step) {
  now_->write_inputs(inputs_of(batch), batch.samples);
  return executor().find_non_finite(0, {.step = step, .seed = seed_, .learning_rate = 0.0f});
}

}  // namespace overtake
