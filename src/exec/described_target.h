#pragma once
// What the kernels of devices want that are only described.

#include <memory>

#include "overtake/cluster.h"
#include "overtake/target.h"

namespace overtake {

std::shared_ptr<const Target> described_target(DeviceTarget kernels);

}  // namespace overtake
