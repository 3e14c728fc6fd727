#include "cost/profile.h"

#include <algorithm>

namespace overtake {

std::vector<std::int64_t> median_times(const std::vector<Trace>& traces, std::size_t tasks) {
  std::vector<std::vector<std::int64_t>> samples(tasks);
  for (const Trace& trace : traces)
    for (const Span& s : trace.spans) samples[s.task].push_back(s.end_ns - s.begin_ns);
  std::vector<std::int64_t> medians(tasks, 0);
  for (std::size_t t = 0; t < tasks; ++t) {
    if (samples[t].empty()) continue;
    const auto middle = samples[t].begin() + static_cast<std::ptrdiff_t>(samples[t].size() / 2);
    std::nth_element(samples[t].begin(), middle, samples[t].end());
    medians[t] = *middle;
  }
  return medians;
}

}  // namespace overtake
