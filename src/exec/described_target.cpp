#include "exec/described_target.h"

#include "exec/cpu/target.h"
#include "machine/gpu_target.h"

namespace overtake {

std::shared_ptr<const Target> described_target(DeviceTarget kernels) {
  if (kernels == DeviceTarget::cpu) return std::make_shared<CpuTarget>();
  return std::make_shared<GpuTarget>();
}

}  // namespace overtake
