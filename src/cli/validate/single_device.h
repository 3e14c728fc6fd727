#pragma once
// Training steps of one GPU that were measured: ours on an H200, and those that others published.

#include <vector>

#include "cli/validate/rows.h"

namespace overtake {

std::vector<PublishedSource> single_device_sources();
std::vector<PublishedFigure> single_device_figures();

}  // namespace overtake
