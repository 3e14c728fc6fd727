#pragma once
// What a step over the devices of a machine takes, by the simulator.

#include <cstdint>
#include <vector>

#include "overtake/machine.h"
#include "plan/divide/outline.h"
#include "sim/cluster_simulator.h"

namespace overtake {

struct PredictedStep {
  Outline outline;                          // with what the machine adds to a step
  std::vector<std::uint32_t> devices = {};  // per device of the outline, which of the machine
  JobResult result = {};                    // its trace is of a step among others
  int steps_in_a_row = 1;                   // that were simulated
  DeviceCopies copies = {};                 // of the machine, those that do the same as `devices`

  // How many devices each one of the outline stands for, itself included.
  std::size_t alike() const { return devices.empty() ? 1 : 1 + copies.devices.size() / devices.size(); }
  std::int64_t step_ns() const { return result.trace.step_ns; }
  double step_ms() const { return static_cast<double>(step_ns()) * 1e-6; }
  ClusterJob job(int steps) const {
    return {.plan = &outline.plan, .work = outline.work, .devices = devices, .steps = steps, .copies = copies};
  }
};

// On the given devices of the machine; none: the first ones. So many steps are simulated in a row; 0: as many as the
// machine says. `copies` are as in ClusterJob.
PredictedStep predict_step(Outline outline, const Machine& machine, std::vector<std::uint32_t> devices = {},
                           int steps = 0, DeviceCopies copies = {});

// The most memory that each device of the outline needs at one moment; of copies nothing.
std::vector<std::int64_t> peak_memory(const PredictedStep& step);

// The first device of the outline that needs more memory at one moment than the machine's device has; kNone: none.
std::uint32_t first_without_room(const PredictedStep& step, const Machine& machine);

}  // namespace overtake
