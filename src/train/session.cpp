#include "train/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "exec/cpu/target.h"
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
  if (options_.bf16 && options_.device == "cpu" && !cpu_has_bf16())
    fail_user("--precision bf16: this CPU has no bfloat16 instructions; use --precision f32");
  const CpuTarget target;
  PassRunner runner({.skip = options_.skip_passes, .print = options_.print_passes});
  const unsigned cores = options_.threads == 0 ? available_cores() : options_.threads;
  const Graph graph = build_training_graph(std::move(forward), target,
                                           {.optimizer = options_.optimizer,
                                            .bf16 = options_.bf16,
                                            .propagate_layouts = options_.propagate_layouts,
                                            .parts = options_.parts == 0 ? cores : options_.parts,
                                            .extra = options_.extra_passes},
                                           runner);
  passes_ = runner.records();
  Plan plan = choose_plan(graph, {.schedule = options_.schedule,
                                  .device = options_.device,
                                  .threads = options_.threads,
                                  .memory_cap = options_.memory_cap,
                                  .note = options_.note});
  Plan forward_plan = place_memory(schedule_forward(graph));
  verify(plan);
  verify(forward_plan);
  executor_ = make_executor(options_.device, {std::move(plan), std::move(forward_plan)}, options_.threads);
  initialise();
}

void Session::initialise() {
  fill_initial_parameters(*executor_, options_.seed);
  for (const Parameter& p : graph().parameters)
    if (const NamedTensor* t = find_tensor(options_.initial, graph().buffer_name(p.buffer))) write_stored(p, *t);
  steps_ = 0;
}

void Session::write_stored(const Parameter& p, const NamedTensor& t) {
  const Buffer& b = graph().buffers[p.buffer];
  // A pass may have dropped dimensions of one.
  OVERTAKE_CHECK(same_but_ones(t.dims, stored_dims(graph(), p)) && t.type == stored_type(b.dtype),
                 "tensor {} is stored as {} [{}]", t.name, stored_type_name(t.type), fmt::join(t.dims, ", "));
  executor_->write_plain(p.buffer, from_stored(graph(), p, t.bytes));
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
    if (t.op == Op::cross_entropy) form.classes = g.buffers[g.reads(t)[0]].shape.back();
    if (t.op == Op::embedding && g.buffers[g.reads(t)[0]].role == Role::input)
      form.vocabulary = g.buffers[g.reads(t)[1]].shape[0];
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

StepResult Session::result_of(Trace trace) const {
  StepResult result;
  result.trace = std::move(trace);
  for (std::size_t i = 0; i < graph().losses.size(); ++i) {
    const auto* metrics = reinterpret_cast<const float*>(executor_->bytes(graph().losses[i]).data());
    result.loss += metrics[0];
    if (i == 0) {
      result.counted = metrics[1];
      result.correct = metrics[2];
    }
  }
  return result;
}

StepResult Session::step(const HostBatch& batch, float learning_rate) {
  write_batch(batch);
  return step(learning_rate);
}

StepResult Session::step(float learning_rate) {
  Trace trace = executor_->run(0, {.step = steps_, .seed = options_.seed, .learning_rate = learning_rate});
  ++steps_;
  return result_of(std::move(trace));
}

StepResult Session::evaluate(const HostBatch& batch) {
  write_batch(batch);
  return evaluate();
}

StepResult Session::evaluate() { return result_of(executor_->run(1, {.step = steps_, .seed = options_.seed})); }

std::vector<NamedTensor> Session::tensors() const {
  std::vector<NamedTensor> all;
  for (const Parameter& p : graph().parameters) {
    const Buffer& b = graph().buffers[p.buffer];
    const auto size = static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype));
    std::vector<std::byte> ours(size);
    executor_->read_plain(p.buffer, ours);
    const auto memory = std::make_shared<const std::vector<std::byte>>(to_stored(graph(), p, std::move(ours)));
    all.push_back({graph().buffer_name(p.buffer), stored_type(b.dtype), stored_dims(graph(), p), *memory, memory});
  }
  return all;
}

void Session::restore(const std::vector<NamedTensor>& tensors, std::uint64_t steps, const std::string& where) {
  std::vector<std::string> missing, misshapen, extra;
  std::set<std::string> known;
  for (const Parameter& p : graph().parameters) {
    const Buffer& b = graph().buffers[p.buffer];
    const std::string& name = graph().buffer_name(p.buffer);
    known.insert(name);
    const NamedTensor* tensor = find_tensor(tensors, name);
    if (tensor == nullptr)
      missing.push_back(name);
    else if (tensor->dims != stored_dims(graph(), p) || tensor->type != stored_type(b.dtype))
      misshapen.push_back(fmt::format("{} ([{}], model has [{}])", name, fmt::join(tensor->dims, ", "),
                                      fmt::join(stored_dims(graph(), p), ", ")));
  }
  for (const NamedTensor& t : tensors)
    if (!known.contains(t.name)) extra.push_back(t.name);
  if (!missing.empty() || !misshapen.empty() || !extra.empty())
    fail_user(
        "{}: it does not fit model {} and its optimizer: missing [{}], of another shape [{}], too much [{}]; use the "
        "model and settings it was made with",
        where, graph().model, fmt::join(missing, ", "), fmt::join(misshapen, ", "), fmt::join(extra, ", "));
  for (const Parameter& p : graph().parameters) write_stored(p, *find_tensor(tensors, graph().buffer_name(p.buffer)));
  steps_ = steps;
}

std::uint64_t Session::weights_hash() const {
  Hash64 hash;
  for (const Parameter& p : graph().parameters) {
    const Buffer& b = graph().buffers[p.buffer];
    if (b.role != Role::weight) continue;
    std::vector<std::byte> values(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));
    executor_->read_plain(p.buffer, values);
    hash.add(values);
  }
  return hash.value();
}

std::string Session::find_non_finite() {
  return executor_->find_non_finite(0, {.step = steps_ - 1, .seed = options_.seed, .learning_rate = 0.0f});
}

}  // namespace overtake
