#include "sim/collective_lanes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "sim/lane_builder.h"
#include "sim/torus_lanes.h"

namespace overtake {
namespace {

class Builder : public LaneBuilder {
 public:
  Builder(const DeviceGroup& group, Paths& paths, Operation operation)
      : LaneBuilder(group, paths), operation_(operation) {}

  void add_rings() {
    const std::uint32_t n = ranks(), rings = static_cast<std::uint32_t>(group_.rings.size());
    for (std::uint32_t c = 0; c < rings; ++c)
      add_ring(group_.rings[c], operation_ == Operation::all_reduce ? 2 * (n - 1) : n - 1, rings, c);
  }

  // Pieces stream down the ring from the root; the last does not send.
  void add_chain(std::uint32_t root) {
    const std::uint32_t n = ranks(), rings = static_cast<std::uint32_t>(group_.rings.size());
    for (std::uint32_t c = 0; c < rings; ++c) {
      const std::vector<std::uint32_t>& ring = group_.rings[c];
      const auto start = static_cast<std::uint32_t>(std::find(ring.begin(), ring.end(), root) - ring.begin());
      for (std::uint32_t i = 0; i + 1 < n; ++i) {
        const auto last = static_cast<std::uint32_t>(lanes_.size() - 1);
        add({.from = ring[(start + i) % n],
             .to = ring[(start + i + 1) % n],
             .steps = 0,
             .shards = rings,
             .shard = c,
             .pieces = 0},
            i == 0 ? std::vector<Need>{} : std::vector<Need>{{last, 1}});
      }
    }
  }

  // Parent of a place in a binary tree whose inner places are even: the lowest bit set moves up. Place 0 is the root.
  static std::uint32_t parent(std::uint32_t place, std::uint32_t n) {
    const std::uint32_t bit = place & (~place + 1), rest = place ^ bit;
    const std::uint32_t up = rest | bit << 1;
    return up < n ? up : rest;
  }

  // The parents of ranks, where places of a tree are taken by `order`.
  std::vector<std::uint32_t> binary_tree(const std::vector<std::uint32_t>& order) const {
    const auto n = static_cast<std::uint32_t>(order.size());
    std::vector<std::uint32_t> above(ranks(), kNone);
    for (std::uint32_t p = 1; p < n; ++p) above[order[p]] = order[parent(p, n)];
    return above;
  }

  // Another order of the same, in which what was inside the tree is a leaf.
  static std::vector<std::uint32_t> other_order(std::vector<std::uint32_t> order) {
    if (order.size() % 2 == 0) {
      std::reverse(order.begin(), order.end());
    } else {
      std::rotate(order.begin(), order.begin() + 1, order.end());
    }
    return order;
  }

  // One tree, given by the parents of ranks, over one of `shards`: sums stream up, results stream down.
  void add_tree(const std::vector<std::uint32_t>& above, std::uint32_t shards, std::uint32_t shard, bool goes_up) {
    const std::uint32_t n = ranks();
    std::vector<std::vector<std::uint32_t>> children(n);
    std::vector<std::uint32_t> from_top;  // ranks, parents first
    for (std::uint32_t r = 0; r < n; ++r) above[r] == kNone ? from_top.push_back(r) : children[above[r]].push_back(r);
    for (std::size_t i = 0; i < from_top.size(); ++i)
      for (const std::uint32_t c : children[from_top[i]]) from_top.push_back(c);
    std::vector<std::uint32_t> up(n, kNone), down(n, kNone);
    const auto lane = [&](std::uint32_t from, std::uint32_t to) {
      return SendLane{.from = from, .to = to, .steps = 0, .shards = shards, .shard = shard, .pieces = 0};
    };
    for (std::size_t i = n; goes_up && --i > 0;) {
      const std::uint32_t r = from_top[i];
      std::vector<Need> needs;
      for (const std::uint32_t c : children[r]) needs.push_back({up[c], 1});
      up[r] = add(lane(r, above[r]), needs);
    }
    for (std::size_t i = 1; i < n; ++i) {
      const std::uint32_t r = from_top[i], from = above[r];
      std::vector<Need> needs;
      if (from != from_top[0]) needs.push_back({down[from], 1});
      if (from == from_top[0] && goes_up)
        for (const std::uint32_t c : children[from]) needs.push_back({up[c], 1});
      down[r] = add(lane(from, r), needs);
    }
  }

  // Two trees over half the bytes each; a rank (or node) inside the one is a leaf of the other.
  void add_double_trees() {
    if (!group_.has_chains()) {
      add_tree(binary_tree(group_.rings[0]), 2, 0, true);
      add_tree(binary_tree(other_order(group_.rings[0])), 2, 1, true);
      return;
    }
    // Per ring: chains inside the nodes, to the first there; trees of these across.
    const auto rings = static_cast<std::uint32_t>(group_.rings.size());
    const std::uint32_t trees = group_.nodes.size() > 1 ? 2 : 1;
    for (std::uint32_t c = 0; c < rings; ++c) {
      std::vector<std::uint32_t> heads, chained(ranks(), kNone);
      const std::uint32_t* rank = group_.rings[c].data();
      for (const std::vector<std::uint32_t>& node : group_.nodes) {
        heads.push_back(*rank++);
        for (std::size_t i = 1; i < node.size(); ++i, ++rank) chained[*rank] = rank[-1];
      }
      for (std::uint32_t t = 0; t < trees; ++t) {
        std::vector<std::uint32_t> above = binary_tree(t == 0 ? heads : other_order(heads));
        for (std::uint32_t r = 0; r < ranks(); ++r)
          if (chained[r] != kNone) above[r] = chained[r];
        add_tree(above, rings * trees, c * trees + t, true);
      }
    }
  }

  void add_broadcast_tree(std::uint32_t root) {
    std::vector<std::uint32_t> order = group_.rings[0];
    std::rotate(order.begin(), std::find(order.begin(), order.end(), root), order.end());
    add_tree(binary_tree(order), 1, 0, false);
  }

  // Exchanges with partners at distances n/2 ... 1, of a half, a quarter ... of the bytes, and back. Ranks beyond the
  // largest power of two hand their data to a partner first and get the result last.
  void add_halving_doubling() {
    const std::uint32_t n = ranks(), core = std::bit_floor(n);
    std::vector<std::uint32_t> order;
    for (const std::vector<std::uint32_t>& node : group_.nodes) order.insert(order.end(), node.begin(), node.end());
    std::vector<std::uint32_t> into(core, kNone);  // the last lane into a place
    for (std::uint32_t p = core; p < n; ++p) into[p - core] = add({.from = order[p], .to = order[p - core]}, {});
    const auto exchange = [&](std::uint32_t distance, std::uint32_t pieces) {
      std::vector<std::uint32_t> next(core);
      for (std::uint32_t p = 0; p < core; ++p) {
        const std::uint32_t partner = p ^ distance;
        next[partner] = add({.from = order[p], .to = order[partner], .pieces = pieces},
                            into[p] == kNone ? std::vector<Need>{} : std::vector<Need>{{into[p], kWhole}});
      }
      into = next;
    };
    if (operation_ != Operation::all_gather)
      for (std::uint32_t d = core / 2, pieces = 2; d > 0; d /= 2, pieces *= 2) exchange(d, pieces);
    if (operation_ != Operation::reduce_scatter)
      for (std::uint32_t d = 1, pieces = core; d < core; d *= 2, pieces /= 2) exchange(d, pieces);
    for (std::uint32_t p = core; p < n; ++p)
      add({.from = order[p - core], .to = order[p]},
          into[p - core] == kNone ? std::vector<Need>{} : std::vector<Need>{{into[p - core], kWhole}});
  }

  // Inside the nodes each place gets the sum of its share, places of a kind add theirs up across the nodes (through a
  // switch where there is one that adds), and the shares are spread inside the nodes.
  void add_hierarchical(bool in_network) {
    const std::vector<std::vector<std::uint32_t>>& nodes = group_.nodes;
    const auto count = static_cast<std::uint32_t>(nodes.size()), local = static_cast<std::uint32_t>(nodes[0].size());
    const bool reduces = operation_ != Operation::all_gather, gathers = operation_ != Operation::reduce_scatter;
    std::vector<std::uint32_t> into(ranks(), kNone);  // the lane into a rank whose end it waits for
    const auto waits = [&](std::uint32_t rank) {
      return into[rank] == kNone ? std::vector<std::uint32_t>{} : std::vector{into[rank]};
    };
    const auto ring_inside = [&] {
      for (const std::vector<std::uint32_t>& node : nodes) {
        if (local == 1) break;
        std::vector<std::vector<std::uint32_t>> after(local);
        for (std::uint32_t i = 0; i < local; ++i) after[i] = waits(node[i]);
        const std::uint32_t first = add_ring(node, local - 1, 1, 0, after);
        for (std::uint32_t i = 0; i < local; ++i) into[node[(i + 1) % local]] = first + i;
      }
    };
    if (reduces) ring_inside();
    const std::vector<std::uint32_t> before = into;
    for (std::uint32_t place = 0; place < local && count > 1; ++place) {
      std::vector<std::uint32_t> rail;
      std::vector<std::vector<std::uint32_t>> after;
      for (const std::vector<std::uint32_t>& node : nodes) {
        rail.push_back(node[place]);
        after.push_back(waits(node[place]));
      }
      if (in_network) {
        std::vector<Need> needs;
        for (const std::vector<std::uint32_t>& lanes : after)
          for (const std::uint32_t lane : lanes) needs.push_back({lane, kWhole});
        const std::uint32_t lane = add_switch(group_.rail_reducers[place], place, local, needs);
        for (const std::uint32_t rank : rail) into[rank] = lane;
        continue;
      }
      const std::uint32_t steps = reduces && gathers ? 2 * (count - 1) : count - 1;
      const std::uint32_t first = add_ring(rail, steps, local, place, after);
      for (std::uint32_t i = 0; i < count; ++i) into[rail[(i + 1) % count]] = first + i;
    }
    if (gathers) ring_inside();
  }

  // What a switch does for the ranks below it: all legs at one rate.
  std::uint32_t add_switch(const Reducer& reducer, std::uint32_t place, std::uint32_t shards, std::vector<Need> needs) {
    const bool pulls = reducer.reduction.mode == ReductionMode::pull;
    std::vector<LinkId> links;
    if (operation_ != Operation::all_gather) links.insert(links.end(), reducer.up.begin(), reducer.up.end());
    if (operation_ != Operation::reduce_scatter) links.insert(links.end(), reducer.down.begin(), reducer.down.end());
    SendLane lane{.shards = shards, .shard = place, .reducer = place};
    if (operation_ == Operation::all_reduce && pulls)
      lane.again = shards > 1 ? static_cast<std::uint32_t>(group_.nodes.size()) : ranks();
    lane.path = paths_.network().add_path(std::move(links), reducer.latency_ns);
    return add(lane, std::move(needs));
  }

  // Two trees across the nodes on every rail, over a share each: the switch of a node adds up what its ranks have of
  // the share, the trees add up the nodes, and the switch gives the result to all in its node. All of it streams.
  void add_nvls_tree() {
    const auto local = static_cast<std::uint32_t>(group_.nodes[0].size()), shards = 2 * local;
    for (std::uint32_t place = 0; place < local; ++place) {
      std::vector<std::uint32_t> heads;  // by node
      for (const std::vector<std::uint32_t>& node : group_.nodes) heads.push_back(node[place]);
      for (std::uint32_t t = 0; t < 2; ++t) {
        const std::uint32_t shard = 2 * place + t;
        std::vector<std::uint32_t> sums(ranks(), kNone);  // per head: the lane of its switch
        for (std::uint32_t n = 0; n < heads.size(); ++n)
          sums[heads[n]] = add_switch_stream(n, place, shards, shard, true, {});
        const std::vector<std::uint32_t> order = t == 0 ? heads : other_order(heads);
        const std::vector<std::vector<Need>> results = add_tree_of_sums(order, sums, shards, shard);
        for (std::uint32_t n = 0; n < heads.size(); ++n)
          add_switch_stream(n, place, shards, shard, false, results[heads[n]]);
      }
    }
  }

  // What the switch of a node does for the rank at a place there: adds up for it, or gives to all what it has.
  std::uint32_t add_switch_stream(std::uint32_t node, std::uint32_t place, std::uint32_t shards, std::uint32_t shard,
                                  bool adds, std::vector<Need> needs) {
    const Reducer& reducer = group_.node_reducers[node];
    std::vector<LinkId> links;
    for (std::uint32_t i = 0; i < group_.nodes[node].size(); ++i)
      for (const LinkId up : paths_.router().route(group_.devices[group_.nodes[node][i]], reducer.vertex)) {
        if (adds || i == place) links.push_back(up);
        if (!adds || i == place) links.push_back(up ^ 1);
      }
    SendLane lane{.steps = 0, .shards = shards, .shard = shard, .pieces = 0, .reducer = node};
    lane.path = paths_.network().add_path(std::move(links), reducer.latency_ns);
    return add(lane, std::move(needs));
  }

  // A tree over `order` that adds up what `sums` bring; for each of its ranks what brings the result there.
  std::vector<std::vector<Need>> add_tree_of_sums(const std::vector<std::uint32_t>& order,
                                                  const std::vector<std::uint32_t>& sums, std::uint32_t shards,
                                                  std::uint32_t shard) {
    const std::vector<std::uint32_t> above = binary_tree(order);
    std::vector<std::vector<std::uint32_t>> children(ranks());
    for (const std::uint32_t r : order)
      if (above[r] != kNone) children[above[r]].push_back(r);
    std::vector<std::uint32_t> from_top{order[0]};
    for (std::size_t i = 0; i < from_top.size(); ++i)
      for (const std::uint32_t c : children[from_top[i]]) from_top.push_back(c);
    const auto stream = [&](std::uint32_t from, std::uint32_t to) {
      return SendLane{.from = from, .to = to, .steps = 0, .shards = shards, .shard = shard, .pieces = 0};
    };
    std::vector<std::vector<Need>> have(ranks());
    for (std::size_t i = from_top.size(); i-- > 0;) {
      const std::uint32_t r = from_top[i];
      have[r].push_back({sums[r], 1});
      if (above[r] != kNone) have[above[r]].push_back({add(stream(r, above[r]), have[r]), 1});
    }
    for (std::size_t i = 1; i < from_top.size(); ++i) {
      const std::uint32_t r = from_top[i];
      have[r] = {{add(stream(above[r], r), have[above[r]]), 1}};
    }
    return have;
  }

  // From each rank to each other, beginning with the next. Lanes go by the rank that receives, because routes to one
  // device are found together.
  void add_all_pairs() {
    const std::uint32_t n = ranks();
    std::vector<std::uint32_t> order;
    for (const std::vector<std::uint32_t>& node : group_.nodes) order.insert(order.end(), node.begin(), node.end());
    const auto lane = [n](std::uint32_t from, std::uint32_t distance) {
      return (from + distance) % n * (n - 1) + distance - 1;
    };
    for (std::uint32_t to = 0; to < n; ++to)
      for (std::uint32_t distance = 1; distance < n; ++distance) {
        const std::uint32_t from = (to + n - distance) % n;
        add({.from = order[from], .to = order[to], .pieces = n, .place = order[to]},
            distance <= kPeersAtOnce ? std::vector<Need>{}
                                     : std::vector<Need>{{lane(from, distance - kPeersAtOnce), kWhole}});
      }
  }

 private:
  Operation operation_;
};

}  // namespace

std::string_view cannot_run(const DeviceGroup& group, Operation operation, Algorithm algorithm) {
  if (operation == Operation::send_recv) return group.size() == 2 ? "" : "send and receive are between two devices";
  if (operation == Operation::all_to_all)
    return group.size() <= kMostPeers ? "" : "its messages are simulated one by one, among 2048 devices at most";
  switch (algorithm) {
    case Algorithm::automatic:
    case Algorithm::ring:
      return "";
    case Algorithm::tree:
      if (operation == Operation::broadcast && group.has_chains()) return "broadcast by a tree is for one switch";
      return operation == Operation::all_reduce || operation == Operation::broadcast
                 ? ""
                 : "trees are for all-reduce and broadcast";
    case Algorithm::halving_doubling:
      if (operation == Operation::broadcast) return "halving and doubling is not for broadcast";
      return operation == Operation::all_reduce || std::has_single_bit(group.size())
                 ? ""
                 : "halving and doubling alone needs a power of two of devices";
    case Algorithm::hierarchical:
      if (operation == Operation::broadcast) return "the hierarchical way is not for broadcast";
      return group.is_even() ? "" : "the nodes have different numbers of devices";
    case Algorithm::in_network:
      if (operation == Operation::broadcast) return "switches that add are not used for broadcast";
      return group.reducer || (!group.rail_reducers.empty() && operation == Operation::all_reduce)
                 ? ""
                 : "no switch that adds has a way of its own to each of them";
    case Algorithm::torus:
      if (operation == Operation::broadcast) return "the way through a torus is not for broadcast";
      return group.torus ? "" : "they are no torus, nor every k-th device along its dimensions";
    case Algorithm::nvls_tree:
      if (operation != Operation::all_reduce) return "trees above switches that add are for all-reduce";
      return !group.node_reducers.empty() ? "" : "it needs several nodes with rails and a switch that adds in each";
  }
  return "";
}

LaneTable make_lanes(const DeviceGroup& group, Paths& paths, Operation operation, Algorithm algorithm,
                     std::uint32_t root) {
  Builder builder(group, paths, operation);
  if (group.size() < 2) return builder.finish(algorithm);
  if (operation == Operation::send_recv) {
    builder.add({.from = 0, .to = 1}, {});
  } else if (operation == Operation::all_to_all) {
    builder.add_all_pairs();
  } else if (algorithm == Algorithm::tree) {
    operation == Operation::broadcast ? builder.add_broadcast_tree(root) : builder.add_double_trees();
  } else if (algorithm == Algorithm::halving_doubling) {
    builder.add_halving_doubling();
  } else if (algorithm == Algorithm::hierarchical) {
    builder.add_hierarchical(false);
  } else if (algorithm == Algorithm::torus) {
    add_torus_lanes(builder, operation);
  } else if (algorithm == Algorithm::nvls_tree) {
    builder.add_nvls_tree();
  } else if (algorithm == Algorithm::in_network && group.reducer) {
    builder.add_switch(*group.reducer, 0, 1, {});
  } else if (algorithm == Algorithm::in_network) {
    builder.add_hierarchical(true);
  } else if (operation == Operation::broadcast) {
    builder.add_chain(root);
  } else {
    builder.add_rings();
  }
  return builder.finish(algorithm);
}

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::all_reduce:
      return "all-reduce";
    case Operation::reduce_scatter:
      return "reduce-scatter";
    case Operation::all_gather:
      return "all-gather";
    case Operation::broadcast:
      return "broadcast";
    case Operation::send_recv:
      return "send-recv";
    case Operation::all_to_all:
      return "all-to-all";
  }
  return "";
}

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::automatic:
      return "auto";
    case Algorithm::ring:
      return "ring";
    case Algorithm::tree:
      return "tree";
    case Algorithm::halving_doubling:
      return "halving-doubling";
    case Algorithm::hierarchical:
      return "hierarchical";
    case Algorithm::in_network:
      return "in-network";
    case Algorithm::torus:
      return "torus";
    case Algorithm::nvls_tree:
      return "nvls-tree";
  }
  return "";
}

}  // namespace overtake
