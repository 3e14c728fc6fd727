#pragma once
// Networks that can be named on the command line.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/settings.h"

namespace overtake {

struct ZooEntry {
  std::string name = {};
  std::string family = {};                      // "images" or "language"
  std::string what = {};                        // one line for people
  std::map<std::string, double> defaults = {};  // every setting it knows; "batch" among them
  std::string data = {};                        // what trains it out of the box
  Graph (*build)(const Settings& settings) = nullptr;
};

// Families together, small ones first.
const std::vector<ZooEntry>& zoo();

// A user error for an unknown network (lists the known) or setting (lists those it has).
Graph build_model(const std::string& name, const ModelSettings& settings);

// Numbers for tables.
struct ModelFigures {
  std::int64_t parameters = 0;
  double forward_flops = 0;     // per sample
  double activation_bytes = 0;  // per sample, kept by the forward pass
};
ModelFigures figures_of(const Graph& forward);

}  // namespace overtake
