#pragma once
// What the kernels of devices want that are only described.

#include <memory>

#include "machine/cluster.h"
#include "machine/target.h"

namespace overtake {

std::shared_ptr<const Target> described_target(DeviceTarget kernels);

}  // namespace overtake
