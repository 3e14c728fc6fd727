#pragma once
// Machine: where steps run, as planning and the simulator see it: devices and their memories, what tasks take there and
// what their kernels want, the links between devices, how transfers go over these, and what happens between two steps.
// A cluster that is only described, the processes of a job with the link that was measured between them, and parts of
// one GPU are three ways to get one.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "overtake/cluster.h"
#include "overtake/cluster_options.h"
#include "overtake/cost_model.h"
#include "overtake/target.h"
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
  // That are simulated in a row, as the first may differ from those that follow; 0: four, or one of very many tasks.
  int steps = 1;
  // Of a described machine: of replicas that do the same at the same time on alike nodes, only those of the first nodes
  // are simulated, with collectives that take what they take among all (docs/simulation.md). What is predicted per
  // device is then of these devices.
  bool folds_replicas = false;
  std::string text = {};       // for people: what was measured
  std::size_t most_lanes = 1;  // of a device, that can run at the same time
  // What tasks take. None: nothing is known, and nothing is predicted.
  std::shared_ptr<const CostModel> costs = {};
  // What the kernels of all its devices want: those of GPUs or of CPUs, and exactly.
  DeviceTarget kernels = DeviceTarget::cpu;
  std::shared_ptr<const Target> target = {};

  // For people: "dgx-h100", "this machine".
  std::string name() const { return kind == Kind::one_lane ? "this machine" : cluster.name; }
  // Whether the order of work makes any difference.
  bool has_devices() const { return kind != Kind::one_lane; }
  std::int64_t memory_of(std::uint32_t device) const { return memory.empty() ? 0 : memory[device]; }
};

// Costs are computed from rates, or come from the profiles that the cluster names; with `tf32`, float32 products run at
// the tf32 rate. The target is left to whoever knows the kernels (exec/described_target.h).
Machine described_machine(Cluster cluster, bool tf32 = false);

// The same with another network: its links and what a protocol costs, or no time at all.
void set_network(Machine& machine, NetworkKind network);

// The kinds of these devices in ascending order, each with how many of them there are; a machine without a cluster has
// devices of kind 0 only.
struct KindCount {
  std::uint32_t kind = 0;
  std::int64_t devices = 0;
};
std::vector<KindCount> kinds_of(const Machine& machine, const std::vector<std::uint32_t>& devices);

// All but the cost model and the target, as text and back. The same machine has the same text.
std::string save_json(const Machine& machine);
Machine load_machine_json(std::string_view text);

// `shares` is how much of its `threads` cores each rank has for itself, 1 where nobody else is there.
Machine machine_of_ranks(const LinkTimes& link, const std::vector<double>& shares, unsigned threads);
Machine machine_of_virtual_gpus(std::uint32_t gpus, const VirtualLink& link);

}  // namespace overtake
