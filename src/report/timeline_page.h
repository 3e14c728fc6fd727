#pragma once
// A timeline as one page; its form of the data is read by src/report/page/timeline/data.js.

#include <string>
#include <vector>

#include "report/figures.h"
#include "report/trace_file.h"

namespace overtake {

std::string timeline_page(const TraceFile& traces, const std::vector<RunFigures>& figures);

}  // namespace overtake
