#pragma once
// Files of a few kernels that were measured on a device (docs/machines.md), which correct its table.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "machine/kernel_times/kernel_factors.h"
#include "overtake/cluster.h"
#include "overtake/graph.h"

namespace overtake {

enum class KernelClass : std::uint8_t { product, convolution, attention, elementwise, launch };

struct MeasuredKernel {
  KernelClass kind = KernelClass::launch;
  Graph step;  // of the one task; none of a launch
  bool tf32 = false;
  std::int64_t ns = 0;
};

// User errors name the file and the line: not TOML, unknown kinds and keys, shapes or times that cannot be.
std::vector<MeasuredKernel> parse_calibration(std::string_view text, const std::string& file);
// Per class, the geometric mean of what its kernels took over what the device's table says of them, launches apart.
// User errors: a kernel that takes no longer than a launch.
KernelFactors factors_of(std::span<const MeasuredKernel> kernels, const DeviceType& device, const std::string& file);
KernelFactors load_calibration(const std::string& file, const DeviceType& device);

}  // namespace overtake
