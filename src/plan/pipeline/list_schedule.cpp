#include "plan/pipeline/list_schedule.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {
namespace {

constexpr std::uint32_t kForward = 0, kInput = 1, kWeight = 2;

// What the start of a forward, or the end of a gradient, adds to what is kept.
std::int64_t change(const BlockCosts& costs, std::uint32_t kind) {
  if (kind == kForward) return costs.activation_bytes;
  return kind == kInput ? costs.gradient_bytes - costs.activation_bytes : -costs.gradient_bytes;
}

}  // namespace

ListScheduler::ListScheduler(const PipelineProblem& problem, const PipelineLayout& layout)
    : problem_(&problem),
      layout_(layout),
      micro_batches_(layout.device_of.size()),
      slots_of_(problem.devices),
      most_need_(problem.devices),
      sums_(problem, layout) {
  for (std::uint32_t b = 0; b < problem.micro_batches; ++b) micro_batches_[layout.route(b)].push_back(b);
  const std::vector<BlockCosts> costs = chunk_costs(problem, layout);
  for (std::uint32_t r = 0; r < layout.device_of.size(); ++r) {
    std::vector<std::int64_t> needs(problem.devices);
    for (std::uint32_t c = 0; c < layout.chunks(); ++c) {
      const std::uint32_t d = layout.device_of[r][c];
      const BlockCosts& own = costs[std::size_t{r} * layout.chunks() + c];
      const std::int64_t need = std::max(own.activation_bytes, own.gradient_bytes);
      needs[d] += need;
      slots_of_[d].push_back(static_cast<std::uint32_t>(slots_.size()));
      slots_.push_back({r, c, d, own, need});
      ends_.insert(ends_.end(), 3, std::vector<std::int64_t>(micro_batches_[r].size()));
    }
    for (std::uint32_t d = 0; d < problem.devices; ++d) most_need_[d] = std::max(most_need_[d], needs[d]);
  }
}

std::int64_t ListScheduler::ready(std::uint32_t queue) const {
  const Slot& slot = slots_[queue / 3];
  const std::uint32_t n = count_[queue];
  if (n == ends_[queue].size()) return kNever;
  // When block n of another queue is there.
  const auto after = [&](std::uint32_t other) {
    if (count_[other] <= n) return kNever;
    return ends_[other][n] + problem_->transfer(slots_[other / 3].device, slot.device);
  };
  if (queue % 3 == kForward) return slot.chunk == 0 ? 0 : after(queue - 3);
  if (queue % 3 == kWeight) return after(queue - 1);
  const std::int64_t own = after(queue - 1);
  return slot.chunk + 1 == layout_.chunks() ? own : std::max(own, after(queue + 3));
}

ListScheduler::Claim ListScheduler::claim(std::uint32_t device, std::uint32_t route, std::uint32_t n,
                                          std::uint32_t queue) const {
  Claim claim;
  for (const std::uint32_t s : slots_of_[device]) {
    if (slots_[s].route != route) continue;
    const auto has_run = [&](std::uint32_t kind) {
      const std::uint32_t q = s * 3 + kind;
      return n < count_[q] || (q == queue && n == count_[q]);
    };
    if (has_run(kWeight)) continue;
    if (has_run(kInput)) {
      claim.held += slots_[s].costs.gradient_bytes;
      continue;
    }
    const std::int64_t now = has_run(kForward) ? slots_[s].costs.activation_bytes : 0;
    claim.held += now;
    claim.need += slots_[s].need - now;
  }
  return claim;
}

// Whether the device could, after this block, still finish its micro-batches one after the other, the oldest first.
bool ListScheduler::has_room(std::uint32_t queue, const ListRule& rule) const {
  if (rule.caps.empty()) return true;
  const std::uint32_t device = slots_[queue / 3].device;
  const std::int64_t more = change(slots_[queue / 3].costs, queue % 3);
  if (more <= 0) return true;
  std::int64_t left = rule.caps[device] - live_[device] - more;
  if (left < 0) return false;
  std::uint32_t n = UINT32_MAX;
  for (const std::uint32_t s : slots_of_[device]) n = std::min(n, count_[s * 3 + kWeight]);
  for (; left < most_need_[device]; ++n) {
    bool is_any = false;
    for (std::uint32_t r = 0; r < micro_batches_.size(); ++r) {
      if (n >= micro_batches_[r].size()) continue;
      is_any = true;
      const Claim c = claim(device, r, n, queue);
      if (c.need > left) return false;
      left += c.held;
    }
    if (!is_any) break;
  }
  return true;
}

void ListScheduler::decide(std::uint32_t device, const ListRule& rule, ChunkOrders& orders) {
  const std::int64_t now = look_at_[device];
  constexpr std::uint32_t kNoQueue = UINT32_MAX;
  std::uint32_t best = kNoQueue;
  std::int64_t next = kNever;  // when something else comes
  for (const std::uint32_t s : slots_of_[device]) {
    for (std::uint32_t q = s * 3; q < s * 3 + 3; ++q) {
      const std::int64_t at = ready(q);
      if (at == kNever || (at <= now && best != kNoQueue && rule.rank[q] >= rule.rank[best])) continue;
      if (!has_room(q, rule)) continue;
      if (at <= now)
        best = q;
      else
        next = std::min(next, at);
    }
  }
  look_at_[device] = next;
  if (best == kNoQueue) return;
  if (rule.patience > 0 && next != kNever) {
    const auto ns = static_cast<double>(slots_[best / 3].costs.ns(static_cast<Kind>(best % 3)));
    const auto until = now + static_cast<std::int64_t>(rule.patience * ns);
    for (const std::uint32_t s : slots_of_[device])
      for (std::uint32_t q = s * 3; q < s * 3 + 3; ++q)
        if (rule.rank[q] < rule.rank[best])
          if (const std::int64_t at = ready(q); at > now && at <= until && has_room(q, rule)) return;
  }
  start(best, now, orders);
}

void ListScheduler::start(std::uint32_t queue, std::int64_t now, ChunkOrders& orders) {
  const Slot& slot = slots_[queue / 3];
  const std::uint32_t kind = queue % 3, n = count_[queue]++;
  orders[slot.device].push_back({.kind = static_cast<Kind>(kind),
                                 .is_joined = false,
                                 .chunk = slot.chunk,
                                 .micro_batch = micro_batches_[slot.route][n]});
  const std::int64_t end = now + slot.costs.ns(static_cast<Kind>(kind));
  ends_[queue][n] = free_at_[slot.device] = look_at_[slot.device] = end;
  live_[slot.device] += change(slot.costs, kind);
  // Who may have waited for it.
  if (kind == kWeight || slot.chunk == (kind == kForward ? layout_.chunks() - 1 : 0)) return;
  const std::uint32_t other = slots_[kind == kForward ? queue / 3 + 1 : queue / 3 - 1].device;
  if (other == slot.device) return;
  look_at_[other] = std::min(look_at_[other], std::max(free_at_[other], end + problem_->transfer(slot.device, other)));
}

std::int64_t ListScheduler::run(const ListRule& rule, ChunkOrders& orders) {
  const std::size_t devices = slots_of_.size();
  for (std::uint32_t d = 0; !rule.caps.empty() && d < devices; ++d)
    OVERTAKE_CHECK(rule.caps[d] >= most_need_[d], "device {} cannot keep one micro-batch", d);
  count_.assign(slots_.size() * 3, 0);
  free_at_.assign(devices, 0);
  look_at_.assign(devices, 0);
  live_.assign(devices, 0);
  orders.resize(devices);
  for (std::vector<ChunkTask>& order : orders) order.clear();
  while (true) {
    const auto first = std::ranges::min_element(look_at_);
    if (*first == kNever) break;
    decide(static_cast<std::uint32_t>(first - look_at_.begin()), rule, orders);
  }
  for (std::uint32_t q = 0; q < count_.size(); ++q)
    OVERTAKE_CHECK(count_[q] == ends_[q].size(), "a list schedule is stuck");
  const std::int64_t computed = *std::ranges::max_element(free_at_);
  if (sums_.is_empty()) return computed;
  std::vector<std::int64_t> done(layout_.chunks(), 0);
  for (std::uint32_t s = 0; s < slots_.size(); ++s)
    if (const auto& ends = ends_[s * 3 + kWeight]; !ends.empty())
      done[slots_[s].chunk] = std::max(done[slots_[s].chunk], ends.back());
  return std::max(computed, sums_.end(done));
}

}  // namespace overtake
