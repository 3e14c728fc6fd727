#include "cli/session_flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/units.h"
#include "machine/cluster_units.h"

namespace overtake {

namespace {

constexpr std::string_view kOptionalPasses[] = {"recognise",        "fold_transposes",  "fuse",
                                                "fuse_elementwise", "join_projections", "pad_classes",
                                                "fuse_gradients",   "share_concats",    "group_updates"};

VirtualLink parse_link(const std::string& text) {
  const std::size_t comma = text.find(',');
  const auto bandwidth = parse_quantity(text.substr(0, comma), Measure::bytes_per_s);
  const auto latency = comma == std::string::npos ? std::optional<std::int64_t>(0)
                                                  : parse_quantity(text.substr(comma + 1), Measure::nanoseconds);
  if (!bandwidth || *bandwidth == 0 || !latency)
    fail_user("--virtual-link {}: write a bandwidth ({}) and, behind a comma, a latency ({}), for example 25GB/s,5us",
              text, unit_list(Measure::bytes_per_s), unit_list(Measure::nanoseconds));
  return {.bytes_per_s = *bandwidth, .latency_ns = *latency};
}

}  // namespace

void SessionFlags::add_to(CLI::App& c) {
  c.add_option("MODEL", model, "a network of the zoo (`overtake models` lists them) or an ONNX file")->required();
  c.add_option("--set", settings, "settings of the network, for example layers=6,width=512");
  c.add_option("--init", init, "weights to start from (.safetensors, under the names PyTorch gives them)");
  c.add_option("--init-skip", init_skip, "beginnings of names that --init passes over, for example fc.")
      ->delimiter(',');
  c.add_option("--loss", loss, "of an ONNX file: cross-entropy or mse")->capture_default_str();
  c.add_option("--output", output, "of an ONNX file: which output is trained; default: the first");
  c.add_option("--freeze", frozen, "beginnings of names of weights that are not trained, for example features.")
      ->delimiter(',');
  c.add_option("--batch", batch, "samples per step; default: the network's")->check(CLI::PositiveNumber);
  c.add_option("--seed", seed, "of weights, order of samples and dropout")->capture_default_str();
  c.add_option("--lr", learning_rate, "learning rate")->capture_default_str();
  c.add_option("--optimizer", optimizer, "sgd or adamw")->capture_default_str();
  c.add_option("--momentum", momentum, "of sgd")->capture_default_str();
  c.add_flag("--nesterov", nesterov, "Nesterov's momentum");
  c.add_option("--weight-decay", weight_decay, "as PyTorch's sgd or adamw")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  c.add_option("--clip-norm", clip_norm, "bound on the global norm of the gradients; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  c.add_option("--device", device, "cpu, cuda, cuda:NUMBER, or null (computes nothing)")->capture_default_str();
  c.add_option("--precision", precision,
               "f32, tf32 (GPUs), or bf16 with float32 weights and sums; default: bf16 on GPUs, else f32");
  c.add_option("--threads", threads, "default: all cores")->check(CLI::Range(1, 1024));
  c.add_option("--parts", parts, "fixed pieces that sums are cut into; default: as many as cores")
      ->check(CLI::Range(1, 1024));
  c.add_option("--memory-cap", memory_cap,
               "most memory to plan with, for example 2G; default: out of order may take a tenth more than in order");
  c.add_option("--plan-seconds", plan_seconds,
               "most time to search for a schedule; measuring for it takes at most twice as long")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  c.add_flag("--fresh-profile", fresh_profile, "measure the tasks anew instead of using what was measured last time");
  c.add_option("--skip-pass", skip_passes,
               fmt::format("leave out a pass ({}), for experiments", fmt::join(kOptionalPasses, ", ")));
  c.add_flag("--no-tuning", no_tuning, "on GPUs: take a library's first kernel instead of the fastest measured one");
  c.add_flag("--no-graph", no_graph, "on GPUs: launch task by task instead of one graph per step, for measuring");
  c.add_option("--side-sms", side_sms, "on GPUs: only so many SMs for what runs beside the main lane; default: all");
  c.add_option("--virtual-gpus", virtual_gpus,
               "on GPUs: split one into so many, each with SMs of its own, as devices for the step");
  c.add_option("--virtual-link", virtual_link,
               "bandwidth and latency between virtual GPUs, for example 25GB/s,5us; default: as fast as memory");
  c.add_flag("--no-layouts", no_layouts, "back to row-major after every layer, for measuring what layouts bring");
  c.add_flag("--print-passes", print_passes, "print the graph after every pass that changed it (to stderr)");
  c.add_flag("--json", json, "one JSON object as the last line");
}

ModelSettings SessionFlags::model_settings() const {
  ModelSettings s = ModelSettings::parse(settings);
  if (batch < 0) fail_user("--batch {}: it must be at least 1", batch);
  if (batch != 0) s.set("batch", static_cast<double>(batch));
  return s;
}

SessionFlags::Start SessionFlags::load() const {
  Network network = load_network(
      model, {.settings = model_settings(), .loss = loss, .output = output, .note = [](const std::string& line) {
                fmt::print(stderr, "{}\n", line);
              }});
  freeze(network.graph, frozen);
  if (init.empty()) {
    if (!init_skip.empty()) fail_user("--init-skip: it is for --init, which is not given");
    return {std::move(network.graph), std::move(network.values), {}};
  }
  FoundWeights found = find_weights(network.graph, read_safetensors(init), init_skip, fmt::format("--init {}", init));
  // What is passed over keeps the file's own start.
  for (NamedTensor& t : network.values)
    if (find_tensor(found.tensors, t.name) == nullptr) found.tensors.push_back(std::move(t));
  return {std::move(network.graph), std::move(found.tensors), found.names};
}

SessionOptions SessionFlags::options(ScheduleChoice schedule) const {
  SessionOptions o;
  if (optimizer != "sgd" && optimizer != "adamw")
    fail_user("--optimizer {}: no such optimizer; choose sgd or adamw", optimizer);
  if (!(momentum >= 0 && momentum < 1)) fail_user("--momentum {}: it must be at least 0 and below 1", momentum);
  if (nesterov && momentum == 0) fail_user("--nesterov: it needs --momentum above 0");
  o.optimizer.kind = optimizer == "sgd" ? OptimizerSettings::Kind::sgd : OptimizerSettings::Kind::adamw;
  o.optimizer.momentum = momentum;
  o.optimizer.nesterov = nesterov;
  o.optimizer.weight_decay = weight_decay;
  o.optimizer.clip_norm = clip_norm;
  o.schedule = schedule;
  o.device = device;
  if (!precision.empty()) o.backend.precision = precision_from_string(precision);
  o.backend.threads = threads;
  o.backend.tune = !no_tuning;
  o.backend.use_graph = !no_graph;
  if (side_sms > 0 && !device.starts_with("cuda"))
    fail_user("--side-sms: only GPUs have SMs; use it with --device cuda");
  o.backend.side_sms = side_sms;
  if (virtual_gpus > 0 && !device.starts_with("cuda"))
    fail_user("--virtual-gpus: only GPUs can be split; use it with --device cuda");
  if (virtual_gpus > 0 && side_sms > 0)
    fail_user("--virtual-gpus: it shares out all SMs, which leaves none for --side-sms; give one of the two");
  if (!virtual_link.empty() && virtual_gpus == 0)
    fail_user("--virtual-link: it is between virtual GPUs; use it with --virtual-gpus");
  o.backend.virtual_gpus = virtual_gpus;
  if (!virtual_link.empty()) o.backend.virtual_link = parse_link(virtual_link);
  o.parts = parts;
  o.seed = seed;
  if (!memory_cap.empty()) o.memory_cap = static_cast<std::uint64_t>(parse_bytes(memory_cap, "--memory-cap"));
  o.plan_seconds = plan_seconds;
  o.use_kept_profile = !fresh_profile;
  o.skip_passes = {skip_passes.begin(), skip_passes.end()};
  for (const std::string& pass : skip_passes)
    if (std::ranges::find(kOptionalPasses, pass) == std::end(kOptionalPasses))
      fail_user("--skip-pass {}: only {} can be left out without breaking the step", pass,
                fmt::join(kOptionalPasses, ", "));
  o.propagate_layouts = !no_layouts;
  if (print_passes) o.print_passes = [](const std::string& text) { fmt::print(stderr, "{}", text); };
  o.note = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  return o;
}

nlohmann::json SessionFlags::optimizer_json() const {
  return {
      {"optimizer", optimizer}, {"momentum", momentum},
      {"nesterov", nesterov},   {"weight_decay", weight_decay},
      {"clip_norm", clip_norm}, {"precision", precision.empty() ? to_string(default_precision(device)) : precision}};
}

}  // namespace overtake
