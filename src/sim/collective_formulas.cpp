#include "sim/collective_formulas.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "sim/nccl_tuning.h"

namespace overtake {
namespace {

// Of what a switch reaches where it adds for one node, what it reaches where trees join nodes, so that sums come in and
// results go out beside each other. Calibrated: docs/validation-method.md.
constexpr double kBesideTrees = 0.9;

std::uint32_t log2_up(std::uint32_t n) { return static_cast<std::uint32_t>(std::bit_width(n - 1)); }

// The formulas, in bytes and nanoseconds.
class Formula {
 public:
  Formula(const DeviceGroup& group, Operation operation, Algorithm algorithm, Protocol protocol, double bytes)
      : group_(group), operation_(operation), algorithm_(algorithm), protocol_(protocol), bytes_(bytes) {}

  double time() const {
    if (operation_ == Operation::send_recv) return hops(1, worst()) + message();
    if (operation_ == Operation::all_to_all) return all_to_all();
    if (operation_ == Operation::broadcast) return broadcast();
    switch (algorithm_) {
      case Algorithm::automatic:
      case Algorithm::ring:
        return ring();
      case Algorithm::tree:
        return tree();
      case Algorithm::halving_doubling:
        return halving_doubling();
      case Algorithm::hierarchical:
        return hierarchical();
      case Algorithm::in_network:
        return in_network();
      case Algorithm::torus:
        return torus();
      case Algorithm::nvls_tree:
        return nvls_tree();
    }
    return 0;
  }

  double ring_latency() const {
    const double steps = passes() * (n() - 1), across = is_across() ? nodes() / n() : 0;
    const double rings = static_cast<double>(group_.rings.size());
    const double slowest = over_rings(bytes_ / n());  // of a piece, in all rings at once
    const double fast = is_across() && local() > 1 ? over(bytes_ / n() / rings, group_.inside) : slowest;
    const double round = (1 - across) * (hops(1, group_.inside) + fast) + across * (hops(1, group_.across) + slowest);
    return std::max(steps * (round - slowest), hops(1, worst()));
  }

 private:
  double n() const { return group_.size(); }
  double nodes() const { return static_cast<double>(group_.nodes.size()); }
  double local() const { return static_cast<double>(group_.nodes[0].size()); }
  bool is_across() const { return group_.nodes.size() > 1; }
  const Hop& worst() const { return is_across() ? group_.across : group_.inside; }
  // An all-reduce passes twice: to add, and to spread.
  double passes() const { return operation_ == Operation::all_reduce ? 2 : 1; }

  double hops(double count, const Hop& hop) const {
    return count > 0 ? count * static_cast<double>(hop_ns(hop, algorithm_, protocol_)) : 0;
  }
  // Time of bytes over a hop of which each has a share.
  double over(double bytes, const Hop& hop, double share = 1) const {
    return bytes > 0 ? bytes / (hop.bytes_per_ns * share * share_of(hop.kind)) : 0;
  }
  double over_rings(double bytes) const { return bytes / (group_.ring_bytes_per_ns * share_of(worst().kind)); }
  double share_of(LinkKind kind) const {
    return nccl::payload_share(group_, kind, algorithm_, protocol_, static_cast<std::int64_t>(bytes_));
  }
  double message() const {
    const double limit = message_limit(group_, protocol_, static_cast<std::int64_t>(bytes_));
    return std::max(over(bytes_, worst()), bytes_ / limit);
  }
  // Without rails the ranks of a node share the way out of it.
  double rail_share() const { return group_.has_rails || local() < 2 ? 1 : 1 / local(); }
  double log_nodes() const { return log2_up(static_cast<std::uint32_t>(group_.nodes.size())); }

  double ring() const {
    const double steps = passes() * (n() - 1), across = is_across() ? steps * nodes() / n() : 0;
    const double sent = bytes_ * steps / n();  // per rank, over all rings
    const double slowest =
        is_across() && local() > 1 ? std::max(over_rings(sent), over(sent, group_.inside)) : over_rings(sent);
    return hops(steps - across, group_.inside) + hops(across, group_.across) + slowest;
  }
  double tree_hops() const {
    const double deep = group_.has_chains() ? local() - 1 : log2_up(group_.size());
    return hops(deep, group_.inside) + hops(log_nodes(), group_.rail);
  }
  double tree() const {
    if (!is_across()) return 2 * tree_hops() + over_rings(2 * bytes_ * (group_.has_chains() ? 1 : (n() - 1) / n()));
    const double rings = static_cast<double>(group_.rings.size());
    const double inside = over(2 * bytes_ * (local() - 1) / local(), group_.inside);
    // A node inside one of the two trees sends three halves there and one in the other; few nodes have fewer children.
    const double outside = over(std::min(2.0, nodes() / 2) * bytes_ / rings, group_.rail);
    return 2 * tree_hops() + std::max(inside, outside);
  }
  double all_to_all() const {
    // A round whose messages all stay in the node is a short one.
    const double rounds = std::ceil((n() - 1) / kPeersAtOnce),
                 near = is_across() ? std::floor(local() / kPeersAtOnce) : 0;
    return hops(near, group_.inside) + hops(rounds - near, group_.exchange) +
           over(bytes_ * (n() - 1) / n(), group_.exchange);
  }
  double nvls_tree() const {
    const double inside = bytes_ * (1 + 1 / local()) / switch_bytes_per_ns(group_.node_reducers[0]);
    const double outside =
        over(std::min(2.0, nodes() / 2) * bytes_ / static_cast<double>(group_.rings.size()), group_.rail);
    return 2 * log_nodes() * static_cast<double>(hop_ns(group_.rail, algorithm_, protocol_)) +
           static_cast<double>(2 * group_.node_reducers[0].latency_ns) + std::max(inside, outside);
  }
  double broadcast() const {
    if (algorithm_ == Algorithm::tree) return tree_hops() + over(2 * bytes_, group_.inside);
    return hops(n() - nodes(), group_.inside) + hops(nodes() - 1, group_.across) + over_rings(bytes_);
  }
  double halving_doubling() const {
    const double inside_steps = log2_up(group_.size()) - log_nodes();
    const double outside = is_across() ? over(bytes_ * (1 - 1 / nodes()), group_.rail, rail_share()) : 0;
    const double inside = over(bytes_ / nodes() * (1 - 1 / local()), group_.inside);
    const double exchange =
        passes() * (hops(inside_steps, group_.inside) + hops(log_nodes(), group_.rail) + outside + inside);
    if (std::has_single_bit(group_.size())) return exchange;
    return exchange + 2 * (hops(1, is_across() ? group_.rail : group_.inside) + over(bytes_, worst()));
  }
  double inside_nodes() const {
    return passes() * (hops(local() - 1, group_.inside) + over(bytes_ * (local() - 1) / local(), group_.inside));
  }
  double hierarchical() const {
    const double steps = passes() * (nodes() - 1);
    return inside_nodes() + hops(steps, group_.rail) +
           over(bytes_ / local() * steps / nodes(), group_.rail, rail_share());
  }
  double in_network() const {
    const bool is_one = group_.reducer.has_value();
    const Reducer& reducer = is_one ? *group_.reducer : group_.rail_reducers[0];
    const double share = is_one ? bytes_ : bytes_ / local();
    const bool twice = operation_ == Operation::all_reduce && reducer.reduction.mode == ReductionMode::pull;
    const double wire = share * (twice ? 1 + 1 / (is_one ? n() : nodes()) : 1);
    return static_cast<double>(reducer.latency_ns) + wire / reduction_limit(reducer, wire, share) +
           (is_one ? 0 : inside_nodes());
  }

  // Of two parts per dimension, each beginning with another; the slowest counts. Exact where all dimensions are equal;
  // elsewhere parts meet on links, and it takes up to a third longer.
  double torus() const {
    const RankTorus& torus = *group_.torus;
    const std::size_t dimensions = torus.sizes.size();
    double slowest = 0;
    for (std::size_t begin = 0; begin < dimensions; ++begin) {
      double left = bytes_ / static_cast<double>(2 * dimensions), time = 0;
      for (std::size_t i = 0; i < dimensions; ++i) {
        const std::size_t d = (begin + i) % dimensions;
        left /= torus.sizes[d];
        const double steps = torus.sizes[d] - 1.0;
        time += hops(steps, torus.hops[d]) + over(left * steps, torus.hops[d]);
      }
      slowest = std::max(slowest, time);
    }
    return passes() * slowest;
  }

  const DeviceGroup& group_;
  Operation operation_;
  Algorithm algorithm_;
  Protocol protocol_;
  double bytes_;
};

}  // namespace

std::int64_t base_ns(const DeviceGroup& group, Operation operation, Algorithm algorithm, Protocol protocol,
                     std::int64_t bytes) {
  const double n = group.size();
  const bool is_stepwise = operation == Operation::all_reduce || operation == Operation::all_gather ||
                           operation == Operation::reduce_scatter;
  const double steps = !is_stepwise ? 0 : operation == Operation::all_reduce ? 2 * (n - 1) : n - 1;
  const std::int64_t fill =
      std::llround(nccl::fill_us(group, algorithm, protocol, steps, static_cast<double>(bytes)) * 1e3);
  if (algorithm == Algorithm::in_network) {
    const std::vector<Reducer>& rails = group.rail_reducers;
    return fill + (group.reducer ? group.reducer->reduction.fixed_ns : rails.empty() ? 0 : rails[0].reduction.fixed_ns);
  }
  return fill + std::llround(nccl::base_latency_us(algorithm, protocol) * 1e3);
}

std::int64_t hop_ns(const Hop& hop, Algorithm algorithm, Protocol protocol) {
  return std::max(hop.latency_ns,
                  static_cast<std::int64_t>(std::llround(nccl::hop_us(hop.kind, algorithm, protocol) * 1e3)));
}

double message_limit(const DeviceGroup& group, Protocol protocol, std::int64_t bytes, std::uint32_t communicator) {
  const bool is_exact = protocol == Protocol::ideal || protocol == Protocol::automatic;
  if (is_exact || group.inside.kind != LinkKind::nvlink || group.nodes.size() > 1) return kNoLimit;
  return nccl::message_limit(std::max(communicator, group.size()), bytes);
}

double switch_bytes_per_ns(const Reducer& reducer) {
  return reducer.bytes_per_ns * reducer.reduction.efficiency * kBesideTrees;
}

double reduction_limit(const Reducer& reducer, double wire, double bytes) {
  const Reduction& r = reducer.reduction;
  const double sums =
      static_cast<double>(r.entries) * static_cast<double>(r.entry_bytes) / static_cast<double>(r.round_trip_ns);
  return std::min(reducer.bytes_per_ns * r.efficiency, bytes > 0 ? sums * wire / bytes : sums);
}

std::int64_t predict_ns(const DeviceGroup& group, Operation operation, Algorithm algorithm, Protocol protocol,
                        std::int64_t bytes) {
  if (group.size() < 2) return 0;
  const Formula formula(group, operation, algorithm, protocol, static_cast<double>(bytes));
  return base_ns(group, operation, algorithm, protocol, bytes) + std::llround(formula.time());
}

std::int64_t ring_latency_ns(const DeviceGroup& group, Operation operation, Protocol protocol, std::int64_t bytes) {
  return std::llround(Formula(group, operation, Algorithm::ring, protocol, static_cast<double>(bytes)).ring_latency());
}

double wire_bytes(const DeviceGroup& group, Operation operation, Algorithm algorithm, std::int64_t bytes) {
  if (group.size() < 2) return 0;
  const double n = group.size(), all = static_cast<double>(bytes);
  const double passes = operation == Operation::all_reduce ? 2 : 1;
  if (operation == Operation::send_recv || operation == Operation::broadcast) return all;
  if (algorithm == Algorithm::tree) return passes * all;
  if (algorithm == Algorithm::hierarchical || (algorithm == Algorithm::in_network && !group.reducer)) {
    const double nodes = static_cast<double>(group.nodes.size()), local = static_cast<double>(group.nodes[0].size());
    const double across = algorithm == Algorithm::in_network ? 1 : passes * (nodes - 1) / nodes;
    return passes * all * (local - 1) / local + all / local * across;
  }
  if (algorithm == Algorithm::nvls_tree) return all * (1 + 1 / static_cast<double>(group.nodes[0].size()));
  if (algorithm == Algorithm::in_network)
    return all * (passes == 2 && group.reducer->reduction.mode == ReductionMode::pull ? 1 + 1 / n : 1);
  return passes * all * (n - 1) / n;
}

namespace {

// NCCL takes switches of the network only where it is told to (NCCL_COLLNET_ENABLE), and NVSwitches that add where a
// node has three devices or more (ncclNvlsInit), for all-reduce: its rings are faster for the others.
bool is_considered(const DeviceGroup& group, Operation operation, Algorithm algorithm) {
  if (algorithm == Algorithm::nvls_tree) return group.nodes[0].size() > 2;
  if (algorithm != Algorithm::in_network) return true;
  if (!group.reducer) return false;
  return group.reducer->reduction.mode == ReductionMode::push ||
         (operation == Operation::all_reduce && group.size() > 2);
}

// NCCL does not know these chips: links have their own latency and bandwidth, as with the ideal protocol.
bool is_without_nccl(const DeviceGroup& group) {
  return group.inside.kind == LinkKind::ici && group.across.kind == LinkKind::ici && group.rail.kind == LinkKind::ici;
}

// LL128 needs NVLink; switches that add take Simple.
bool is_offered(const DeviceGroup& group, Algorithm algorithm, Protocol protocol) {
  if (algorithm == Algorithm::in_network || algorithm == Algorithm::nvls_tree) return protocol == Protocol::simple;
  return protocol != Protocol::ll128 || (group.inside.kind == LinkKind::nvlink && group.nodes[0].size() > 1);
}

}  // namespace

Choice choose(const DeviceGroup& group, Operation operation, std::int64_t bytes, Algorithm algorithm,
              Protocol protocol) {
  const std::string_view why = cannot_run(group, operation, algorithm);
  if (!why.empty() && is_of_messages(operation))
    fail_user("collective: {} among {} devices: {}; use groups of fewer", to_string(operation), group.size(), why);
  if (!why.empty())
    fail_user("collective: {} cannot do {} among these {} devices: {}; use ring or auto", to_string(algorithm),
              to_string(operation), group.size(), why);
  std::vector<Algorithm> algorithms{algorithm};
  if (algorithm == Algorithm::automatic)
    algorithms = {Algorithm::ring, Algorithm::tree, Algorithm::in_network, Algorithm::nvls_tree, Algorithm::torus};
  if (is_of_messages(operation)) algorithms = {Algorithm::ring};
  std::vector<Protocol> protocols{protocol};
  if (protocol == Protocol::automatic) protocols = {Protocol::ll, Protocol::ll128, Protocol::simple};
  if (is_without_nccl(group)) protocols = {Protocol::ideal};
  Choice best{.predicted_ns = INT64_MAX};
  double least_us = std::numeric_limits<double>::infinity();
  for (const Algorithm a : algorithms) {
    if (!cannot_run(group, operation, a).empty()) continue;
    for (const Protocol p : protocols) {
      if (algorithm == Algorithm::automatic && !is_considered(group, operation, a)) continue;
      if (protocol == Protocol::automatic && !is_offered(group, a, p)) continue;
      const std::int64_t time = predict_ns(group, operation, a, p, bytes);
      const double estimate = p == Protocol::ideal ? -1 : nccl::estimate_us(group, operation, a, p, bytes);
      const double us = estimate < 0 ? static_cast<double>(time) * 1e-3 : estimate;
      if (us >= least_us && best.predicted_ns < INT64_MAX) continue;
      least_us = us;
      best = {a, p, time};
    }
  }
  return best;
}

std::string_view to_string(Protocol protocol) {
  switch (protocol) {
    case Protocol::automatic:
      return "auto";
    case Protocol::ideal:
      return "ideal";
    case Protocol::ll:
      return "LL";
    case Protocol::ll128:
      return "LL128";
    case Protocol::simple:
      return "Simple";
  }
  return "";
}

}  // namespace overtake
