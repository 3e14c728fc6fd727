#pragma once
// Networks that can be named on the command line.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "overtake/graph.h"

namespace overtake {

// The numbers a network is built with, those that were given. Which ones a network knows, and what they are when not
// given, is in its entry of the zoo.
class ModelSettings {
 public:
  ModelSettings() = default;
  explicit ModelSettings(std::map<std::string, double> given) : given_(std::move(given)) {}
  // "layers=6,width=512"; a user error if it reads otherwise. `norm` may be a word: batch (0) or group (32).
  static ModelSettings parse(const std::string& text);

  bool has(const std::string& name) const { return given_.contains(name); }
  const std::map<std::string, double>& all() const { return given_; }
  void set(const std::string& name, double value) { given_[name] = value; }

 private:
  std::map<std::string, double> given_;
};

class Settings;  // the same, complete: what each network's own function reads

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
