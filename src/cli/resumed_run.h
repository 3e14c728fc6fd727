#pragma once
// `train --resume`: the run of a checkpoint, with what is given for this start.

#include <nlohmann/json.hpp>
#include <optional>

#include "cli/spec_flags.h"
#include "launch/worker.h"
#include "train/loop.h"

namespace overtake {

// All processes of a job have the same, except for the state, which only the first one reads.
struct ResumedRun {
  nlohmann::json settings;  // of the checkpoint, by the names of fields
  std::uint64_t steps = 0;  // done
  std::optional<CheckpointState> state = {};
};

ResumedRun read_resumed(const RunSpec& asked, const std::optional<Worker>& worker);

// With the checkpoint's value of every field that is not given. What is saved goes where it was taken up from, unless
// another place is given.
RunSpec resumed_spec(const ResumedRun& resumed, const RunSpec& asked, const std::vector<const Field*>& given);

// What there is to say of a run that is taken up where it was to end.
void say_finished(const ResumedRun& resumed, const RunSpec& spec, const LoopOptions& loop, bool json);

}  // namespace overtake
