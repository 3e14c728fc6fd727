#pragma once
// A timeline as one page that needs nothing else: no network, no other files.

#include <string>
#include <string_view>
#include <vector>

#include "report/figures.h"
#include "report/trace_file.h"

namespace overtake {

std::string page_of(const TraceFile& traces, const std::vector<RunFigures>& figures);

// The fixed parts, from src/report/page/; the build puts them into the program.
extern const std::string_view kPageFrame, kPageStyle, kPageScript;

}  // namespace overtake
