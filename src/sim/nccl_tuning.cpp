#include "sim/nccl_tuning.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace overtake::nccl {
namespace {

using PerProtocol = std::array<double, 3>;  // LL, LL128, Simple
using PerScale = std::array<double, 3>;     // one node, two, four and more
using PerGeneration = std::array<PerScale, 4>;

// baseLatencies and hwLatencies.
constexpr PerProtocol kTreeBase = {6.8, 14.0, 8.4}, kRingBase = {6.6, 14.0, 8.4};
struct HopTimes {
  PerProtocol tree, ring;
};
constexpr HopTimes kNvlink = {{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}};
constexpr HopTimes kPcie = {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}};
constexpr HopTimes kNet = {{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}};
// NVLS and NVLSTree. Before 2.28 NCCL counted on 14 us for a hop between nodes; the tables that this is compared with
// chose by that, and took what 2.28 counts on.
constexpr double kSwitchBase = 25, kSwitchTreeHop = 20.9, kSwitchTreeHopEstimate = 14;

// llMaxBws: in one node by the GPU, across nodes by the CPU. Which CPUs: those of DGX-1, DGX A100, DGX H100, DGX B200.
constexpr PerGeneration kLlMost = {{{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141.0, 39.0, 20.4}, {282.0, 39.0, 20.4}}};
// perChMaxRingLL128Bws, perChMaxTreeLL128Bws, perChMaxTreeBws, perChMaxNVLSTreeBws.
constexpr PerGeneration kRingLl128Most = {
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}, {40.0, 40.0, 40.0}}};
constexpr PerGeneration kTreeLl128Most = {
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}}};
constexpr PerGeneration kTreeMost = {{{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}}};
constexpr PerGeneration kSwitchTreeMost = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0.0, 57.7, 45.5}, {0.0, 96.0, 80.0}}};
constexpr double kSwitchTreeChannels = 16;

// Of an NVLink: NCCL counts on 20, 20 and 20.6 of 25 GB/s (src/graph/topo.h), and never on more than 235 GB/s of an
// A100's 300 (compCap80 in tuning.cc of 2.10).
constexpr std::array<double, 4> kNvlinkShare = {0.8, 235.0 / 300, 0.824, 0.824};
// Of InfiniBand: 48 of 50 GB/s (sm90SpeedArrayInter); NVIDIA names 46 to 48 as good (NVIDIA/nccl-tests issue 290).
constexpr double kInfinibandShare = 0.96;
constexpr std::array<double, 4> kSwitchEfficiency = {0, 0, 0.85, 0.74};  // nvlsEfficiency
constexpr std::array<double, 4> kSwitchChannelMost = {0, 0, 60, 90};     // the first of sm90/sm100SpeedArrayIntra
constexpr double kTreeShare = 0.92, kLl128Share = 0.92;
constexpr double kBranchingTree = 0.85;  // NCCL_TOPO_PATTERN_TREE, three nodes and more

// treeCorrectionFactor: 64 B, 128 B ... 256 MiB.
constexpr std::array<std::array<double, 23>, 3> kTreeCorrection = {
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};

// Filling: microseconds for the largest pieces, and the size of a message that has half of that.
struct Fill {
  double us, half;
};
constexpr Fill kRingFill = {18, 128 << 20};  // of each step
constexpr Fill kSwitchFill = {60, 16 << 20};
constexpr Fill kSwitchTreeFill = {140, 32 << 20};  // of each level

// Of a process's loop over its devices: for each device NVIDIA/nccl-tests issue 123 (2 to 8 A100), and beside them the
// four H100 of dudeperf3ct.github.io/posts/distributed_communication_part1.
constexpr double kHostPerDevice = 4;
constexpr std::array<double, 4> kHostFixed = {2, 2, 8, 8};

constexpr double kInf = std::numeric_limits<double>::infinity();

std::size_t index_of(Protocol protocol) { return protocol == Protocol::ll ? 0 : protocol == Protocol::ll128 ? 1 : 2; }
bool is_nvls(const DeviceGroup& group) { return group.reducer && group.reducer->reduction.mode == ReductionMode::pull; }
bool is_exact(Protocol protocol) { return protocol == Protocol::ideal || protocol == Protocol::automatic; }
double log2_down(std::size_t n) { return static_cast<double>(std::bit_width(n) - 1); }

// What the formulas ask of a group.
struct View {
  explicit View(const DeviceGroup& g) : group(g), generation(static_cast<std::size_t>(generation_of(g))) {}

  double ranks() const { return group.size(); }
  double nodes() const { return static_cast<double>(group.nodes.size()); }
  double local() const { return static_cast<double>(group.nodes[0].size()); }
  bool is_across() const { return group.nodes.size() > 1; }
  std::size_t scale() const { return std::min<std::size_t>(group.nodes.size() - 1, 2); }
  double of(const PerGeneration& table) const { return table[generation][scale()]; }

  double raw_share(LinkKind kind) const {
    if (kind == LinkKind::nvlink) return kNvlinkShare[generation];
    return kind == LinkKind::infiniband ? kInfinibandShare : 1;
  }
  // Of all channels, where each rank sends; inside a node, and across.
  double bandwidth_of(LinkKind kind) const {
    if (!is_across()) return group.ring_bytes_per_ns;
    return kind == group.across.kind ? group.ring_bytes_per_ns : group.inside.bytes_per_ns;
  }
  double inside() const {
    return (is_across() ? group.inside.bytes_per_ns : group.ring_bytes_per_ns) * raw_share(group.inside.kind);
  }
  double across() const { return is_across() ? group.ring_bytes_per_ns * raw_share(group.across.kind) : kInf; }
  double channels_most(const PerGeneration& per_channel) const {
    return is_across() ? static_cast<double>(group.rings.size()) * of(per_channel) : kInf;
  }
  double tree_correction(Protocol protocol, std::int64_t bytes) const {
    const std::size_t size = bytes < 64 ? 0 : static_cast<std::size_t>(log2_down(static_cast<std::size_t>(bytes) >> 6));
    const auto& factors = kTreeCorrection[index_of(protocol)];
    return size < factors.size() ? factors[size] : 1;
  }

  // Of `raw` bytes/ns, what is payload with this protocol.
  double ring_rate(Protocol protocol, double raw) const {
    if (protocol == Protocol::ll) return std::min(raw * 0.5, of(kLlMost));
    if (protocol == Protocol::ll128) return std::min(raw * kLl128Share, channels_most(kRingLl128Most));
    return raw;
  }
  // `counts_channels`: where Simple reaches no more than NCCL counts on.
  double tree_rate(Protocol protocol, double raw, std::int64_t bytes, bool counts_channels) const {
    const bool branches = group.nodes.size() > 2;
    double rate = raw * kTreeShare;
    if (counts_channels) rate = std::min(rate, channels_most(kTreeMost));
    if (protocol == Protocol::ll) rate = std::min(rate / 3.8, of(kLlMost));
    if (protocol == Protocol::ll128)
      rate = std::min(rate * (is_across() ? 120.0 / 128 : 7.0 / 9), channels_most(kTreeLl128Most));
    if (branches && (counts_channels || protocol != Protocol::simple)) rate *= kBranchingTree;
    return rate * tree_correction(protocol, bytes);
  }
  double switch_rate() const {
    return 2 * std::min(inside(), kSwitchChannelMost[generation] * local()) * kSwitchEfficiency[generation] *
           (local() - 1) / local();
  }

  const DeviceGroup& group;
  std::size_t generation;
};

}  // namespace

Generation generation_of(const DeviceGroup& group) {
  // Where no node has two devices, links tell nothing.
  const bool has_inside = !group.nodes.empty() && group.nodes[0].size() > 1;
  const double width = has_inside && group.inside.kind == LinkKind::nvlink ? group.inside.bytes_per_ns : 300;
  return width >= 800   ? Generation::blackwell
         : width >= 400 ? Generation::hopper
         : width >= 200 ? Generation::ampere
                        : Generation::volta;
}

double base_latency_us(Algorithm algorithm, Protocol protocol) {
  if (is_exact(protocol)) return 0;
  if (algorithm == Algorithm::nvls_tree) return kSwitchBase;
  return (algorithm == Algorithm::tree ? kTreeBase : kRingBase)[index_of(protocol)];
}

double hop_us(LinkKind kind, Algorithm algorithm, Protocol protocol) {
  if (is_exact(protocol)) return 0;
  if (algorithm == Algorithm::nvls_tree) return kind == LinkKind::nvlink ? 0 : kSwitchTreeHop;
  const HopTimes& times = kind == LinkKind::nvlink ? kNvlink : kind == LinkKind::pcie ? kPcie : kNet;
  return (algorithm == Algorithm::tree ? times.tree : times.ring)[index_of(protocol)];
}

// getNetOverhead: 1 us where CPUs are Intel's, 2 us where they are AMD's, three times that with Simple.
double inner_hop_us(const DeviceGroup& group, Algorithm algorithm, Protocol protocol) {
  const double own = hop_us(group.inside.kind, algorithm, protocol);
  if (is_exact(protocol) || algorithm != Algorithm::ring || group.nodes.size() < 2) return own;
  const double overhead = generation_of(group) == Generation::ampere ? 2 : 1;
  return std::max(own, protocol == Protocol::simple ? 3 * overhead : overhead);
}

double payload_share(const DeviceGroup& group, LinkKind kind, Algorithm algorithm, Protocol protocol,
                     std::int64_t bytes) {
  if (is_exact(protocol)) return 1;
  const View view(group);
  const double raw = view.raw_share(kind);
  if (algorithm == Algorithm::nvls_tree) return raw;
  // Exchanges and rings in steps are no channels of NCCL's; they pay for the protocol.
  const double bandwidth = view.bandwidth_of(kind);
  const double rate = algorithm == Algorithm::tree ? view.tree_rate(protocol, bandwidth * raw, bytes, false)
                                                   : view.ring_rate(protocol, bandwidth * raw);
  return rate / bandwidth;
}

double fill_us(const DeviceGroup& group, Algorithm algorithm, Protocol protocol, double steps, double bytes) {
  if (is_exact(protocol) || protocol != Protocol::simple) return 0;
  const auto of = [&](const Fill& fill, double times) { return times * fill.us * bytes / (bytes + fill.half); };
  const bool has_nvlink = group.inside.kind == LinkKind::nvlink && group.nodes[0].size() > 1;
  if (algorithm == Algorithm::ring) return has_nvlink ? of(kRingFill, steps) : 0;
  if (algorithm == Algorithm::in_network) return is_nvls(group) ? of(kSwitchFill, 1) : 0;
  if (algorithm == Algorithm::nvls_tree) return of(kSwitchTreeFill, log2_down(group.nodes.size()));
  return 0;
}

double estimate_us(const DeviceGroup& group, Operation operation, Algorithm algorithm, Protocol protocol,
                   std::int64_t bytes) {
  const View view(group);
  const double n = view.ranks(), size = static_cast<double>(bytes);
  const bool is_all_reduce = operation == Operation::all_reduce;
  const double steps = is_all_reduce ? 2 * (n - 1) : n - 1;
  const double across = !view.is_across() ? 0 : (is_all_reduce ? 2 : 1) * (view.nodes() - 1);
  const double slowest = std::min(view.inside(), view.across());
  if (algorithm == Algorithm::ring) {
    if (operation == Operation::broadcast || operation == Operation::all_to_all) return -1;
    double latency = base_latency_us(algorithm, protocol) +
                     (steps - across) * inner_hop_us(group, algorithm, protocol) +
                     across * hop_us(group.across.kind, algorithm, protocol);
    if (protocol == Protocol::simple && is_all_reduce && view.is_across() &&
        size / (n * static_cast<double>(group.rings.size())) >= 64)
      latency *= view.generation < static_cast<std::size_t>(Generation::ampere) ? 1.9 : 1.4;  // a plateau
    return latency + size * steps / n / view.ring_rate(protocol, slowest) * 1e-3;
  }
  if (algorithm == Algorithm::tree && is_all_reduce) {
    // Two nodes send no more than they have, so that what they reach inside decides.
    const double raw = group.nodes.size() <= 2 ? view.inside() : slowest;
    return base_latency_us(algorithm, protocol) +
           2 * ((view.local() - 1) * hop_us(group.inside.kind, algorithm, protocol) +
                log2_down(group.nodes.size()) * hop_us(group.rail.kind, algorithm, protocol)) +
           2 * size / view.tree_rate(protocol, raw, bytes, true) * 1e-3;
  }
  // ncclNvlsInit wants three devices, and a generation that has it.
  if (protocol != Protocol::simple || view.local() < 3 || !is_all_reduce || view.switch_rate() <= 0) return -1;
  if (algorithm == Algorithm::in_network && is_nvls(group))
    return kSwitchBase + size * steps / n / view.switch_rate() * 1e-3;
  if (algorithm == Algorithm::nvls_tree) {
    const double rate = std::min({view.switch_rate(), view.across() * (group.nodes.size() <= 2 ? 2 : 1),
                                  kSwitchTreeChannels * view.of(kSwitchTreeMost)});
    return kSwitchBase + 2 * log2_down(group.nodes.size()) * kSwitchTreeHopEstimate + size * steps / n / rate * 1e-3;
  }
  return -1;
}

double message_limit(std::uint32_t ranks, std::int64_t bytes) {
  constexpr std::int64_t kChannels = 32, kLargestPart = 16 << 20;
  constexpr double kChannel = 20.6;
  std::int64_t channels = std::max<std::int64_t>(1, kChannels / std::max(1u, ranks));
  while (bytes > channels * kLargestPart && channels <= kChannels / 2) channels *= 2;
  return static_cast<double>(channels) * kChannel;
}

double host_loop_us(const DeviceGroup& group, std::uint32_t devices_per_process) {
  return kHostFixed[static_cast<std::size_t>(generation_of(group))] + kHostPerDevice * devices_per_process;
}

}  // namespace overtake::nccl
