#include "train/run_options.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "exec/backend.h"
#include "models/onnx/lost.h"
#include "plan/divide/parallel_options.h"
#include "plan/divide/workload.h"
#include "run/field.h"
#include "run/resume.h"

namespace overtake {
namespace {

ModelSettings settings_of(const RunSpec& spec) {
  ModelSettings settings = ModelSettings::parse(spec.settings);
  if (spec.batch != 0) settings.set("batch", static_cast<double>(spec.batch));
  return settings;
}

std::int64_t pieces_of_batch(const RunSpec& spec) { return std::int64_t{spec.replicas} * spec.micro_batches; }

// What a state_dict has and an imported model has not, its export has lost, unless PyTorch's list in the file says that
// it is no parameter, or one the network does not use.
void check_nothing_lost(const RunSpec& spec, const Network& network, const FoundWeights& found,
                        const std::function<void(const std::string&)>& note) {
  std::vector<std::string> lost;
  for (const std::string& name : found.extra) {
    const auto is_it = [&](const std::string& listed) { return found.names.apply(listed) == name; };
    if (std::ranges::none_of(network.listed, is_it)) lost.push_back(name);
  }
  if (lost.empty()) return;
  const std::string what =
      fmt::format("`init {}`: model {} has no such tensors: {}", spec.init, network.graph.model, onnx::shortened(lost));
  if (!spec.accept_folded)
    fail_user(
        "{}; where its export dropped or folded them, export it with {}; pass over buffers with `init_skip`, or train "
        "what there is with `accept_folded`",
        what, onnx::lossless_export(!network.listed.empty()));
  if (note) note("warning: " + what);
}

}  // namespace

RunSpec completed(RunSpec spec) {
  if (spec.precision.empty()) spec.precision = to_string(default_precision(spec.device));
  if (spec.data.empty()) spec.data = "synthetic";
  return spec;
}

StartingPoint load_start(const RunSpec& spec, const std::function<void(const std::string&)>& note) {
  Network network = load_network(spec.model, {.settings = settings_of(spec),
                                              .pieces = pieces_of_batch(spec),
                                              .loss = spec.loss,
                                              .output = spec.output,
                                              .freeze = spec.freeze,
                                              .train_tensors = spec.train_tensors,
                                              .accept_folded = spec.accept_folded,
                                              .note = note});
  freeze(network.graph, spec.freeze);
  if (spec.init.empty()) {
    if (!spec.init_skip.empty()) fail_user("`init_skip`: it is for `init`, which is not given");
    return {std::move(network.graph), std::move(network.values), {}};
  }
  TensorFile file = read_safetensors(spec.init);
  std::erase_if(file.tensors, [](const NamedTensor& t) { return t.name == kNetworkTensor; });  // of a checkpoint
  const bool is_imported = is_onnx_file(spec.model);
  FoundWeights found = find_weights(network.graph, file, spec.init_skip, fmt::format("`init {}`", spec.init),
                                    is_imported ? ExtraWeights::allowed : ExtraWeights::refused);
  check_nothing_lost(spec, network, found, note);
  // What is passed over keeps the file's own start.
  for (NamedTensor& t : network.values)
    if (find_tensor(found.tensors, t.name) == nullptr) found.tensors.push_back(std::move(t));
  return {std::move(network.graph), std::move(found.tensors), found.names};
}

std::int64_t whole_batch(const RunSpec& spec, const Graph& graph) { return samples_of(graph) * pieces_of_batch(spec); }

void check_spec(const RunSpec& spec) {
  check_fields(spec);
  parallel_options(spec);
  if (!spec.memory_cap.empty()) parse_bytes(spec.memory_cap, "`memory_cap`");
  parse_bytes(spec.chunk, "`chunk`");
  if (spec.save.empty() && spec.save_every > 0)
    fail_user("`save_every {}`: where to? Give the checkpoint's name with `save`", spec.save_every);
  if (spec.save.empty() && spec.keep > 1)
    fail_user("`keep {}`: no checkpoint is saved; give its name with `save`", spec.keep);
  if (spec.nesterov && spec.momentum == 0) fail_user("`nesterov`: it needs `momentum` above 0");
  if (spec.machine.empty() && !spec.devices.empty())
    fail_user("`devices {}`: they are of a machine; use it with `machine`", spec.devices);
}

LoopOptions loop_options(const RunSpec& spec, const std::function<void(const std::string&)>& note) {
  if (spec.data.empty() && is_onnx_file(spec.model))
    fail_user(
        "`model {}`: no `data` is given, and a model of your own is trained on data of your own; write for example "
        "`data npy:x.npy,y.npy`. `overtake bench` measures it on random numbers",
        spec.model);
  return {.data = completed(spec).data,
          .conversion = {.scale = spec.scale, .channels_last = spec.channels_last, .note = note},
          .seed = spec.seed,
          .steps = spec.steps,
          .epochs = spec.epochs,
          .learning_rate = spec.lr,
          .lr_schedule = spec.lr_schedule,
          .warmup = spec.warmup,
          .augment = spec.augment,
          .save = spec.save,
          .save_every = spec.save_every,
          .keep = spec.keep,
          .resume = spec.resume,
          .model = spec.model,
          .model_settings = settings_of(spec).all(),
          .training_settings = kept_in_checkpoint(completed(spec)),
          .keep_traces = !spec.trace.empty()};
}

}  // namespace overtake
