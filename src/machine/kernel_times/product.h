#pragma once
// How long a matrix product takes: its tiles over a device's SMs, wave by wave.

#include <cstdint>

#include "machine/kernel_times/kernel_table.h"
#include "overtake/cluster.h"

namespace overtake {

struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t count = 1;  // of independent products
  MatrixRate rate = MatrixRate::bf16;
  bool is_aligned = true;  // rows of 16 bytes or a multiple
};

struct ProductTime {
  double ns = 0;
  std::int64_t tiles = 0;  // pieces that an SM does one at a time
};

double matrix_flops_per_s(const DeviceType& device, MatrixRate rate);
// `part` is what the kernel reaches of a plain product's rate. Of the tiles that libraries have, and of sums cut into
// pieces, the fastest.
ProductTime product_time(const ProductShape& shape, const DeviceType& device, const KernelTable& table,
                         double part = 1);

// How many times the waves of all SMs it takes to do so many tiles on those that a collective leaves
// (CommunicationCost::sms). 0 tiles: any number, as much longer as there are fewer SMs.
double more_waves(std::int64_t tiles, const DeviceType& device);

}  // namespace overtake
