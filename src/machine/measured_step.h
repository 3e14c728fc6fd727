#pragma once
// The tasks of a step and what each took on a device, as a file: for clusters of devices that are not at hand.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "overtake/graph.h"

namespace overtake {

struct MeasuredStep {
  std::string key;               // equal for the same network, batch, precision and optimizer
  std::string of;                // the same for people: "resnet-50, 32 samples, bf16, adamw"
  std::string device;            // on which it was measured, for people
  Graph step;                    // as that device runs it
  std::vector<std::int64_t> ns;  // per task, alone in its place in the step
};

std::string save_json(const MeasuredStep& measured);
// User errors: no such file, none of ours, times that do not fit the tasks.
MeasuredStep load_measured_step(const std::filesystem::path& path);

}  // namespace overtake
