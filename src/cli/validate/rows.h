#pragma once
// Published figures, each with its source and the simulation that makes ours.

#include <functional>
#include <string>
#include <vector>

#include "cli/validate/runs.h"
#include "report/comparison.h"

namespace overtake {

struct PublishedFigure {
  std::string source;  // short; published_sources() has the rest
  std::string what, unit;
  double low = 0, high = 0;  // equal: one value
  std::function<double(Laboratory&)> simulate;
  std::string note = {};  // where it does not fit: why, as far as we found out
};

std::vector<PublishedSource> published_sources();
std::vector<PublishedFigure> published_figures();

}  // namespace overtake
