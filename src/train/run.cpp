#include "train/run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "exec/plain_values.h"
#include "passes/keep.h"
#include "plan/divide/parallel_options.h"
#include "train/initial_values.h"
#include "train/tags.h"
#include "train/weights.h"

namespace overtake {
namespace {

// What is summed over all ranks after a step.
enum Metric : std::uint8_t { loss, counted, correct, stops };

// What a batch has of them; the images among the inputs lie channels-last there.
std::vector<Input> inputs_of(const HostBatch& batch) {
  std::vector<Input> inputs;
  const auto add = [&](const char* name, const auto& values, bool is_channels_last = false) {
    if (values.empty()) return;
    inputs.emplace_back(name, std::span(values)).is_channels_last = is_channels_last;
  };
  add("input", batch.values, true);
  add("tokens", batch.tokens);
  add("labels", batch.labels);
  add("targets", batch.targets);
  return inputs;
}

// The names of everything that lives across the steps of a program, and its shapes in files.
std::map<std::string, std::vector<std::int64_t>> parameters_of(const Graph& step) {
  std::map<std::string, std::vector<std::int64_t>> all;
  for (const Parameter& p : step.parameters)
    for (const StoredTensor& part : stored_tensors(step, p)) all[part.name] = stored_dims(step, p, part);
  return all;
}

// One program can go on where the other was.
void check_same_parameters(const Program& before, const Program& next) {
  const auto old = parameters_of(before.step), now = parameters_of(next.step);
  const auto [a, b] = std::ranges::mismatch(old, now);
  if (a == old.end() && b == now.end()) return;
  const bool is_missing = b == now.end() || (a != old.end() && a->first < b->first);
  const auto& [name, shape] = is_missing ? *a : *b;
  fail_user(
      "`program {}`: it {} {} [{}], unlike model {}, which is being trained; compile it from the same model, with "
      "the same optimizer",
      next.model.model, is_missing ? "lacks" : "has", name, fmt::join(shape, ", "), before.model.model);
}

PlannedRun planned(Graph model, const RunSpec& spec, const Workplace& place, const CompileOptions& options) {
  if (spec.plan.empty()) return plan_run(std::move(model), spec, place, options);
  return {load_program(spec.plan, place), {}};
}

}  // namespace

TrainingRun::TrainingRun(Graph model, const RunSpec& spec, RunOptions options) : seed_(spec.seed) {
  place_ = open_workplace(spec, options.place);
  PlannedRun plan = planned(std::move(model), spec, place_, options.compile);
  *this = TrainingRun(std::move(plan), std::move(place_), spec, std::move(options.initial));
}

TrainingRun::TrainingRun(PlannedRun planned, Workplace place, const RunSpec& spec, std::vector<NamedTensor> initial)
    : place_(std::move(place)), seed_(spec.seed), initial_(std::move(initial)), passes_(std::move(planned.passes)) {
  memory_cap_ = memory_cap_of(spec);
  now_ = std::make_unique<Installed>(std::move(planned.program), place_, memory_cap_, nullptr);
  std::ranges::copy(now_->passes(), std::back_inserter(passes_));
  now_->connect(place_);
  start_anew();
}

void TrainingRun::start_anew() {
  now_->parameters().initialise(seed_, initial_);
  steps_ = 0;
}

TrainingRun::Prepared TrainingRun::prepare(Program program) const {
  check_same_parameters(this->program(), program);
  program.machine.target = this->program().machine.target;
  return std::make_unique<Installed>(std::move(program), place_, memory_cap_, now_.get());
}

void TrainingRun::adopt(Prepared prepared) {
  check_at_rest("adopt");
  settle();
  // No transfer of the program before is under way when one of the next begins.
  if (has_ranks()) place_.groups()->world->barrier({.tag = kPlanningTag + 2});
  prepared->connect(place_);
  if (prepared->parameters().memory() != now_->parameters().memory()) prepared->parameters().take(now_->parameters());
  now_ = std::move(prepared);
}

void TrainingRun::check_at_rest(std::string_view what) const {
  if (const std::size_t steps = running_ + ended_.size(); steps > 0)
    fail_user("{}: {} steps are under way; finish them first", what, steps);
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

void TrainingRun::check_room_for_step() const {
  if (!has_ranks() && running_ == executor().most_under_way())
    fail_user("start_step: {} steps are under way, which is the most; finish one first", running_);
}

void TrainingRun::start_step(const HostBatch& batch, float learning_rate) {
  check_room_for_step();
  now_->write_inputs(inputs_of(batch), batch.samples);
  start_step(learning_rate);
}

void TrainingRun::start_step(const std::vector<Input>& inputs, float learning_rate) {
  check_room_for_step();
  now_->write_inputs(inputs, batch());
  start_step(learning_rate);
}

void TrainingRun::start_step(float learning_rate) {
  check_room_for_step();
  if (running_ == executor().most_under_way()) end_step();
  executor().start(0, next_step(learning_rate));
  ++running_;
}

void TrainingRun::end_step() {
  --running_;
  ended_.push_back(ended(executor().finish(), Mean::of_losses));
}

StepResult TrainingRun::finish_step() {
  if (ended_.empty() && running_ == 0) fail_user("finish_step: no step is under way; start one first");
  if (ended_.empty()) end_step();
  Ended step = std::move(ended_.front());
  ended_.pop_front();
  return result_of(std::move(step));
}

StepResult TrainingRun::step(const HostBatch& batch, float learning_rate) {
  start_step(batch, learning_rate);
  return finish_step();
}

StepResult TrainingRun::step(const std::vector<Input>& inputs, float learning_rate) {
  start_step(inputs, learning_rate);
  return finish_step();
}

StepResult TrainingRun::step(float learning_rate) {
  start_step(learning_rate);
  return finish_step();
}

StepResult TrainingRun::step_traced(const HostBatch& batch, float learning_rate) {
  check_at_rest("step_traced");
  now_->write_inputs(inputs_of(batch), batch.samples);
  return step_traced(learning_rate);
}

StepResult TrainingRun::step_traced(const std::vector<Input>& inputs, float learning_rate) {
  check_at_rest("step_traced");
  now_->write_inputs(inputs, batch());
  return step_traced(learning_rate);
}

StepResult TrainingRun::step_traced(float learning_rate) {
  check_at_rest("step_traced");
  FinishedStep step{executor().run_traced(0, next_step(learning_rate)), {}};
  for (const BufferId b : graph().losses) {
    const auto* metrics = reinterpret_cast<const float*>(executor().bytes(b).data());
    step.metrics.insert(step.metrics.end(), metrics, metrics + 3);
  }
  return result_of(ended(std::move(step), Mean::of_losses));
}

StepResult TrainingRun::evaluate(const HostBatch& batch) {
  check_at_rest("evaluate");
  now_->write_inputs(inputs_of(batch), batch.samples);
  return evaluate();
}

StepResult TrainingRun::evaluate(const std::vector<Input>& inputs) {
  check_at_rest("evaluate");
  now_->write_inputs(inputs, batch());
  return evaluate();
}

StepResult TrainingRun::evaluate() {
  check_at_rest("evaluate");
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

Tensor TrainingRun::read(const std::string& name) const {
  check_at_rest("read");
  if (const std::optional<NamedTensor> found = now_->parameters().find(name))
    return {found->dims, as_floats(found->bytes, found->type)};
  const Graph& g = graph();
  const BufferId b = find_readable(g, name);
  if (b == kNone || g.buffers[b].role != Role::output)
    fail_user("`read {}`: model {} has nothing of that name that outlives a step; name it in CompileOptions::readable",
              name, g.model);
  const Buffer& x = g.buffers[b];
  std::vector<std::byte> bytes(plain_bytes(x));
  executor().read_plain(b, bytes);
  return {{x.shape.span().begin(), x.shape.span().end()}, as_floats(bytes, stored_type(x.dtype))};
}

std::string TrainingRun::find_non_finite(const HostBatch& batch, std::uint64_t step) {
  now_->write_inputs(inputs_of(batch), batch.samples);
  return executor().find_non_finite(0, {.step = step, .seed = seed_, .learning_rate = 0.0f});
}

}  // namespace overtake
