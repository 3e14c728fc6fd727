#include "sim/torus_ways.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "sim/device_group.h"

namespace overtake {
namespace {

// Whether these are all places along a dimension of so many, or every k-th of them.
bool is_regular(const std::set<std::uint32_t>& places, std::uint32_t size) {
  const auto count = static_cast<std::uint32_t>(places.size());
  if (count == 1) return true;
  if (size % count != 0) return false;
  std::uint32_t expected = *places.begin();
  for (const std::uint32_t place : places) {
    if (place != expected) return false;
    expected += size / count;
  }
  return true;
}

}  // namespace

TorusWays::TorusWays(const Topology& topology)
    : topology_(topology), torus_(topology.vertices.size(), kNone), place_(topology.vertices.size(), kNone) {
  for (std::uint32_t t = 0; t < topology.tori.size(); ++t)
    for (std::uint32_t place = 0; place < topology.tori[t].devices.size(); ++place) {
      torus_[topology.tori[t].devices[place]] = t;
      place_[topology.tori[t].devices[place]] = place;
    }
}

bool TorusWays::joins(std::uint32_t from, std::uint32_t to) const {
  return torus_[from] != kNone && torus_[from] == torus_[to];
}

std::vector<std::uint32_t> TorusWays::coordinates(std::uint32_t device) const {
  const std::vector<std::uint32_t>& shape = torus_of(device).shape;
  std::vector<std::uint32_t> at(shape.size());
  std::uint32_t rest = place_[device];
  for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) at[d] = rest % shape[d];
  return at;
}

std::vector<std::uint32_t> TorusWays::way(std::uint32_t from, std::uint32_t to) const {
  OVERTAKE_CHECK(joins(from, to), "vertices {} and {} are not of one torus", from, to);
  const Torus& torus = torus_of(from);
  const std::size_t dimensions = torus.shape.size();
  const std::vector<std::uint32_t> begin = coordinates(from), end = coordinates(to);
  std::vector<std::uint32_t> links;
  std::uint32_t place = place_[from], stride = static_cast<std::uint32_t>(torus.devices.size());
  for (std::size_t d = 0; d < dimensions; ++d) {
    const std::uint32_t size = torus.shape[d];
    stride /= size;
    const std::uint32_t ahead = (end[d] + size - begin[d]) % size;
    const bool goes_on = 2 * ahead < size || (2 * ahead == size && begin[d] % 2 == 0);
    for (std::uint32_t at = begin[d]; at != end[d];) {
      const std::uint32_t next = goes_on ? (at + 1) % size : (at + size - 1) % size;
      const std::uint32_t next_place = place - at * stride + next * stride;
      // Back over the link from there; with two, the one cable is the link to the next.
      links.push_back(goes_on || size == 2 ? torus.forward[place * dimensions + d]
                                           : torus.forward[next_place * dimensions + d] ^ 1);
      at = next;
      place = next_place;
    }
  }
  return links;
}

std::optional<RankTorus> find_torus(Paths& paths, const DeviceGroup& group) {
  const TorusWays& ways = paths.router().torus_ways();
  for (const std::uint32_t device : group.devices)
    if (!ways.joins(group.devices[0], device)) return {};
  const std::vector<std::uint32_t>& shape = ways.torus_of(group.devices[0]).shape;
  std::vector<std::set<std::uint32_t>> places(shape.size());  // along each dimension
  std::map<std::vector<std::uint32_t>, std::uint32_t> rank_at;
  for (std::uint32_t r = 0; r < group.size(); ++r) {
    const std::vector<std::uint32_t> at = ways.coordinates(group.devices[r]);
    for (std::size_t d = 0; d < shape.size(); ++d) places[d].insert(at[d]);
    rank_at.emplace(at, r);
  }
  std::size_t product = 1;
  RankTorus torus;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (!is_regular(places[d], shape[d])) return {};
    product *= places[d].size();
    if (places[d].size() > 1) torus.sizes.push_back(static_cast<std::uint32_t>(places[d].size()));
  }
  if (product != group.size()) return {};
  for (const auto& [at, rank] : rank_at) torus.ranks.push_back(rank);  // in the order of places
  std::size_t stride = group.size();
  for (const std::uint32_t size : torus.sizes) {
    stride /= size;
    const PathId path = paths.between(group.devices[torus.ranks[0]], group.devices[torus.ranks[stride]]);
    // Both ways round there is one cable between two.
    const double share = size == 2 ? 0.5 : 1;
    torus.hops.push_back({.kind = paths.kind(path),
                          .latency_ns = paths.network().path_latency_ns(path),
                          .bytes_per_ns = share * paths.network().path_bandwidth(path) / 1e9});
  }
  return torus;
}

}  // namespace overtake
