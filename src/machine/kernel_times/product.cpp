#include "machine/kernel_times/product.h"

#include <algorithm>

namespace overtake {
namespace {

struct Tile {
  std::int64_t rows, columns;
};
// Of cuBLASLt's tiles (docs.nvidia.com/cuda/nvmath-python, cublasLt.MatmulTile, lists them) some of each size: larger
// ones load less per operation, smaller ones fill more SMs where a product is small.
constexpr Tile kTiles[] = {{256, 128}, {128, 256}, {160, 128}, {128, 160}, {128, 128}, {96, 128}, {128, 64},
                           {64, 128},  {96, 64},   {64, 96},   {64, 64},   {64, 32},   {32, 64}};
constexpr std::int64_t kMostPieces = 64;   // of a sum
constexpr std::int64_t kLeastPiece = 256;  // terms of a piece

std::int64_t over(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Operations per element that a tile loads.
double size_of(const Tile& t) {
  return static_cast<double>(t.rows * t.columns) / static_cast<double>(t.rows + t.columns);
}

}  // namespace

double matrix_flops_per_s(const DeviceType& device, MatrixRate rate) {
  switch (rate) {
    case MatrixRate::f32:
      return static_cast<double>(device.f32_flops);
    case MatrixRate::tf32:
      return static_cast<double>(device.tf32_flops);
    default:
      return static_cast<double>(device.bf16_flops);
  }
}

double more_waves(std::int64_t tiles, const DeviceType& device) {
  const std::int64_t all = device.sms, left = std::max<std::int64_t>(1, all - device.communication.sms);
  if (tiles == 0) return static_cast<double>(all) / static_cast<double>(left);
  return static_cast<double>(over(tiles, left)) / static_cast<double>(over(tiles, all));
}

ProductTime product_time(const ProductShape& s, const DeviceType& device, const KernelTable& table, double part) {
  const auto rate = static_cast<std::size_t>(s.rate);
  const double half = table.tile_half[rate];
  const double of_largest = size_of(kTiles[0]) / (size_of(kTiles[0]) + half);
  const double per_sm_ns = 1e-9 * matrix_flops_per_s(device, s.rate) * table.product_part[rate] * part *
                           (s.is_aligned ? 1 : table.unaligned_part) / device.sms;
  const double bytes_per_ns = 1e-9 * static_cast<double>(device.memory_bytes_per_s()) * table.bandwidth_part;
  ProductTime best;
  for (const Tile& tile : kTiles) {
    const double of_tile = size_of(tile) / (size_of(tile) + half) / of_largest;
    const std::int64_t tiles = s.count * over(s.m, tile.rows) * over(s.n, tile.columns);
    for (std::int64_t pieces = 1; pieces <= kMostPieces; pieces *= 2) {
      const std::int64_t terms = over(s.k, pieces);
      if (pieces > 1 && terms < kLeastPiece) break;
      const auto waves = static_cast<double>(over(tiles * pieces, device.sms));
      const double of_block =
          2.0 * static_cast<double>(tile.rows * tile.columns) * static_cast<double>(terms) / (per_sm_ns * of_tile) +
          static_cast<double>(table.block_ns);
      // Pieces are written and read again in float32, and added by a kernel of their own.
      const double sums = pieces == 1 ? 0
                                      : static_cast<double>(table.launch_ns) +
                                            8.0 * static_cast<double>(pieces * s.count * s.m * s.n) / bytes_per_ns;
      const double ns = waves * of_block + sums;
      if (best.ns == 0 || ns < best.ns) best = {ns, tiles * pieces};
    }
  }
  return best;
}

}  // namespace overtake
