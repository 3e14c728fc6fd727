#pragma once
// Ways through a torus: along one dimension after the other, the shorter way round each. Where both are equally long,
// devices at even places go forward and others back, so that all links carry alike when all send to all.

#include <cstdint>
#include <optional>
#include <vector>

#include "overtake/cluster.h"

namespace overtake {

class Paths;
struct DeviceGroup;
struct RankTorus;

class TorusWays {
 public:
  explicit TorusWays(const Topology& topology);  // must outlive this

  // Whether both are devices of one torus.
  bool joins(std::uint32_t from, std::uint32_t to) const;
  // The links; they must be joined.
  std::vector<std::uint32_t> way(std::uint32_t from, std::uint32_t to) const;

  const Torus& torus_of(std::uint32_t device) const { return topology_.tori[torus_[device]]; }
  // Along each dimension.
  std::vector<std::uint32_t> coordinates(std::uint32_t device) const;

 private:
  const Topology& topology_;
  std::vector<std::uint32_t> torus_, place_;  // per vertex; kNone: of no torus
};

// The torus that the group's ranks are; none where they are of several, or lie unevenly in one.
std::optional<RankTorus> find_torus(Paths& paths, const DeviceGroup& group);

}  // namespace overtake
