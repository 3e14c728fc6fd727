#pragma once
// The machine at hand, as planning sees it: what tasks take is measured on the process's own device, and the link
// between processes by a few transfers.

#include <memory>
#include <string>

#include "overtake/program.h"
#include "train/workplace.h"

namespace overtake {

// Before anything is measured: the kernels of the place's device, and how many lanes it can run.
Machine unmeasured_machine(const Workplace& place);

// The machine for a program of which only the step is compiled (compile_step). All ranks call it at once and get the
// same one. Of one device tasks are measured only if an order depends on it, or `predicts`, and if the run is long
// enough for it to be planned.
Machine measured_machine(const Program& step, const Workplace& place, bool predicts);

// A described machine whose devices, all of one kind, run tasks as a device at hand does: "cpu" or "cuda". What is
// measured also goes into a file, unless `save_profile` is empty.
Machine with_measured_tasks(Machine machine, const Graph& model, const RunSpec& spec, const std::string& device,
                            const std::string& save_profile);

// Of rank 0 on all ranks; without ranks `make` is called and that is all.
std::string shared_text(const RankGroups* groups, const std::function<std::string()>& make);

}  // namespace overtake
