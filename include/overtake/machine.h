#pragma once
// Machine: where steps run, as planning and the simulator see it: devices and their memories, the links between them,
// how transfers go over these, and what happens between two steps. A cluster that is only described, the processes of a
// job with the link that was measured between them, and parts of one GPU are three ways to get one.

#include <cstdint>
#include <string>
#include <vector>

#include "overtake/cluster.h"
#include "overtake/cluster_options.h"
#include "overtake/virtual_link.h"

namespace overtake {

// As if every rank had one link to a switch.
struct LinkTimes {
  std::int64_t latency_ns = 0;   // from rank to rank
  std::int64_t bytes_per_s = 0;  // that every rank sends while it gets as many
  double busy_cores = 0;         // of a rank, while it does so
};

struct Machine {
  enum class Kind : std::uint8_t {
    described,     // steps follow one another without a barrier
    ranks,         // a process each; they exchange a few bytes at the end of every step
    virtual_gpus,  // of one GPU; a step begins when all of the one before has ended
    one_lane       // one process does what all devices would, one after the other
  };
  Kind kind = Kind::one_lane;
  Cluster cluster = {};
  Topology topology = {};
  ClusterOptions options = {};
  std::vector<std::int64_t> memory = {};  // bytes of each device that a step may use, 0: any number; empty: all 0
  int steps = 1;                          // that are simulated in a row: the first may differ from those that follow
  std::string text = {};                  // for people: what was measured

  // Whether the order of work makes any difference.
  bool has_devices() const { return kind != Kind::one_lane; }
  std::int64_t memory_of(std::uint32_t device) const { return memory.empty() ? 0 : memory[device]; }
};

Machine described_machine(Cluster cluster);

// `shares` is how much of its `threads` cores each rank has for itself, 1 where nobody else is there.
Machine machine_of_ranks(const LinkTimes& link, const std::vector<double>& shares, unsigned threads);
Machine machine_of_virtual_gpus(std::uint32_t gpus, const VirtualLink& link);

}  // namespace overtake
