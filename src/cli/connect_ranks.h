#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/worker.h"
#include "overtake/run_spec.h"
#include "train/workplace.h"

namespace overtake {

// Where this process is one of several of a job, as its environment says: connects it with the others. The spec then
// has the GPU of this process, and the number of parts that all share. Of all ranks but the first, notes go nowhere.
void connect_ranks(RunSpec& spec, WorkplaceOptions& place);

// Before processes are connected: what the first one makes of something that it alone may read, on all of them. The
// others wait for it for so many seconds.
std::string text_of_first(const std::optional<Worker>& worker, const std::string& name, double patience,
                          const std::function<std::string()>& make);

}  // namespace overtake
