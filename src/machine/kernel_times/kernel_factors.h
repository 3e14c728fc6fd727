#pragma once
// How much longer kernels take than a table says, by class; 1: as it says.

namespace overtake {

struct KernelFactors {
  double products = 1;
  double convolutions = 1;
  double attention = 1;
  double elementwise = 1;  // and norms, and all else that moves memory
  double launch = 1;
  bool operator==(const KernelFactors&) const = default;
};

}  // namespace overtake
