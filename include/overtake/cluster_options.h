#pragma once
// How transfers run on a cluster, and what is out of the ordinary there: slow devices, failures.

#include <cstdint>
#include <vector>

namespace overtake {

// Of collectives.
enum class Algorithm : std::uint8_t {
  automatic,
  ring,
  tree,
  halving_doubling,
  hierarchical,
  in_network,
  nvls_tree,
  torus
};
enum class Protocol : std::uint8_t {
  automatic,
  ideal,  // the links and nothing else
  ll,     // 8-byte words with flags: lowest latency, part of the bandwidth
  ll128,  // 128-byte lines with flags: needs NVLink
  simple  // large pieces and fences: all of the bandwidth
};

// From then on nothing runs there, and nothing comes from there or gets there.
struct DeviceFailure {
  std::uint32_t device = 0;
  std::int64_t at_ns = 0;
};

// Beyond these times leave 64 bits.
inline constexpr double kLeastSpeed = 1e-4, kMostSpeed = 1e4;
constexpr bool is_speed(double x) { return x >= kLeastSpeed && x <= kMostSpeed; }

struct ClusterOptions {
  std::vector<double> speeds{};  // per device of the cluster: 0.5 takes twice as long as described; empty: all 1
  std::vector<DeviceFailure> failures{};
  // Of collectives; sends take the protocol only.
  Algorithm algorithm = Algorithm::automatic;
  Protocol protocol = Protocol::automatic;
  std::int64_t chunk_bytes = 0;
  bool is_fluid = false;
  bool overlap_slows = true;  // computation and communication on one device slow each other
};

}  // namespace overtake
