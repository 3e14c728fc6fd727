#include "sim/busy_device.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/lane_simulator.h"

namespace overtake {
namespace {

// Communication leaves computation so much of the device, whatever it asks for.
constexpr double kMostTaken = 0.9;

// What the arithmetic of a task takes with this share of the SMs gone. Known are none and that of one collective: what
// lies between is in proportion, and more takes as much longer as there are fewer SMs.
double compute_beside(const TaskCost& work, double sms_taken, double of_collective) {
  const auto alone = static_cast<double>(work.compute_ns);
  const double beside = std::max(alone, static_cast<double>(work.beside_ns));
  if (work.beside_ns == 0 || of_collective <= 0) return alone / (1 - sms_taken);
  if (sms_taken >= of_collective) return beside * (1 - of_collective) / (1 - sms_taken);
  return alone + (beside - alone) * sms_taken / of_collective;
}

}  // namespace

double slowdown(const TaskCost& work, double sms_taken, double memory_taken, double of_collective) {
  const auto compute = static_cast<double>(work.compute_ns), memory = static_cast<double>(work.memory_ns);
  if (compute <= 0 && memory <= 0) return 1 / (1 - sms_taken);
  return std::max(compute_beside(work, sms_taken, of_collective), memory / (1 - memory_taken)) /
         std::max(compute, memory);
}

void BusyDevice::start(std::int64_t now, std::uint32_t lane, const TaskCost& work) {
  const auto place = std::ranges::lower_bound(running_, lane, {}, &Running::lane);
  running_.insert(place, {lane, &work, static_cast<double>(work.ns), 0, now});
}

void BusyDevice::settle(std::int64_t now, std::vector<std::uint32_t>& ended) {
  std::size_t kept = 0;
  for (Running& r : running_) {
    r.left -= static_cast<double>(now - r.since_ns) * r.rate;
    r.since_ns = now;
    if (r.left <= 0.5 * r.rate) {
      ended.push_back(r.lane);
    } else {
      running_[kept++] = r;
    }
  }
  running_.resize(kept);
}

void BusyDevice::set_rates(std::int64_t now, const DeviceLoad& communication) {
  std::array<double, kMostTasks> loads, rates;
  const std::size_t n = running_.size();
  OVERTAKE_CHECK(n <= kMostTasks, "{} tasks at once on one device", n);
  for (std::size_t i = 0; i < n; ++i) loads[i] = running_[i].work->load;
  rates_of({loads.data(), n}, {rates.data(), n});

  // Of a device that is not described, communication takes nothing.
  const double bandwidth = static_cast<double>(type_->memory_bytes_per_s()), sms = type_->sms;
  const double memory = bandwidth > 0 ? communication.memory_bytes_per_s / bandwidth : 0;
  const double memory_taken = std::min(kMostTaken, memory);
  const double sms_taken = sms > 1 ? std::min(kMostTaken, communication.sms / sms) : 0;
  const double of_collective = sms > 1 ? std::min(kMostTaken, type_->communication.sms / sms) : 0;
  double wanted = 0;  // of the memory bandwidth, by computation if there were no communication
  double soonest = 1e18;
  for (std::size_t i = 0; i < n; ++i) {
    Running& r = running_[i];
    const double alone = rates[i] * speed_;
    wanted += alone * static_cast<double>(r.work->memory_ns) / static_cast<double>(r.work->ns);
    r.rate = alone / slowdown(*r.work, sms_taken, memory_taken, of_collective);
    soonest = std::min(soonest, r.left / r.rate);
  }
  next_ns_ = n == 0 ? kNever : now + std::max<std::int64_t>(1, std::llround(std::ceil(soonest)));
  link_share_ = memory > 0 && wanted + memory > 1 ? 1 / (wanted + memory) : 1;
}

void BusyDevice::stop() {
  is_stopped_ = true;
  running_.clear();
  next_ns_ = kNever;
  link_share_ = 0;
}

}  // namespace overtake
