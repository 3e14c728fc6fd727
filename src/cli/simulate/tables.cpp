#include "cli/simulate/tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "report/table.h"

namespace overtake {
namespace {

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

struct Shares {
  double busy = 0, exposed = 0, bubble = 0;  // of the step, on average over devices
};
Shares shares_of(const SimulatedRun& run) {
  Shares s;
  const double all = static_cast<double>(run.step.step_ns()) * static_cast<double>(run.times.size());
  for (const DeviceTime& t : run.times) {
    s.busy += static_cast<double>(t.busy_ns) / all;
    s.exposed += static_cast<double>(t.exposed_ns) / all;
    s.bubble += static_cast<double>(t.bubble_ns) / all;
  }
  return s;
}

}  // namespace

nlohmann::json json_of(const std::vector<DeviceTime>& times) {
  nlohmann::json devices = nlohmann::json::array();
  for (const DeviceTime& t : times)
    devices.push_back({{"busy_ms", static_cast<double>(t.busy_ns) * 1e-6},
                       {"exposed_ms", static_cast<double>(t.exposed_ns) * 1e-6},
                       {"bubble_ms", static_cast<double>(t.bubble_ns) * 1e-6}});
  return devices;
}

nlohmann::json json_of(const SimulatedRun& run, std::int64_t samples, bool fits) {
  nlohmann::json devices = json_of(run.times);
  for (std::size_t d = 0; d < run.times.size(); ++d) {
    nlohmann::json memory;
    for (std::size_t i = 0; i < kMemoryGroups.size(); ++i)
      memory[std::string(kMemoryGroups[i])] = run.peaks[d].groups[i];
    devices[d]["device"] = run.step.devices[d];
    devices[d]["stands_for"] = run.step.alike();
    devices[d]["peak_bytes"] = run.peaks[d].bytes;
    devices[d]["peak_memory"] = memory;
  }
  return {{"schedule", run.name},
          {"reason", run.reason},
          {"step_ms", run.step_ms()},
          {"samples_per_s", samples > 0 ? 1e3 * static_cast<double>(samples) / run.step_ms() : 0},
          {"tasks", run.plan().graph.tasks.size()},
          {"fits", fits},
          {"devices", devices}};
}

std::string table_of(const std::vector<SimulatedRun>& runs, const Machine& machine, std::int64_t samples) {
  Table table(
      {"schedule", "ms/step", "samples/s", "busy", "exposed comm.", "bubble", "peak memory", "weights", "activations"});
  for (const SimulatedRun& run : runs) {
    const Shares s = shares_of(run);
    const MemoryPeak& peak = run.largest_peak();
    table.add({run.name, fmt::format("{:.3f}", run.step_ms()),
               samples > 0 ? fmt::format("{:.1f}", 1e3 * static_cast<double>(samples) / run.step_ms()) : "",
               percent(s.busy), percent(s.exposed), percent(s.bubble),
               format_bytes(peak.bytes) + (run.fits(machine) ? "" : ", too much"), format_bytes(peak.groups[0]),
               format_bytes(peak.groups[1])});
  }
  return table.text();
}

std::string note_of_folding(const SimulatedRun& run, std::uint32_t replicas, bool is_traced) {
  const std::size_t alike = run.step.alike();
  if (alike < 2) return "";
  return fmt::format(
      "{} of {} replicas were simulated{}; the others do the same at the same time on alike nodes (--no-fold simulates "
      "all)\n",
      replicas / alike, replicas, is_traced ? " and are in the trace" : "");
}

std::vector<StuckDevice> stuck_devices(const ClusterJob& job, const JobResult& result, const Topology& topology) {
  std::vector<StuckDevice> devices(job.devices.size());
  std::vector<std::size_t> rank(devices.size(), result.stuck.size());
  for (std::size_t d = 0; d < devices.size(); ++d) devices[d].name = topology.vertices[job.devices[d]].name;
  for (std::size_t l = 0; l < job.plan->lanes.size(); ++l) {
    const Lane& lane = job.plan->lanes[l];
    StuckDevice& device = devices[lane.device];
    (lane.is_asynchronous ? device.sent : device.computed) += result.lane_progress[l];
    (lane.is_asynchronous ? device.transfers : device.computations) +=
        lane.tasks.size() * static_cast<std::uint64_t>(job.steps);
  }
  for (std::size_t i = 0; i < result.stuck.size(); ++i) {
    const std::uint32_t d = job.plan->lanes[result.stuck[i].lane].device;
    if (!devices[d].why.empty()) continue;
    devices[d].why = result.stuck[i].why;
    rank[d] = i;
  }
  std::vector<std::size_t> order(devices.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  std::ranges::stable_sort(order, {}, [&](std::size_t d) { return rank[d]; });
  std::vector<StuckDevice> sorted;
  for (const std::size_t d : order) sorted.push_back(std::move(devices[d]));
  return sorted;
}

nlohmann::json json_of(const std::vector<StuckDevice>& devices) {
  nlohmann::json rows = nlohmann::json::array();
  for (const StuckDevice& d : devices)
    rows.push_back({{"device", d.name},
                    {"computed", d.computed},
                    {"computations", d.computations},
                    {"sent", d.sent},
                    {"transfers", d.transfers},
                    {"why", d.why}});
  return rows;
}

std::string table_of(const std::vector<StuckDevice>& devices, std::size_t most) {
  Table table({"device", "tasks begun", "transfers begun", "waits"});
  for (std::size_t i = 0; i < std::min(most, devices.size()); ++i) {
    const StuckDevice& d = devices[i];
    table.add({d.name, fmt::format("{} of {}", d.computed, d.computations),
               fmt::format("{} of {}", d.sent, d.transfers), d.why.empty() ? "has done its part" : d.why});
  }
  return table.text() + (devices.size() > most ? fmt::format("and {} more devices\n", devices.size() - most) : "");
}

}  // namespace overtake
