#pragma once
// Where a process trains: its device, made ready, and the other processes of its job.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/available_cores.h"
#include "comm/rank_groups.h"
#include "exec/backend.h"
#include "overtake/run_spec.h"
#include "train/device_ranks.h"
#include "train/planning_time.h"
#include "train/profiling.h"

namespace overtake {

struct Workplace {
  std::shared_ptr<Backend> backend;        // null: nothing is made ready, as for plans that are only simulated
  BackendOptions devices = {};             // of the backend: threads, virtual GPUs, the groups of ranks
  MakeDeviceGroup make_device_group = {};  // where devices.device_groups are there: connects GPUs
  ProfilingOptions profiling = {};
  std::shared_ptr<PlanningTime> time = std::make_shared<PlanningTime>();
  std::function<void(const std::string&)> note = {};  // gets lines for the user

  RankGroups* groups() const { return devices.groups.get(); }
  int rank() const { return groups() != nullptr ? groups()->world->rank() : 0; }
  unsigned cores() const { return devices.threads == 0 ? available_cores() : devices.threads; }
};

// What connects the processes of a job, and what only a caller knows; nothing of it is needed for one process.
struct WorkplaceOptions {
  std::shared_ptr<RankGroups> groups = {};
  std::shared_ptr<DeviceGroups> device_groups = {};
  MakeDeviceGroup make_device_group = {};
  std::filesystem::path profiles = default_profile_folder();  // what was measured is kept there; empty: nowhere
  std::optional<std::string> tuning_file = {};                // see BackendOptions
  std::optional<std::uint64_t> steps = {};                    // of the run that is planned, where they are known
  std::function<double()> clock = {};                         // see PlanningLimits
  std::function<void(const std::string&)> note = {};
};

// Opens the device of a spec. User errors: settings of devices that the device does not have.
Workplace open_workplace(const RunSpec& spec, const WorkplaceOptions& options = {});

}  // namespace overtake
