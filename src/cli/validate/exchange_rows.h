#pragma once
// Published figures of all-to-alls, and of NVLink domains larger than a box.

#include <vector>

#include "cli/validate/rows.h"

namespace overtake {

std::vector<PublishedSource> exchange_sources();
void add_exchanges(std::vector<PublishedFigure>& all);

}  // namespace overtake
