#include "train/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "ops/check_task.h"
#include "plan/divide/micro_batches.h"
#include "plan/in_order.h"
#include "plan/memory.h"
#include "train/data_sources.h"
#include "train/tags.h"
#include "train/weights.h"

namespace overtake {
namespace {

// What is summed over all ranks after a step.
enum Metric : std::uint8_t { loss, counted, correct, stops };

std::vector<BufferId> inputs_of(const Graph& g) {
  std::vector<BufferId> all;
  for (BufferId b = 0; b < g.buffers.size(); ++b)
    if (g.buffers[b].role == Role::input) all.push_back(b);
  return all;
}

}  // namespace

Session::Session(Graph forward, SessionOptions options) : options_(std::move(options)) {
  if (options_.own_plan && options_.parallel.is_used())
    fail_user("own_plan: it is for one device and a batch in one piece, and this session has {} x {}; leave it out",
              options_.parallel.devices(), options_.parallel.micro_batches);
  options_.backend.note = options_.note;
  backend_ = open_backend(options_.device, options_.backend);
  const Target& target = backend_->target();
  // Updates of a stage's weights are its own, and what is sent lies in a buffer of its own.
  if (options_.parallel.is_used()) options_.skip_passes.insert({"group_updates", "share_concats"});
  // Gradients are clipped where all devices' are known: in the plan of these.
  OptimizerSettings optimizer = options_.optimizer;
  if (options_.parallel.is_used()) options_.parallel.clip_norm = std::exchange(optimizer.clip_norm, 0);
  PassRunner runner({.skip = options_.skip_passes, .print = options_.print_passes});
  const unsigned cores = options_.backend.threads == 0 ? available_cores() : options_.backend.threads;
  const Graph graph = build_training_graph(std::move(forward), target,
                                           {.optimizer = optimizer,
                                            .bf16 = backend_->precision() == Precision::bf16,
                                            .propagate_layouts = options_.propagate_layouts,
                                            .parts = options_.parts == 0 ? cores : options_.parts,
                                            .extra = options_.extra_passes},
                                           runner);
  passes_ = runner.records();
  if (options_.parallel.devices() > 1) {
    plan_devices(graph);
  } else if (options_.parallel.micro_batches > 1) {
    const ParallelOptions& parallel = options_.parallel;
    plan_one_device(divide_into_micro_batches(
        graph, {.micro_batches = parallel.micro_batches, .groups = parallel.groups, .clip_norm = parallel.clip_norm},
        target));
  } else {
    Detail whole{.plan = schedule_in_order(graph), .inputs = {}, .losses = {}};
    for (const BufferId b : inputs_of(graph)) whole.inputs.push_back({b, 0, 0});
    for (std::uint32_t i = 0; i < graph.losses.size(); ++i) whole.losses.push_back({0, 0, i});
    plan_one_device(whole);
  }
  initialise();
}

void Session::plan_one_device(const Detail& whole) {
  const Graph& graph = whole.plan.graph;
  if (options_.own_plan) {
    Plan own = options_.own_plan(graph);
    verify(own);
    check_tasks(own.graph);
    planned_.candidates.push_back({"own", place_memory(std::move(own), options_.memory_cap)});
  } else {
    planned_ = choose_plan(graph, *backend_,
                           {.schedule = options_.schedule,
                            .memory_cap = options_.memory_cap,
                            .seconds = options_.plan_seconds,
                            .profiling = {.seconds = 2 * options_.plan_seconds,
                                          .folder = options_.profiles,
                                          .use_kept = options_.use_kept_profile,
                                          .note = options_.note}});
  }
  if (options_.note && !planned_.reason.empty()) options_.note(planned_.reason);
  Plan plan = planned_.candidates[planned_.chosen].plan;
  Plan forward_plan = place_memory(schedule_forward(graph));
  for (const Plan* p : {&plan, &forward_plan}) {
    verify(*p);
    check_tasks(p->graph);
  }
  inputs_ = whole.inputs;
  of_a_micro_batch_ = inputs_.empty() ? 0 : graph.buffers[inputs_[0].buffer].shape[0];
  batch_ = own_samples_ = of_a_micro_batch_ * whole.micro_batches;
  for (const Detail::Loss& loss : whole.losses) counts_rows_.push_back(loss.index == 0);
  for (const Parameter& p : graph.parameters) homes_.push_back({0, {p.buffer}});
  executor_ = backend_->make_executor({std::move(plan), std::move(forward_plan)});
  model_ = graph;
}

void Session::plan_devices(const Graph& graph) {
  if (options_.backend.virtual_gpus > 1 && options_.backend.virtual_gpus != options_.parallel.devices())
    fail_user("`virtual_gpus {}`: `dp {}` x `pp {}` are {} devices; give as many", options_.backend.virtual_gpus,
              options_.parallel.replicas, options_.parallel.stages, options_.parallel.devices());
  ParallelPlan planned = plan_in_parallel(
      graph, options_.parallel,
      {.backend = *backend_, .devices = options_.backend, .memory_cap = options_.memory_cap, .note = options_.note});
  options_.parallel = planned.options;
  predicted_ = std::move(planned.predicted);
  const ParallelOptions& parallel = options_.parallel;
  RankGroups* const groups = options_.backend.groups.get();
  if (options_.backend.device_groups)
    connect_devices(planned.whole, rank(), options_.make_device_group, *options_.backend.device_groups);
  const Detail mine = own_part(planned.whole, options_.backend);
  Plan plan = planned.placed ? std::move(*planned.placed) : place_memory(mine.plan, options_.memory_cap);
  Plan forward_plan = place_memory(forward_part(mine.plan));
  for (const Plan* p : {&plan, &forward_plan}) {
    verify(*p);
    check_tasks(p->graph);
  }
  planned_.candidates.push_back({"parallel", plan});

  of_a_micro_batch_ = graph.buffers[inputs_of(graph).at(0)].shape[0];
  const std::int64_t of_a_replica = of_a_micro_batch_ * parallel.micro_batches;
  batch_ = of_a_replica * parallel.replicas;
  own_samples_ = groups != nullptr ? of_a_replica : batch_;
  if (groups != nullptr) first_sample_ = of_a_replica * (rank() / static_cast<std::int64_t>(parallel.stages));
  inputs_ = mine.inputs;
  for (const Detail::Loss& loss : mine.losses) counts_rows_.push_back(loss.index == 0);
  counts_rows_.resize(mine.plan.graph.losses.size(), 0);

  std::map<std::string, Home> homes;
  const Graph& whole = planned.whole.plan.graph;
  for (const Parameter& p : whole.parameters)
    homes.try_emplace(whole.buffer_name(p.buffer), Home{groups != nullptr ? whole.buffers[p.buffer].device : 0, {}});
  for (const Parameter& p : mine.plan.graph.parameters)
    homes.at(mine.plan.graph.buffer_name(p.buffer)).here.push_back(p.buffer);
  for (const Parameter& p : graph.parameters) homes_.push_back(homes.at(graph.buffer_name(p.buffer)));
  executor_ = backend_->make_executor({std::move(plan), std::move(forward_plan)});
  model_ = graph;
}

std::optional<double> Session::predicted_ms() const {
  const std::int64_t ns = predicted_ ? predicted_->step_ns() : planned_.candidates[planned_.chosen].predicted_ns;
  return ns > 0 ? std::optional(static_cast<double>(ns) * 1e-6) : std::nullopt;
}

void Session::initialise() {
  fill_initial_parameters(*executor_, options_.seed);
  for (std::size_t i = 0; i < model_.parameters.size(); ++i) write_values(i, values_from(i, options_.initial));
  steps_ = 0;
}

std::vector<std::byte> Session::read_values(BufferId buffer) const {
  const Buffer& b = graph().buffers[buffer];
  std::vector<std::byte> values(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));
  executor_->read_plain(buffer, values);
  return values;
}

std::vector<std::byte> Session::values_from(std::size_t parameter, const std::vector<NamedTensor>& tensors) const {
  const Parameter& p = model_.parameters[parameter];
  const Buffer& b = model_.buffers[p.buffer];
  std::vector<std::byte> values;
  for (const StoredTensor& part : stored_tensors(model_, p)) {
    const NamedTensor* t = find_tensor(tensors, part.name);
    if (t == nullptr) continue;
    // A pass may have dropped dimensions of one.
    OVERTAKE_CHECK(same_but_ones(t->dims, stored_dims(model_, p, part)) && t->type == stored_type(b.dtype),
                   "tensor {} is stored as {} [{}]", t->name, stored_type_name(t->type), fmt::join(t->dims, ", "));
    if (part.rows == 0) {
      values = from_stored(model_, p, t->bytes);
      continue;
    }
    if (values.empty()) {
      // The rows that are not there stay as they are.
      if (homes_[parameter].here.empty())
        values.resize(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));
      else
        values = read_values(homes_[parameter].here[0]);
    }
    const auto row = static_cast<std::ptrdiff_t>(values.size()) / b.shape[0];
    std::ranges::copy(t->bytes, values.begin() + part.first_row * row);
  }
  return values;
}

void Session::write_values(std::size_t parameter, std::span<const std::byte> values) {
  for (const BufferId b : homes_[parameter].here)
    if (!values.empty()) executor_->write_plain(b, values);
}

std::vector<std::byte> Session::collect(std::size_t parameter) const {
  const Home& home = homes_[parameter];
  std::vector<std::byte> values;
  if (home.rank == rank()) values = read_values(home.here.at(0));
  if (home.rank == 0) return is_first() ? values : std::vector<std::byte>{};
  Group& world = *options_.backend.groups->world;
  const TransferOptions options{.tag = kParameterTag + parameter};
  if (is_first()) {
    const Buffer& b = model_.buffers[model_.parameters[parameter].buffer];
    values.resize(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));
    if (!values.empty()) world.wait(world.recv(home.rank, values.data(), values.size(), DType::u8, options));
  } else if (home.rank == rank()) {
    if (!values.empty()) world.wait(world.send(0, values.data(), values.size(), DType::u8, options));
    values.clear();
  }
  return values;
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
    if (t.op == Op::attention && g.attrs_of(t).integer("causal", 0) == 0) form.sees_ahead = true;
  }
  return form;
}

void Session::write_batch(const HostBatch& batch) {
  for (const Detail::Input& input : inputs_) {
    // Of all samples, of which this process was given its own.
    const std::int64_t index = std::int64_t{input.replica} * options_.parallel.micro_batches + input.micro_batch;
    write_input(input.buffer, batch, index * of_a_micro_batch_ - first_sample_);
  }
}

void Session::write_input(BufferId b, const HostBatch& batch, std::int64_t first) {
  const Shape& shape = graph().buffers[b].shape;
  const auto copy = [&](const auto& from) {
    const auto to = executor_->bytes(b);
    const std::size_t each = from.size() * sizeof(from[0]) / static_cast<std::size_t>(own_samples_);  // of a sample
    OVERTAKE_CHECK(each * static_cast<std::size_t>(shape[0]) == to.size(), "the batch has {} bytes for input {} of {}",
                   from.size() * sizeof(from[0]), graph().buffer_name(b), to.size());
    std::memcpy(to.data(), reinterpret_cast<const std::byte*>(from.data()) + static_cast<std::size_t>(first) * each,
                to.size());
  };
  const std::string& name = graph().buffer_name(b);
  if (name == "tokens") {
    copy(batch.tokens);
  } else if (name == "targets") {
    copy(batch.targets);
  } else if (name == "input") {
    copy(batch.values);
  } else if (name == "labels") {
    copy(batch.labels);
    // Samples that only fill up the last batch do not count.
    const std::int64_t per_sample = std::ssize(batch.labels) / own_samples_;
    auto* labels = reinterpret_cast<std::int32_t*>(executor_->bytes(b).data());
    std::fill(labels + std::clamp<std::int64_t>(batch.samples - first, 0, shape[0]) * per_sample,
              labels + shape[0] * per_sample, -100);
  } else {
    fail_user("model {}: no data source provides its input '{}'; feed it through the C++ API", graph().model, name);
  }
}

Session::Ended Session::ended(FinishedStep step, Mean mean) const {
  Ended out{mean, std::move(step.trace), step.idle_ns, std::make_shared<std::array<float, 4>>(), nullptr};
  std::array<float, 4>& sums = *out.sums;
  for (std::size_t i = 0; 3 * i < step.metrics.size(); ++i) {
    const float* metrics = &step.metrics[3 * i];
    if (mean == Mean::of_losses)
      sums[loss] += metrics[0];
    else if (metrics[1] > 0)
      sums[loss] += metrics[0] * metrics[1];
    if (counts_rows_[i]) sums[counted] += metrics[1];
    if (counts_rows_[i]) sums[correct] += metrics[2];
  }
  sums[stops] = wants_to_stop_ ? 1.0f : 0.0f;
  if (has_ranks()) {
    const auto keep = [kept = out.sums] {};  // until nobody writes there any more
    out.transfer = options_.backend.groups->world->all_reduce(
        sums.data(), sums.size(), DType::f32, {.tag = kMetricsTag, .priority = kUrgent, .when_done = keep});
  }
  return out;
}

StepResult Session::result_of(Ended step) const {
  if (step.transfer) options_.backend.groups->world->wait(step.transfer);
  const std::array<float, 4>& sums = *step.sums;
  const auto pieces = static_cast<float>(options_.parallel.replicas * options_.parallel.micro_batches);
  StepResult result;
  result.trace = std::move(step.trace);
  result.idle_ns = step.idle_ns;
  result.loss = sums[loss] / (step.mean == Mean::of_losses ? pieces : std::max(sums[counted], 1.0f));
  result.counted = sums[counted];
  result.correct = sums[correct];
  result.is_asked_to_stop = sums[stops] > 0;
  return result;
}

StepArgs Session::next_step(float learning_rate) {
  return {.step = steps_++, .seed = options_.seed, .learning_rate = learning_rate};
}

void Session::start_step(const HostBatch& batch, float learning_rate) {
  write_batch(batch);
  start_step(learning_rate);
}

void Session::start_step(float learning_rate) {
  if (has_ranks() && running_ == executor_->most_under_way()) end_step();
  executor_->start(0, next_step(learning_rate));
  ++running_;
}

void Session::end_step() {
  --running_;
  ended_.push_back(ended(executor_->finish(), Mean::of_losses));
}

StepResult Session::finish_step() {
  if (ended_.empty()) end_step();
  Ended step = std::move(ended_.front());
  ended_.pop_front();
  return result_of(std::move(step));
}

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
  return result_of(ended(std::move(step), Mean::of_losses));
}

StepResult Session::evaluate(const HostBatch& batch) {
  write_batch(batch);
  return evaluate();
}

StepResult Session::evaluate() {
  executor_->start(1, {.step = steps_, .seed = options_.seed});
  return result_of(ended(executor_->finish(), Mean::of_rows));
}

std::vector<NamedTensor> Session::tensors() const {
  executor_->settle();
  std::vector<NamedTensor> all;
  for (std::size_t i = 0; i < model_.parameters.size(); ++i) {
    const Parameter& p = model_.parameters[i];
    const Buffer& b = model_.buffers[p.buffer];
    std::vector<std::byte> values = collect(i);
    if (!is_first()) continue;
    const auto memory = std::make_shared<const std::vector<std::byte>>(to_stored(model_, p, std::move(values)));
    for (const StoredTensor& part : stored_tensors(model_, p)) {
      std::span<const std::byte> bytes = *memory;
      if (part.rows != 0) {
        const std::size_t row = bytes.size() / static_cast<std::size_t>(b.shape[0]);
        bytes =
            bytes.subspan(static_cast<std::size_t>(part.first_row) * row, static_cast<std::size_t>(part.rows) * row);
      }
      all.push_back({part.name, stored_type(b.dtype), stored_dims(model_, p, part), bytes, memory});
    }
  }
  return all;
}

void Session::restore(const std::vector<NamedTensor>& tensors, std::uint64_t steps, const std::string& where) {
  std::vector<std::string> missing, misshapen, extra;
  std::set<std::string> known;
  for (const Parameter& p : model_.parameters)
    for (const StoredTensor& part : stored_tensors(model_, p)) {
      known.insert(part.name);
      const NamedTensor* tensor = find_tensor(tensors, part.name);
      const std::vector<std::int64_t> dims = stored_dims(model_, p, part);
      if (tensor == nullptr)
        missing.push_back(part.name);
      else if (tensor->dims != dims || tensor->type != stored_type(model_.buffers[p.buffer].dtype))
        misshapen.push_back(
            fmt::format("{} ([{}], model has [{}])", part.name, fmt::join(tensor->dims, ", "), fmt::join(dims, ", ")));
    }
  for (const NamedTensor& t : tensors)
    if (!known.contains(t.name)) extra.push_back(t.name);
  if (is_first() && (!missing.empty() || !misshapen.empty() || !extra.empty()))
    fail_user(
        "{}: it does not fit model {} and its optimizer: missing [{}], of another shape [{}], too much [{}]; use the "
        "model and settings it was made with",
        where, model_.model, fmt::join(missing, ", "), fmt::join(misshapen, ", "), fmt::join(extra, ", "));
  for (std::size_t i = 0; i < model_.parameters.size(); ++i) {
    std::vector<std::byte> values = is_first() ? values_from(i, tensors) : std::vector<std::byte>{};
    if (options_.backend.groups) {
      const Buffer& b = model_.buffers[model_.parameters[i].buffer];
      values.resize(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));
      Group& world = *options_.backend.groups->world;
      if (!values.empty())
        world.wait(world.broadcast(0, values.data(), values.size(), DType::u8, {.tag = kParameterTag + i}));
    }
    write_values(i, values);
  }
  steps_ = steps;
  if (options_.backend.groups) {
    Group& world = *options_.backend.groups->world;
    world.wait(world.broadcast(0, &steps_, sizeof steps_, DType::u8, {.tag = kMetricsTag}));
  }
}

std::uint64_t Session::weights_hash() const {
  executor_->settle();
  Hash64 hash;
  for (std::size_t i = 0; i < model_.parameters.size(); ++i)
    if (model_.buffers[model_.parameters[i].buffer].role == Role::weight) hash.add(collect(i));
  return hash.value();
}

std::string Session::find_non_finite(const HostBatch& batch, std::uint64_t step) {
  write_batch(batch);
  return executor_->find_non_finite(0, {.step = step, .seed = options_.seed, .learning_rate = 0.0f});
}

}  // namespace overtake
