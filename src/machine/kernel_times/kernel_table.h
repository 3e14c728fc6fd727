#pragma once
// What kernels of a generation of devices reach, of the peaks that a machine file gives. Every number has its source
// beside it in kernel_table.cpp.

#include <array>
#include <cstdint>

#include "overtake/cluster.h"

namespace overtake {

enum class MatrixRate : std::uint8_t { f32, tf32, bf16 };

struct KernelTable {
  // Matrix products, by MatrixRate: the part of the peak in full waves of the largest tile, and the tile's size at
  // which smaller ones reach half of what tiles without end would, as rows * columns / (rows + columns).
  std::array<double, 3> product_part{};
  std::array<double, 3> tile_half{};
  std::int64_t block_ns = 0;    // of a block, beside its arithmetic: the first operands' way, and the sums' way back
  std::int64_t product_ns = 0;  // of a product's kernel, beside its blocks
  std::int64_t convolution_ns = 0;  // the same of a convolution's
  double unaligned_part = 1;        // of the rate, where rows of operands are no multiple of 16 bytes

  // Convolutions against the products that they amount to: forward, input gradient, weight gradient.
  // On matrix units; float32 without them has direct_part of all three, and filters of 3 x 3 at stride 1 fewer
  // products.
  std::array<double, 3> convolution_part{};
  double direct_part = 1;
  double winograd_part = 1;   // of that, beside the fewer products: the transforms
  double strided_part = 1;    // of input gradients, where the stride is not 1
  double narrow_part = 1;     // where an image has fewer than 32 channels
  double depthwise_part = 1;  // of the vector units' peak, a filter for every channel

  // Attention in one kernel, forward and backward: the part of the peak for long sequences, and how many keys reach
  // half of it. The narrow part is that of heads of 64, against 128.
  std::array<double, 2> attention_part{};
  std::array<double, 2> attention_half{};
  double narrow_head_part = 1;

  double vector_part = 1;         // of the peak of float32, in arithmetic outside of products
  double bandwidth_part = 1;      // of memory, where much is moved
  double scattered_part = 1;      // of that, in sums over rows that lie apart
  std::int64_t cached_bytes = 0;  // a second pass over so many is in a cache
  std::int64_t launch_ns = 0;     // from the end of a kernel to the first work of the next
  std::int64_t ramp_ns = 0;       // of a kernel that moves memory, until its bandwidth is reached
  std::int64_t sum_ns = 0;        // of a sum over all of an image or all rows, until the last block knows all others'
  std::int64_t recurrent_ns = 0;  // of one step of a recurrence, beside its arithmetic
};

// That of the device's generation; of CPUs without one, the one of CPUs.
const KernelTable& kernel_table(const DeviceType& device);

}  // namespace overtake
