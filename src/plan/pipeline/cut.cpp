#include "plan/pipeline/cut.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace overtake {
namespace {

PipelineLayout one_route(std::vector<std::uint32_t> first_block, auto device_of_chunk) {
  PipelineLayout layout;
  layout.first_block = std::move(first_block);
  layout.device_of.resize(1);
  for (std::uint32_t c = 0; c < layout.chunks(); ++c) layout.device_of[0].push_back(device_of_chunk(c));
  return layout;
}

}  // namespace

std::vector<std::uint32_t> cut_blocks(std::span<const BlockCosts> stages, std::uint32_t parts) {
  const auto n = static_cast<std::uint32_t>(stages.size());
  if (parts == 0 || parts > n) fail_user("pipeline: cannot cut {} stages into {} chunks; use fewer chunks", n, parts);
  std::vector<std::int64_t> until(n + 1, 0);  // the time of stages before this one
  std::int64_t low = 0;
  for (std::uint32_t s = 0; s < n; ++s) {
    until[s + 1] = until[s] + stages[s].ns();
    low = std::max(low, stages[s].ns());
  }
  const auto fits = [&](std::int64_t most) {
    std::uint32_t chunks = 1;
    for (std::uint32_t first = 0, s = 0; s < n; ++s) {
      if (until[s + 1] - until[first] <= most) continue;
      first = s;
      ++chunks;
    }
    return chunks <= parts;
  };
  std::int64_t high = until[n];
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (fits(middle))
      high = middle;
    else
      low = middle + 1;
  }
  // The least sum of squares of chunk times among cuts with no chunk above `high`.
  const double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<std::uint32_t>> begin(parts + 1, std::vector<std::uint32_t>(n + 1, 0));
  std::vector<double> before(n + 1, never), sum;
  before[0] = 0;
  for (std::uint32_t k = 1; k <= parts; ++k, before.swap(sum)) {
    sum.assign(n + 1, never);
    for (std::uint32_t end = k; end <= n; ++end) {
      for (std::uint32_t first = end; first-- > k - 1 && until[end] - until[first] <= high;) {
        const auto ns = static_cast<double>(until[end] - until[first]);
        if (before[first] + ns * ns >= sum[end]) continue;
        sum[end] = before[first] + ns * ns;
        begin[k][end] = first;
      }
    }
  }
  std::vector<std::uint32_t> first_block(parts + 1, n);
  for (std::uint32_t k = parts; k > 0; --k) first_block[k - 1] = begin[k][first_block[k]];
  return first_block;
}

PipelineLayout interleaved_layout(const PipelineProblem& problem, std::uint32_t v) {
  return one_route(cut_blocks(problem.stages, v * problem.devices),
                   [&](std::uint32_t c) { return c % problem.devices; });
}

PipelineLayout v_layout(const PipelineProblem& problem) {
  const std::uint32_t p = problem.devices;
  return one_route(cut_blocks(problem.stages, 2 * p), [&](std::uint32_t c) { return std::min(c, 2 * p - 1 - c); });
}

PipelineLayout modulo_layout(const PipelineProblem& problem, std::uint32_t group) {
  std::vector<std::uint32_t> first_block;
  const auto n = static_cast<std::uint32_t>(problem.stages.size());
  for (std::uint32_t s = 0; s < n; s += group) first_block.push_back(s);
  first_block.push_back(n);
  return one_route(std::move(first_block), [&](std::uint32_t c) { return c % problem.devices; });
}

PipelineLayout two_way_layout(const PipelineProblem& problem) {
  PipelineLayout layout = contiguous_layout(problem);
  layout.device_of.push_back(layout.device_of[0]);
  std::ranges::reverse(layout.device_of[1]);
  for (std::uint32_t b = 0; b < problem.micro_batches; ++b) layout.route_of.push_back(b % 2);
  return layout;
}

std::vector<PipelineLayout> all_layouts(const PipelineProblem& problem, std::size_t most) {
  const std::size_t n = problem.stages.size();
  std::vector<std::uint32_t> device(n, 0);
  std::vector<PipelineLayout> layouts;
  while (true) {
    if (layouts.size() == most) return {};
    layouts.push_back(one_route(std::vector<std::uint32_t>(n + 1), [&](std::uint32_t c) { return device[c]; }));
    std::iota(layouts.back().first_block.begin(), layouts.back().first_block.end(), 0u);
    // The next one: a stage is on a device that an earlier one has, or on the first that none has.
    std::size_t s = n;
    while (--s > 0) {
      const std::uint32_t fresh =
          *std::max_element(device.begin(), device.begin() + static_cast<std::ptrdiff_t>(s)) + 1;
      if (device[s] < std::min(fresh, problem.devices - 1)) break;
      device[s] = 0;
    }
    if (s == 0) return layouts;
    ++device[s];
  }
}

}  // namespace overtake
