#pragma once
// Simulated runs as tables and JSON.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/simulate/runs.h"

namespace overtake {

// Of `samples` per step; 0: not known.
nlohmann::json json_of(const SimulatedRun& run, std::int64_t samples, bool fits);
std::string table_of(const std::vector<SimulatedRun>& runs, const Machine& machine, std::int64_t samples);
nlohmann::json json_of(const std::vector<DeviceTime>& times);
// A line that says which of the replicas were simulated; empty if all were.
std::string note_of_folding(const SimulatedRun& run, std::uint32_t replicas, bool is_traced);

// Of a job that does not end, per device: how far it got, and what it waits for.
struct StuckDevice {
  std::string name;
  std::uint64_t computed = 0, computations = 0, sent = 0, transfers = 0;  // tasks begun, of all in all steps
  std::string why;                                                        // empty: it has done its part
};
std::vector<StuckDevice> stuck_devices(const ClusterJob& job, const JobResult& result, const Topology& topology);
nlohmann::json json_of(const std::vector<StuckDevice>& devices);
// At most `most` rows, first those that others wait for.
std::string table_of(const std::vector<StuckDevice>& devices, std::size_t most);

}  // namespace overtake
