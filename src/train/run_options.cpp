#include "train/run_options.h"

#include "base/error.h"
#include "base/units.h"
#include "run/resume.h"

namespace overtake {
namespace {

ModelSettings settings_of(const RunSpec& spec) {
  ModelSettings settings = ModelSettings::parse(spec.settings);
  if (spec.batch != 0) settings.set("batch", static_cast<double>(spec.batch));
  return settings;
}

std::int64_t pieces_of_batch(const RunSpec& spec) { return std::int64_t{spec.replicas} * spec.micro_batches; }

OptimizerSettings optimizer_of(const RunSpec& spec) {
  if (spec.nesterov && spec.momentum == 0) fail_user("`nesterov`: it needs `momentum` above 0");
  return {.kind = spec.optimizer == "sgd" ? OptimizerSettings::Kind::sgd : OptimizerSettings::Kind::adamw,
          .momentum = spec.momentum,
          .nesterov = spec.nesterov,
          .weight_decay = spec.weight_decay,
          .beta1 = spec.beta1,
          .beta2 = spec.beta2,
          .eps = spec.eps,
          .clip_norm = spec.clip_norm};
}

VirtualLink virtual_link_from(const std::string& text) {
  const std::size_t comma = text.find(',');
  const auto bandwidth = parse_quantity(text.substr(0, comma), Measure::bytes_per_s);
  const auto latency = comma == std::string::npos ? std::optional<std::int64_t>(0)
                                                  : parse_quantity(text.substr(comma + 1), Measure::nanoseconds);
  if (!bandwidth || *bandwidth == 0 || !latency)
    fail_user("`virtual_link {}`: write a bandwidth ({}) and, behind a comma, a latency ({}), for example 25GB/s,5us",
              text, unit_list(Measure::bytes_per_s), unit_list(Measure::nanoseconds));
  return {.bytes_per_s = *bandwidth, .latency_ns = *latency};
}

BackendOptions backend_options(const RunSpec& spec) {
  const bool is_gpu = spec.device.starts_with("cuda");
  if (spec.side_sms > 0 && !is_gpu) fail_user("`side_sms`: only GPUs have SMs; use it with `device cuda`");
  if (spec.virtual_gpus > 0 && !is_gpu) fail_user("`virtual_gpus`: only GPUs can be split; use it with `device cuda`");
  if (spec.virtual_gpus > 0 && spec.side_sms > 0)
    fail_user("`virtual_gpus`: it shares out all SMs, which leaves none for `side_sms`; give one of the two");
  if (!spec.virtual_link.empty() && spec.virtual_gpus == 0)
    fail_user("`virtual_link`: it is between virtual GPUs; use it with `virtual_gpus`");
  BackendOptions backend;
  if (!spec.precision.empty()) backend.precision = precision_from_string(spec.precision);
  backend.threads = spec.threads;
  backend.tune = spec.tuning;
  backend.use_graph = spec.graph;
  backend.side_sms = spec.side_sms;
  backend.virtual_gpus = spec.virtual_gpus;
  if (!spec.virtual_link.empty()) backend.virtual_link = virtual_link_from(spec.virtual_link);
  return backend;
}

ParallelOptions parallel_options(const RunSpec& spec) {
  ParallelOptions parallel{.replicas = spec.replicas,
                           .stages = spec.stages,
                           .micro_batches = spec.micro_batches,
                           .pipeline = spec.pipeline,
                           .reduce = spec.reduce,
                           .bucket_bytes = parse_bytes(spec.bucket, "`bucket`"),
                           .groups = spec.gradient_groups,
                           .predict = spec.predict,
                           .sync_batch_norm = spec.sync_batch_norm};
  if (spec.search_tries > 0) parallel.search_tries = spec.search_tries;
  if (!spec.first_k.empty()) parallel.first_k = first_k_from_string(spec.first_k);
  check(parallel);
  return parallel;
}

}  // namespace

RunSpec completed(RunSpec spec) {
  if (spec.precision.empty()) spec.precision = to_string(default_precision(spec.device));
  return spec;
}

StartingPoint load_start(const RunSpec& spec, const std::function<void(const std::string&)>& note) {
  Network network = load_network(spec.model, {.settings = settings_of(spec),
                                              .pieces = pieces_of_batch(spec),
                                              .loss = spec.loss,
                                              .output = spec.output,
                                              .note = note});
  freeze(network.graph, spec.freeze);
  if (spec.init.empty()) {
    if (!spec.init_skip.empty()) fail_user("`init_skip`: it is for `init`, which is not given");
    return {std::move(network.graph), std::move(network.values), {}};
  }
  FoundWeights found =
      find_weights(network.graph, read_safetensors(spec.init), spec.init_skip, fmt::format("`init {}`", spec.init));
  // What is passed over keeps the file's own start.
  for (NamedTensor& t : network.values)
    if (find_tensor(found.tensors, t.name) == nullptr) found.tensors.push_back(std::move(t));
  return {std::move(network.graph), std::move(found.tensors), found.names};
}

std::int64_t whole_batch(const RunSpec& spec, const Graph& graph) {
  for (const Buffer& b : graph.buffers)
    if (b.role == Role::input) return b.shape[0] * pieces_of_batch(spec);
  return 0;
}

SessionOptions session_options(const RunSpec& spec) {
  SessionOptions o;
  o.schedule = schedule_from_string(spec.schedule);
  o.optimizer = optimizer_of(spec);
  o.device = spec.device;
  o.backend = backend_options(spec);
  o.parts = spec.parts;
  o.seed = spec.seed;
  if (!spec.memory_cap.empty()) o.memory_cap = static_cast<std::uint64_t>(parse_bytes(spec.memory_cap, "`memory_cap`"));
  o.plan_seconds = spec.plan_seconds;
  o.use_kept_profile = !spec.fresh_profile;
  o.skip_passes = {spec.skip_passes.begin(), spec.skip_passes.end()};
  o.propagate_layouts = spec.layouts;
  o.parallel = parallel_options(spec);
  if (o.parallel.devices() > 1 && o.schedule != ScheduleChoice::automatic)
    fail_user(
        "`schedule {}`: it is for one device; with `dp {}` x `pp {}` the order comes from `pipeline` and `reduce`, so "
        "leave it out",
        spec.schedule, spec.replicas, spec.stages);
  return o;
}

LoopOptions loop_options(const RunSpec& spec) {
  return {.data = spec.data,
          .seed = spec.seed,
          .steps = spec.steps,
          .epochs = spec.epochs,
          .learning_rate = spec.lr,
          .lr_schedule = spec.lr_schedule,
          .warmup = spec.warmup,
          .augment = spec.augment,
          .save = spec.save,
          .save_every = spec.save_every,
          .resume = spec.resume,
          .model = spec.model,
          .model_settings = settings_of(spec).all(),
          .training_settings = kept_in_checkpoint(completed(spec)),
          .keep_traces = !spec.trace.empty()};
}

}  // namespace overtake
