#include "train/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "passes/memory.h"
#include "passes/schedule.h"
#include "train/data_sources.h"
#include "train/weights.h"

namespace overtake {
namespace {

std::vector<BufferId> inputs_of(const Graph& g) {
  std::vector<BufferId> all;
  for (BufferId b = 0; b < g.buffers.size(); ++b)
    if (g.buffers[b].role == Role::input) all.push_back(b);
  return all;
}

}  // namespace

Session::Session(Graph forward, SessionOptions options) : options_(std::move(options)) {
  options_.backend.note = options_.note;
  backend_ = open_backend(options_.device, options_.backend);
  const Target& target = backend_->target();
  PassRunner runner({.skip = options_.skip_passes, .print = options_.print_passes});
  const unsigned cores = options_.backend.threads == 0 ? available_cores() : options_.backend.threads;
  const Graph graph = build_training_graph(std::move(forward), target,
                                           {.optimizer = options_.optimizer,
                                            .bf16 = backend_->precision() == Precision::bf16,
                                            .propagate_layouts = options_.propagate_layouts,
                                            .parts = options_.parts == 0 ? cores : options_.parts,
                                            .extra = options_.extra_passes},
                                           runner);
  passes_ = runner.records();
  planned_ = choose_plan(graph, *backend_,
                         {.schedule = options_.schedule,
                          .memory_cap = options_.memory_cap,
                          .seconds = options_.plan_seconds,
                          .profiling = {.seconds = 2 * options_.plan_seconds,
                                        .folder = options_.profiles,
                                        .use_kept = options_.use_kept_profile,
                                        .note = options_.note}});
  if (options_.note && !planned_.reason.empty()) options_.note(planned_.reason);
  Plan plan = planned_.candidates[planned_.chosen].plan;
  Plan forward_plan = place_memory(schedule_forward(graph));
  verify(plan);
  verify(forward_plan);
  executor_ = backend_->make_executor({std::move(plan), std::move(forward_plan)});
  initialise();
}

void Session::initialise() {
  fill_initial_parameters(*executor_, options_.seed);
  for (const Parameter& p : graph().parameters) write_stored(p, options_.initial);
  steps_ = 0;
}

std::vector<std::byte> Session::read_values(const Parameter& p) const {
  const Buffer& b = graph().buffers[p.buffer];
  std::vector<std::byte> values(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));
  executor_->read_plain(p.buffer, values);
  return values;
}

void Session::write_stored(const Parameter& p, const std::vector<NamedTensor>& tensors) {
  const Buffer& b = graph().buffers[p.buffer];
  std::vector<std::byte> values;
  for (const StoredTensor& part : stored_tensors(graph(), p)) {
    const NamedTensor* t = find_tensor(tensors, part.name);
    if (t == nullptr) continue;
    // A pass may have dropped dimensions of one.
    OVERTAKE_CHECK(same_but_ones(t->dims, stored_dims(graph(), p, part)) && t->type == stored_type(b.dtype),
                   "tensor {} is stored as {} [{}]", t->name, stored_type_name(t->type), fmt::join(t->dims, ", "));
    if (part.rows == 0) {
      values = from_stored(graph(), p, t->bytes);
      continue;
    }
    if (values.empty()) values = read_values(p);
    const auto row = static_cast<std::ptrdiff_t>(values.size()) / b.shape[0];
    std::ranges::copy(t->bytes, values.begin() + part.first_row * row);
  }
  if (!values.empty()) executor_->write_plain(p.buffer, values);
}

void Session::fill_inputs(std::uint64_t seed) { fill_random_inputs(*executor_, seed); }

SampleForm sample_form_of(const Graph& g) {
  SampleForm form;
  const auto dims_of = [](const Shape& s) { return std::vector<std::int64_t>(s.span().begin() + 1, s.span().end()); };
  for (const BufferId b : inputs_of(g)) {
    const Buffer& x = g.buffers[b];
    const std::string& name = g.buffer_name(b);
    if (name == "targets") {
      form.label = LabelForm::targets;
      form.label_dims = dims_of(x.shape);
    } else if (name == "labels") {
      form.label_dims = dims_of(x.shape);
      form.label = form.label_dims.empty() ? LabelForm::class_per_sample : LabelForm::class_per_position;
    } else if (name == "tokens") {
      form.input = InputForm::tokens;
      form.input_dims = dims_of(x.shape);
    } else if (name == "input") {
      form.input_dims = dims_of(x.shape);
    }
  }
  for (const Task& t : g.tasks) {
    if (t.kind != Kind::forward) continue;
    if (t.op == Op::cross_entropy)
      form.classes = g.attrs_of(t).integer("classes", g.buffers[g.reads(t)[0]].shape.back());
    if (t.op == Op::embedding && g.buffers[g.reads(t)[0]].role == Role::input)
      form.vocabulary = g.attrs_of(t).integer("vocabulary");
  }
  return form;
}

std::int64_t Session::batch() const { return graph().buffers[inputs_of(graph()).at(0)].shape[0]; }

void Session::write_batch(const HostBatch& batch) {
  const auto copy = [&](BufferId b, const auto& from) {
    const auto to = executor_->bytes(b);
    OVERTAKE_CHECK(from.size() * sizeof(from[0]) == to.size(), "the batch has {} bytes for input {} of {}",
                   from.size() * sizeof(from[0]), graph().buffer_name(b), to.size());
    std::memcpy(to.data(), from.data(), to.size());
  };
  for (const BufferId b : inputs_of(graph())) {
    const std::string& name = graph().buffer_name(b);
    if (name == "tokens") {
      copy(b, batch.tokens);
    } else if (name == "targets") {
      copy(b, batch.targets);
    } else if (name == "input") {
      copy(b, batch.values);
    } else if (name == "labels") {
      copy(b, batch.labels);
      // Samples that only fill up the last batch do not count.
      const std::size_t per_sample = batch.labels.size() / static_cast<std::size_t>(this->batch());
      auto* labels = reinterpret_cast<std::int32_t*>(executor_->bytes(b).data());
      std::fill(labels + static_cast<std::size_t>(batch.samples) * per_sample, labels + batch.labels.size(), -100);
    } else {
      fail_user("model {}: no data source provides its input '{}'; feed it through the C++ API", graph().model, name);
    }
  }
}

StepResult Session::result_of(FinishedStep step) const {
  StepResult result;
  result.trace = std::move(step.trace);
  for (std::size_t i = 0; i < graph().losses.size(); ++i) result.loss += step.metrics[3 * i];
  if (!step.metrics.empty()) {
    result.counted = step.metrics[1];
    result.correct = step.metrics[2];
  }
  return result;
}

StepArgs Session::next_step(float learning_rate) {
  return {.step = steps_++, .seed = options_.seed, .learning_rate = learning_rate};
}

void Session::start_step(const HostBatch& batch, float learning_rate) {
  write_batch(batch);
  start_step(learning_rate);
}

void Session::start_step(float learning_rate) { executor_->start(0, next_step(learning_rate)); }

StepResult Session::finish_step() { return result_of(executor_->finish()); }

StepResult Session::step(const HostBatch& batch, float learning_rate) {
  write_batch(batch);
  return step(learning_rate);
}

StepResult Session::step(float learning_rate) {
  start_step(learning_rate);
  return finish_step();
}

StepResult Session::step_traced(const HostBatch& batch, float learning_rate) {
  write_batch(batch);
  return step_traced(learning_rate);
}

StepResult Session::step_traced(float learning_rate) {
  FinishedStep step{executor_->run_traced(0, next_step(learning_rate)), {}};
  for (const BufferId b : graph().losses) {
    const auto* metrics = reinterpret_cast<const float*>(executor_->bytes(b).data());
    step.metrics.insert(step.metrics.end(), metrics, metrics + 3);
  }
  return result_of(std::move(step));
}

StepResult Session::evaluate(const HostBatch& batch) {
  write_batch(batch);
  return evaluate();
}

StepResult Session::evaluate() {
  executor_->start(1, {.step = steps_, .seed = options_.seed});
  return finish_step();
}

std::vector<NamedTensor> Session::tensors() const {
  std::vector<NamedTensor> all;
  for (const Parameter& p : graph().parameters) {
    const Buffer& b = graph().buffers[p.buffer];
    const auto memory = std::make_shared<const std::vector<std::byte>>(to_stored(graph(), p, read_values(p)));
    for (const StoredTensor& part : stored_tensors(graph(), p)) {
      std::span<const std::byte> bytes = *memory;
      if (part.rows != 0) {
        const std::size_t row = bytes.size() / static_cast<std::size_t>(b.shape[0]);
        bytes =
            bytes.subspan(static_cast<std::size_t>(part.first_row) * row, static_cast<std::size_t>(part.rows) * row);
      }
      all.push_back({part.name, stored_type(b.dtype), stored_dims(graph(), p, part), bytes, memory});
    }
  }
  return all;
}

void Session::restore(const std::vector<NamedTensor>& tensors, std::uint64_t steps, const std::string& where) {
  std::vector<std::string> missing, misshapen, extra;
  std::set<std::string> known;
  for (const Parameter& p : graph().parameters)
    for (const StoredTensor& part : stored_tensors(graph(), p)) {
      known.insert(part.name);
      const NamedTensor* tensor = find_tensor(tensors, part.name);
      const std::vector<std::int64_t> dims = stored_dims(graph(), p, part);
      if (tensor == nullptr)
        missing.push_back(part.name);
      else if (tensor->dims != dims || tensor->type != stored_type(graph().buffers[p.buffer].dtype))
        misshapen.push_back(
            fmt::format("{} ([{}], model has [{}])", part.name, fmt::join(tensor->dims, ", "), fmt::join(dims, ", ")));
    }
  for (const NamedTensor& t : tensors)
    if (!known.contains(t.name)) extra.push_back(t.name);
  if (!missing.empty() || !misshapen.empty() || !extra.empty())
    fail_user(
        "{}: it does not fit model {} and its optimizer: missing [{}], of another shape [{}], too much [{}]; use the "
        "model and settings it was made with",
        where, graph().model, fmt::join(missing, ", "), fmt::join(misshapen, ", "), fmt::join(extra, ", "));
  for (const Parameter& p : graph().parameters) write_stored(p, tensors);
  steps_ = steps;
}

std::uint64_t Session::weights_hash() const {
  Hash64 hash;
  for (const Parameter& p : graph().parameters) {
    if (graph().buffers[p.buffer].role == Role::weight) hash.add(read_values(p));
  }
  return hash.value();
}

std::string Session::find_non_finite(const HostBatch& batch, std::uint64_t step) {
  write_batch(batch);
  return executor_->find_non_finite(0, {.step = step, .seed = options_.seed, .learning_rate = 0.0f});
}

}  // namespace overtake
