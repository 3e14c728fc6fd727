#include "train/workplace.h"

#include "base/error.h"
#include "base/units.h"

namespace overtake {
namespace {

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
  const std::uint32_t devices = spec.replicas * spec.stages;
  if (devices > 1 && spec.virtual_gpus > 1 && spec.virtual_gpus != devices)
    fail_user("`virtual_gpus {}`: `dp {}` x `pp {}` are {} devices; give as many", spec.virtual_gpus, spec.replicas,
              spec.stages, devices);
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

}  // namespace

Workplace open_workplace(const RunSpec& spec, const WorkplaceOptions& options) {
  Workplace place;
  place.devices = backend_options(spec);
  place.devices.groups = options.groups;
  place.devices.device_groups = options.device_groups;
  place.devices.tuning_file = options.tuning_file;
  place.devices.note = options.note;
  place.make_device_group = options.make_device_group;
  // One device of which nothing is demanded goes in order where planning would take longer than the run.
  const std::uint64_t devices = std::uint64_t{spec.replicas} * spec.stages;
  const bool is_open = spec.schedule == "auto" && devices == 1 && !spec.predict;
  // Of several devices the step of a micro-batch is measured.
  std::optional<std::uint64_t> steps = options.steps;
  if (steps && devices > 1) *steps = *steps * spec.micro_batches / spec.stages;
  place.time = std::make_shared<PlanningTime>(
      PlanningLimits{.seconds = spec.plan_seconds, .steps = steps, .is_needed = !is_open, .clock = options.clock});
  place.profiling = {
      .folder = options.profiles, .use_kept = !spec.fresh_profile, .time = place.time, .note = options.note};
  place.note = options.note;
  place.backend = open_backend(spec.device, place.devices);
  return place;
}

}  // namespace overtake
