#pragma once
// The shortest schedule of a small pipeline, by branch and bound over which block starts next, anywhere. Knows nothing
// of layouts with chunks, rules and searches: every stage is a block of its own, on any device, and takes what it takes
// there. Transfers take no time.

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "plan/pipeline/schedule.h"

namespace overtake {

class PipelineOptimum {
 public:
  explicit PipelineOptimum(const PipelineProblem& problem) : problem_(problem) {}

  // The least makespan below `limit`, over all ways to give stages to devices, or `limit`. Micro-batches are alike, so
  // they pass every stage in order without loss.
  std::int64_t solve(std::int64_t limit) {
    best_ = limit;
    device_.assign(problem_.blocks.size(), 0);
    place(0, 0);
    return best_;
  }
  std::uint64_t nodes() const { return nodes_; }

 private:
  struct Node {
    std::vector<std::uint32_t> count;  // by 3 * stage + kind: blocks started
    // When each device is free, when each queue's last block ends, and how late it is: no block starts before. What
    // lies before now counts as now.
    std::vector<std::int64_t> free, end;
    std::int64_t now = 0;
    std::vector<std::int64_t> live;
  };

  void place(std::uint32_t stage, std::uint32_t used) {
    if (stage == device_.size()) {
      Node root;
      root.count.assign(3 * device_.size(), 0);
      root.end.assign(3 * device_.size(), 0);
      root.free.assign(problem_.devices, 0);
      root.live.assign(problem_.devices, 0);
      seen_.clear();
      visit(root);
      return;
    }
    // Where devices are alike, the next unused one stands for all of them.
    const bool are_alike = problem_.kind_of_device.empty() && problem_.memory_caps.empty();
    for (std::uint32_t d = 0; d <= (are_alike ? std::min(used, problem_.devices - 1) : problem_.devices - 1); ++d) {
      device_[stage] = d;
      place(stage + 1, std::max(used, d + 1));
    }
  }

  const BlockCosts& costs(std::size_t stage) const {
    if (problem_.kind_of_device.empty()) return problem_.blocks[stage];
    return problem_.blocks_of_kind[problem_.kind_of_device[device_[stage]]][stage];
  }

  std::int64_t bound(const Node& n) const {
    std::int64_t most = 0, gradients = 0;
    std::vector<std::int64_t> work(problem_.devices);
    const std::size_t stages = device_.size();
    std::int64_t forwards = 0;  // of later stages
    for (std::size_t s = stages; s-- > 0;) forwards += costs(s).forward_ns;
    std::int64_t all_gradients = costs(0).weight_grad_ns;
    for (std::size_t s = 0; s < stages; ++s) all_gradients += costs(s).input_grad_ns;
    gradients = costs(0).weight_grad_ns;
    for (std::size_t s = 0; s < stages; ++s) {
      const BlockCosts& c = costs(s);
      forwards -= c.forward_ns;
      const auto left = [&](std::size_t kind) { return problem_.micro_batches - n.count[3 * s + kind]; };
      const std::uint32_t d = device_[s];
      work[d] += left(0) * c.forward_ns + left(1) * c.input_grad_ns + left(2) * c.weight_grad_ns;
      if (left(0) > 0) most = std::max(most, n.free[d] + left(0) * c.forward_ns + forwards + all_gradients);
      if (left(1) > 0) most = std::max(most, n.free[d] + left(1) * c.input_grad_ns + gradients);
      gradients += c.input_grad_ns;
    }
    for (std::uint32_t d = 0; d < problem_.devices; ++d) most = std::max(most, n.free[d] + work[d]);
    return most;
  }

  void visit(const Node& n) {
    ++nodes_;
    if (bound(n) >= best_) return;
    if (std::ranges::all_of(n.count, [&](std::uint32_t c) { return c == problem_.micro_batches; })) {
      best_ = std::ranges::max(n.free);
      return;
    }
    if (is_seen(n)) return;
    std::vector<std::pair<std::int64_t, std::size_t>> starts;
    for (std::size_t q = 0; q < n.count.size(); ++q)
      if (const std::int64_t at = start(n, q); at >= 0) starts.emplace_back(at, q);
    std::ranges::sort(starts);
    for (const auto& [at, q] : starts) {
      Node next = n;
      const std::uint32_t d = device_[q / 3];
      ++next.count[q];
      next.live[d] += more(q);
      next.now = at;
      next.free[d] = next.end[q] = at + costs(q / 3).ns(static_cast<Kind>(q % 3));
      for (std::int64_t& ns : next.free) ns = std::max(ns, at);
      for (std::int64_t& ns : next.end) ns = std::max(ns, at);
      visit(next);
    }
  }

  std::int64_t more(std::size_t q) const {
    const BlockCosts& c = costs(q / 3);
    return q % 3 == 0 ? c.activation_bytes : q % 3 == 1 ? c.gradient_bytes - c.activation_bytes : -c.gradient_bytes;
  }

  // When the queue's next block could start; less than 0: not yet known, or no memory for it.
  std::int64_t start(const Node& n, std::size_t q) const {
    const std::uint32_t d = device_[q / 3];
    const std::uint32_t b = n.count[q];
    if (b == problem_.micro_batches) return -1;
    const std::int64_t cap =
        !problem_.memory_caps.empty() ? problem_.memory_caps[d] : problem_.memory_cap.value_or(INT64_MAX);
    if (more(q) > 0 && n.live[d] + more(q) > cap) return -1;
    std::int64_t at = n.free[d];
    const auto wait = [&](std::size_t other) {
      if (n.count[other] <= b) return false;
      // All but the last block of a queue have ended before now.
      if (n.count[other] == b + 1) at = std::max(at, n.end[other]);
      return true;
    };
    bool is_known = true;
    if (q % 3 != 0) is_known = wait(q - 1);
    if (q % 3 == 0 && q > 0) is_known = wait(q - 3);
    if (q % 3 == 1 && q + 2 < n.count.size()) is_known = is_known && wait(q + 3);
    return is_known ? at : -1;
  }

  // Whether the same blocks had started before with nothing later than here.
  bool is_seen(const Node& n) {
    std::vector<std::int64_t> times = n.free;
    times.insert(times.end(), n.end.begin(), n.end.end());
    times.push_back(n.now);
    auto& known = seen_[n.count];
    const auto no_later = [](const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
      return std::ranges::equal(a, b, std::less_equal());
    };
    for (const auto& other : known)
      if (no_later(other, times)) return true;
    std::erase_if(known, [&](const auto& other) { return no_later(times, other); });
    known.push_back(std::move(times));
    return false;
  }

  const PipelineProblem& problem_;
  std::vector<std::uint32_t> device_;  // by stage
  std::int64_t best_ = 0;
  std::uint64_t nodes_ = 0;
  std::map<std::vector<std::uint32_t>, std::vector<std::vector<std::int64_t>>> seen_;
};

}  // namespace overtake
