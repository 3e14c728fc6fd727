#pragma once
// Where the time of a step goes on each device.

#include <cstdint>
#include <vector>

#include "overtake/plan.h"

namespace overtake {

// They add up to the step.
struct DeviceTime {
  std::int64_t busy_ns = 0;     // a task other than a transfer runs
  std::int64_t exposed_ns = 0;  // none does, and a transfer of the device is under way
  std::int64_t bubble_ns = 0;   // neither
  bool operator==(const DeviceTime&) const = default;
};

// Per device of the plan. What runs past the end of the step runs beside the start of the next, which is like this one.
std::vector<DeviceTime> device_times(const Plan& plan, const Trace& trace);

}  // namespace overtake
