#pragma once
// Measures what schedules are made from, on the device at hand, and keeps it.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "exec/backend.h"
#include "machine/profile.h"
#include "train/planning_time.h"

namespace overtake {

struct ProfilingOptions {
  double seconds = 20;  // for tasks side by side; what is not reached then follows from the model
  // Where profiles are kept, one file per graph and device; empty: nowhere.
  std::filesystem::path folder = {};
  bool use_kept = true;  // false: measured anew
  std::shared_ptr<PlanningTime> time = std::make_shared<PlanningTime>();
  std::function<void(const std::string&)> note = {};
};

// The user's cache folder for them; empty if there is none.
std::filesystem::path default_profile_folder();

// The times of the graph's tasks, alone and side by side: from the folder if they are there, measured and kept
// otherwise. A file that is damaged or of something else is left aside with a note, and replaced. Where the run turns
// out to be too short to be planned, only what a step takes is in the profile, and nothing of its tasks.
Profile profile_of(const Graph& graph, Backend& backend, const ProfilingOptions& options);

// What each task takes in its place in the step, and nothing of how much tasks slow each other down: all loads are 1.
Profile measure_alone(const Graph& graph, Backend& backend,
                      const std::shared_ptr<PlanningTime>& time = std::make_shared<PlanningTime>());
// The same on the first of several devices of the backend while the others are busy with the same step, each at another
// place of it (plan/divide/side_by_side.h): so what devices share counts. Where there is not enough memory fewer of
// them are, with a note.
Profile measure_beside_others(const Graph& graph, Backend& backend, std::uint32_t devices,
                              const std::function<void(const std::string&)>& note = {},
                              const std::shared_ptr<PlanningTime>& time = std::make_shared<PlanningTime>());

// Loads are 1 where there is no memory to run tasks side by side; `is_whole` then becomes false.
Profile measure_profile(const Graph& graph, Backend& backend, const ProfilingOptions& options,
                        bool* is_whole = nullptr);

}  // namespace overtake
