#pragma once
// Where a plan over several devices is going to run, as the simulator sees it, and what it predicts.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/group.h"
#include "machine/virtual_link.h"
#include "plan/divide/outline.h"
#include "sim/cluster_simulator.h"
#include "train/measure_link.h"
#include "train/predicted_step.h"

namespace overtake {

struct Site {
  enum class Kind : std::uint8_t {
    ranks,         // a process each; they exchange a few bytes at the end of every step
    virtual_gpus,  // of one GPU; a step begins when all of the one before has ended
    one_lane       // one process does what all devices would, one after the other
  };
  Kind kind = Kind::one_lane;
  Cluster cluster = {};
  Topology topology = {};
  ClusterOptions options = {};
  std::string text = {};  // for people: what was measured

  // Whether the order of work makes any difference.
  bool has_devices() const { return kind != Kind::one_lane; }
};

// How much of its `threads` cores each rank has for itself, 1 where nobody else is there. By all ranks at once.
std::vector<double> core_shares(Group& world, unsigned threads);

// `shares` as above; ranks have `threads` cores each.
Site site_of_ranks(const LinkTimes& link, const std::vector<double>& shares, unsigned threads);
Site site_of_virtual_gpus(std::uint32_t gpus, const VirtualLink& link);

PredictedStep predict_step(const Outline& plan, const Site& site);

}  // namespace overtake
