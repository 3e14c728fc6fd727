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

// `chunks` chunks, cut for the devices they are on.
PipelineLayout cut_route(const PipelineProblem& problem, std::uint32_t chunks, auto device_of_chunk) {
  PipelineLayout layout;
  layout.device_of.resize(1);
  for (std::uint32_t c = 0; c < chunks; ++c) layout.device_of[0].push_back(device_of_chunk(c));
  layout.first_block = cut_blocks(problem, layout.device_of);
  return layout;
}

// Sums over the stages before each one, and over all.
std::vector<std::int64_t> sums_before(const std::vector<BlockCosts>& blocks, auto part) {
  std::vector<std::int64_t> sums{0};
  for (const BlockCosts& c : blocks) sums.push_back(sums.back() + part(c));
  return sums;
}

// The cut of n stages into chunks, none of them empty, that makes the largest measure(chunk, first, end) the least; of
// such cuts, the one with the least sum of squares. A chunk's measure never falls when it grows. `most` is as large as
// any measure.
std::vector<std::uint32_t> cut_by(std::uint32_t n, std::uint32_t parts, std::int64_t most, auto measure) {
  if (parts == 0 || parts > n) fail_user("pipeline: cannot cut {} stages into {} chunks; use fewer chunks", n, parts);
  // Whether chunks up to this measure can cover all stages. count[e]: how many of the numbers of stages below e the
  // chunks so far can cover.
  std::vector<std::uint32_t> count, next;
  const auto is_enough = [&](std::int64_t limit) {
    count.assign(n + 2, 1);
    count[0] = 0;
    for (std::uint32_t k = 0; k < parts; ++k, count.swap(next)) {
      next.assign(n + 2, 0);
      for (std::uint32_t first = 0, end = 1; end <= n; ++end) {
        while (first < end && measure(k, first, end) > limit) ++first;
        next[end + 1] = next[end] + (count[end] > count[first] ? 1 : 0);
      }
    }
    return count[n + 1] > count[n];
  };
  std::int64_t low = 0, high = most;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (is_enough(middle))
      high = middle;
    else
      low = middle + 1;
  }
  // The least sum of squares of chunks' measures among cuts with no chunk above `high`.
  const double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<std::uint32_t>> begin(parts + 1, std::vector<std::uint32_t>(n + 1, 0));
  std::vector<double> before(n + 1, never), sum;
  before[0] = 0;
  for (std::uint32_t k = 1; k <= parts; ++k, before.swap(sum)) {
    sum.assign(n + 1, never);
    for (std::uint32_t end = k; end <= n; ++end) {
      for (std::uint32_t first = end; first-- > k - 1;) {
        const std::int64_t size = measure(k - 1, first, end);
        if (size > high) break;
        const auto square = static_cast<double>(size) * static_cast<double>(size);
        if (before[first] + square >= sum[end]) continue;
        sum[end] = before[first] + square;
        begin[k][end] = first;
      }
    }
  }
  std::vector<std::uint32_t> first_block(parts + 1, n);
  for (std::uint32_t k = parts; k > 0; --k) first_block[k - 1] = begin[k][first_block[k]];
  return first_block;
}

}  // namespace

std::vector<std::uint32_t> cut_blocks(const PipelineProblem& problem,
                                      const std::vector<std::vector<std::uint32_t>>& device_of) {
  const auto ns = [](const BlockCosts& c) { return c.ns(); };
  std::vector<std::vector<std::int64_t>> until;  // by kind: the time of the stages before each
  for (const std::vector<BlockCosts>& blocks : problem.blocks_of_kind) until.push_back(sums_before(blocks, ns));
  if (problem.kind_of_device.empty()) until.assign(1, sums_before(problem.blocks, ns));
  const auto measure = [&](std::uint32_t chunk, std::uint32_t first, std::uint32_t end) {
    std::int64_t sum = 0;
    for (const std::vector<std::uint32_t>& devices : device_of) {
      const auto& times = until[problem.kind_of_device.empty() ? 0 : problem.kind_of_device[devices[chunk]]];
      sum += times[end] - times[first];
    }
    return sum;
  };
  std::int64_t most = 0;
  for (const std::vector<std::int64_t>& times : until) most = std::max(most, times.back());
  return cut_by(static_cast<std::uint32_t>(problem.blocks.size()), static_cast<std::uint32_t>(device_of[0].size()),
                most * static_cast<std::int64_t>(device_of.size()), measure);
}

PipelineLayout interleaved_layout(const PipelineProblem& problem, std::uint32_t v) {
  return cut_route(problem, v * problem.devices, [&](std::uint32_t c) { return c % problem.devices; });
}

PipelineLayout v_layout(const PipelineProblem& problem) {
  const std::uint32_t p = problem.devices;
  return cut_route(problem, 2 * p, [&](std::uint32_t c) { return std::min(c, 2 * p - 1 - c); });
}

PipelineLayout modulo_layout(const PipelineProblem& problem, std::uint32_t group) {
  std::vector<std::uint32_t> first_block;
  const auto n = static_cast<std::uint32_t>(problem.blocks.size());
  for (std::uint32_t s = 0; s < n; s += group) first_block.push_back(s);
  first_block.push_back(n);
  if (problem.kind_of_device.empty())
    return one_route(std::move(first_block), [&](std::uint32_t c) { return c % problem.devices; });
  std::vector<std::int64_t> busy(problem.devices, 0);
  return one_route(first_block, [&](std::uint32_t c) {
    std::vector<std::int64_t> done = busy;
    for (std::uint32_t d = 0; d < problem.devices; ++d)
      for (std::uint32_t s = first_block[c]; s < first_block[c + 1]; ++s) done[d] += problem.blocks_on(d)[s].ns();
    const auto first = static_cast<std::uint32_t>(std::ranges::min_element(done) - done.begin());
    busy[first] = done[first];
    return first;
  });
}

PipelineLayout layout_by_memory(const PipelineProblem& problem) {
  constexpr double kWhole = 1e9;  // a device's cap in the measure of chunks
  const auto weight = [](const BlockCosts& c) { return c.weight_bytes; };
  const auto activation = [](const BlockCosts& c) { return c.activation_bytes; };
  const auto gradient = [](const BlockCosts& c) { return c.gradient_bytes; };
  struct Sums {
    std::vector<std::int64_t> weights, activations, gradients;
  };
  std::vector<Sums> sums;
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const std::vector<BlockCosts>& blocks = problem.blocks_on(d);
    sums.push_back({sums_before(blocks, weight), sums_before(blocks, activation), sums_before(blocks, gradient)});
  }
  const auto measure = [&](std::uint32_t d, std::uint32_t first, std::uint32_t end) {
    const Sums& s = sums[d];
    const std::int64_t bytes =
        s.weights[end] - s.weights[first] +
        std::max(s.activations[end] - s.activations[first], s.gradients[end] - s.gradients[first]);
    const auto cap = static_cast<double>(std::max<std::int64_t>(1, problem.cap(d)));
    return static_cast<std::int64_t>(std::min(1e6, static_cast<double>(bytes) / cap) * kWhole);
  };
  return one_route(cut_by(static_cast<std::uint32_t>(problem.blocks.size()), problem.devices,
                          static_cast<std::int64_t>(1e6 * kWhole), measure),
                   [](std::uint32_t c) { return c; });
}

PipelineLayout two_way_layout(const PipelineProblem& problem) {
  PipelineLayout layout;
  layout.device_of.resize(2, std::vector<std::uint32_t>(problem.devices));
  std::iota(layout.device_of[0].begin(), layout.device_of[0].end(), 0u);
  std::ranges::reverse_copy(layout.device_of[0], layout.device_of[1].begin());
  layout.first_block = cut_blocks(problem, layout.device_of);
  for (std::uint32_t b = 0; b < problem.micro_batches; ++b) layout.route_of.push_back(b % 2);
  return layout;
}

std::vector<PipelineLayout> all_layouts(const PipelineProblem& problem, std::size_t most) {
  const std::size_t n = problem.blocks.size();
  std::vector<std::uint32_t> device(n, 0), stages_on(problem.devices, 0);
  std::vector<PipelineLayout> layouts;
  // A stage is on a device that an earlier one has, or on the first of those alike that none has.
  const auto may_use = [&](std::uint32_t d) {
    if (stages_on[d] > 0) return true;
    for (std::uint32_t other = 0; other < d; ++other)
      if (stages_on[other] == 0 && problem.are_alike(other, d)) return false;
    return true;
  };
  const auto place = [&](const auto& self, std::size_t s) -> bool {
    if (s == n) {
      if (layouts.size() == most) return false;
      layouts.push_back(one_route(std::vector<std::uint32_t>(n + 1), [&](std::uint32_t c) { return device[c]; }));
      std::iota(layouts.back().first_block.begin(), layouts.back().first_block.end(), 0u);
      return true;
    }
    for (std::uint32_t d = 0; d < problem.devices; ++d) {
      if (!may_use(d)) continue;
      device[s] = d;
      ++stages_on[d];
      const bool goes_on = self(self, s + 1);
      --stages_on[d];
      if (!goes_on) return false;
    }
    return true;
  };
  if (!place(place, 0)) layouts.clear();
  return layouts;
}

}  // namespace overtake
