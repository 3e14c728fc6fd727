#include "sim/torus_lanes.h"

#include <algorithm>
#include <vector>

namespace overtake {
namespace {

// One of the parts that go through a torus on their own way: which part of the bytes each rank has by now, and the lane
// into it that brings it.
struct Part {
  std::uint32_t parts = 1;
  std::vector<std::uint32_t> part, into;  // per rank
  bool goes_back = false;
};

std::uint32_t stride(const RankTorus& torus, std::uint32_t dimension) {
  std::uint32_t product = 1;
  for (std::size_t d = dimension + 1; d < torus.sizes.size(); ++d) product *= torus.sizes[d];
  return product;
}

std::uint32_t coordinate(const RankTorus& torus, std::uint32_t place, std::uint32_t dimension) {
  return place / stride(torus, dimension) % torus.sizes[dimension];
}

// A ring through each line of ranks along a dimension.
void add_rings(LaneBuilder& builder, std::uint32_t dimension, Part& part) {
  const RankTorus& torus = *builder.group().torus;
  const std::uint32_t size = torus.sizes[dimension], step = stride(torus, dimension);
  for (std::uint32_t place = 0; place < builder.ranks(); ++place) {
    if (coordinate(torus, place, dimension) != 0) continue;
    std::vector<std::uint32_t> line;
    for (std::uint32_t i = 0; i < size; ++i) line.push_back(torus.ranks[place + i * step]);
    if (part.goes_back) std::reverse(line.begin(), line.end());
    std::vector<std::vector<std::uint32_t>> after(size);
    for (std::uint32_t i = 0; i < size; ++i)
      if (part.into[line[i]] != kNone) after[i] = {part.into[line[i]]};
    const std::uint32_t first = builder.add_ring(line, size - 1, part.parts, part.part[line[0]], after);
    for (std::uint32_t i = 0; i < size; ++i) part.into[line[(i + 1) % size]] = first + i;
  }
}

}  // namespace

void add_torus_lanes(LaneBuilder& builder, Operation operation) {
  const RankTorus& torus = *builder.group().torus;
  const std::uint32_t ranks = builder.ranks(), dimensions = static_cast<std::uint32_t>(torus.sizes.size());
  const bool reduces = operation != Operation::all_gather, gathers = operation != Operation::reduce_scatter;
  for (std::uint32_t c = 0; c < 2 * dimensions; ++c) {
    Part part{.parts = 2 * dimensions,
              .part = std::vector<std::uint32_t>(ranks, c),
              .into = std::vector<std::uint32_t>(ranks, kNone),
              .goes_back = c % 2 == 1};
    const auto dimension = [&](std::uint32_t i) { return (c / 2 + i) % dimensions; };
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const std::uint32_t d = dimension(i);
      if (reduces) add_rings(builder, d, part);
      for (std::uint32_t place = 0; place < ranks; ++place) {
        std::uint32_t& mine = part.part[torus.ranks[place]];
        mine = mine * torus.sizes[d] + coordinate(torus, place, d);
      }
      part.parts *= torus.sizes[d];
    }
    for (std::uint32_t i = dimensions; i-- > 0;) {
      const std::uint32_t d = dimension(i);
      part.parts /= torus.sizes[d];
      for (std::uint32_t& mine : part.part) mine /= torus.sizes[d];
      if (gathers) add_rings(builder, d, part);
    }
  }
}

}  // namespace overtake
