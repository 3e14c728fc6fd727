#include "plan/pipeline/copy_sums.h"

#include <algorithm>
#include <utility>

namespace overtake {

CopySums::CopySums(const PipelineProblem& problem, const PipelineLayout& layout) : busy_(problem.devices) {
  if (problem.copy_sum_ns.empty() || layout.device_of.size() < 2) return;
  for (std::uint32_t c = 0; c < layout.chunks(); ++c) {
    Sum sum{.chunk = c, .devices = {}};
    for (const std::vector<std::uint32_t>& devices : layout.device_of) sum.devices.push_back(devices[c]);
    std::ranges::sort(sum.devices);
    sum.devices.erase(std::ranges::unique(sum.devices).begin(), sum.devices.end());
    for (std::uint32_t s = layout.first_block[c]; s < layout.first_block[c + 1]; ++s) sum.ns += problem.copy_sum_ns[s];
    if (sum.devices.size() > 1 && sum.ns > 0) sums_.push_back(std::move(sum));
  }
}

std::int64_t CopySums::end(std::span<const std::int64_t> done_ns) {
  std::ranges::sort(sums_, {}, [&](const Sum& s) { return std::pair(done_ns[s.chunk], s.chunk); });
  std::ranges::fill(busy_, Busy{});
  waited_for_ = kNone;
  std::int64_t last = 0;
  for (const Sum& sum : sums_) {
    Busy now{done_ns[sum.chunk], sum.chunk};
    for (const std::uint32_t d : sum.devices)
      if (busy_[d].until_ns > now.until_ns) now = busy_[d];
    now.until_ns += sum.ns;
    for (const std::uint32_t d : sum.devices) busy_[d] = now;
    if (now.until_ns <= last) continue;
    last = now.until_ns;
    waited_for_ = now.chunk;
  }
  return last;
}

}  // namespace overtake
