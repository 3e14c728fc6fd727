#include "machine/described_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "machine/kernel_times/calibration.h"
#include "machine/kernel_times/kernel_times.h"
#include "machine/measured_step.h"

namespace overtake {
namespace {

bool has_the_same_tasks(const Graph& a, const Graph& b) {
  return std::ranges::equal(a.tasks, b.tasks, [&](const Task& x, const Task& y) {
    return x.op == y.op && x.kind == y.kind && a.layer_name(x.layer) == b.layer_name(y.layer);
  });
}

}  // namespace

StepIdentity identity_of(const Graph& model, const RunSpec& spec) {
  Hash64 hash;
  hash.add(save_json(model));
  hash.add(fmt::format("{} {}", spec.precision, spec.optimizer));
  std::int64_t samples = 0;
  for (const Buffer& b : model.buffers)
    if (b.role == Role::input && samples == 0) samples = b.shape[0];
  return {.key = hash_text(hash.value()),
          .of = fmt::format("{}{}, {} samples, {}, {}", spec.model, spec.settings.empty() ? "" : " " + spec.settings,
                            samples, spec.precision, spec.optimizer)};
}

std::vector<TaskCost> costs_by_rates(const Graph& step, const DeviceType& device, bool tf32) {
  if (device.f32_flops == 0 || device.memory_bytes_per_s() == 0) return std::vector<TaskCost>(step.tasks.size());
  KernelOptions options{.tf32 = tf32};
  if (!device.calibration.empty()) options.factors = load_calibration(device.calibration, device);
  return kernel_times(step, device, options);
}

std::vector<TaskCost> with_times(std::vector<TaskCost> by_rates, const std::vector<std::int64_t>& ns) {
  for (TaskId t = 0; t < by_rates.size(); ++t) {
    by_rates[t].ns = ns[t];
    if (by_rates[t].compute_ns > ns[t]) {
      by_rates[t].beside_ns = std::llround(static_cast<double>(by_rates[t].beside_ns) * static_cast<double>(ns[t]) /
                                           static_cast<double>(by_rates[t].compute_ns));
      by_rates[t].compute_ns = ns[t];
    }
    by_rates[t].memory_ns = std::min(by_rates[t].memory_ns, ns[t]);
  }
  return by_rates;
}

DescribedCosts::DescribedCosts(Cluster cluster, bool tf32) : cluster_(std::move(cluster)), tf32_(tf32) {}

std::vector<TaskCost> DescribedCosts::costs(const Graph& step, std::uint32_t kind) const {
  const DeviceType& device = cluster_.devices.at(kind);
  std::vector<TaskCost> costs = costs_by_rates(step, device, tf32_);
  if (device.profile.empty()) return costs;
  const MeasuredStep measured = load_measured_step(device.profile);
  if (!has_the_same_tasks(step, measured.step))
    fail_user(
        "device {}: its profile {} runs {} as other tasks than those that are planned; plan for this device alone, or "
        "describe it by its rates",
        device.name, device.profile, measured.of);
  return with_times(std::move(costs), measured.ns);
}

std::optional<Graph> DescribedCosts::measured_step(const Graph& model, const RunSpec& spec,
                                                   std::span<const std::uint32_t> kinds) const {
  const StepIdentity identity = identity_of(model, spec);
  std::optional<Graph> step;
  const DeviceType* first = nullptr;  // that has a profile
  for (const std::uint32_t kind : kinds) {
    const DeviceType& device = cluster_.devices.at(kind);
    if (device.profile.empty()) continue;
    MeasuredStep measured = load_measured_step(device.profile);
    if (measured.key != identity.key)
      fail_user(
          "device {}: profile {} is of {}, measured on {}; this step is of {} (samples of one replica's micro-batch); "
          "measure that there with `measure` and `save_profile`",
          device.name, device.profile, measured.of, measured.device, identity.of);
    if (first == nullptr) {
      first = &device;
      step = std::move(measured.step);
    } else if (!has_the_same_tasks(*step, measured.step)) {
      fail_user(
          "devices {} and {}: they run this step as different tasks (profiles {} and {}); simulate them apart, or "
          "describe one by its rates",
          first->name, device.name, first->profile, device.profile);
    }
  }
  return step;
}

}  // namespace overtake
