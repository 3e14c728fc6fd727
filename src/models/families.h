#pragma once
// The families of the zoo, each in its own file.

#include "models/zoo.h"

namespace overtake {

std::vector<ZooEntry> convnets();
std::vector<ZooEntry> sequence_models();

// Settings by name; the zoo has filled in the defaults.
using Settings = std::map<std::string, double>;
inline std::int64_t whole(const Settings& settings, const char* name) {
  return static_cast<std::int64_t>(settings.at(name));
}

}  // namespace overtake
