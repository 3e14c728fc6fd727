#pragma once
// What others measured with nccl-tests.

#include "cli/validate/rows.h"

namespace overtake {

void add_nccl_sources(std::vector<PublishedSource>& sources);
void add_nccl_figures(std::vector<PublishedFigure>& figures);

}  // namespace overtake
