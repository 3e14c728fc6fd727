// Pipelines of very unequal stages under memory caps: the search against branch and bound, and two-way layouts, with
// the sums of their gradients, against all orders there are. Times are worked out here once more, on their own.

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "pipeline_optimum.h"
#include "pipeline_problems.h"
#include "plan/pipeline/cut.h"
#include "plan/pipeline/search.h"

namespace overtake {
namespace {

// One stage takes several times as long as the others, another keeps several times as much.
PipelineProblem skewed(int i, std::mt19937& random) {
  const std::uint32_t devices = roll_count(random, 2, 3);
  PipelineProblem problem{.devices = devices, .micro_batches = roll_count(random, 2, 4), .blocks = {}};
  problem.blocks.resize(devices + (devices == 2 ? roll_count(random, 0, 2) : roll_count(random, 0, 1)));
  for (BlockCosts& c : problem.blocks)
    c = {roll(random, 1, 4), roll(random, 1, 4), roll(random, 1, 4), roll(random, 2, 4), roll(random, 1, 2), 0};
  BlockCosts& slow = problem.blocks[random() % problem.blocks.size()];
  slow.forward_ns *= roll(random, 2, 6);
  slow.input_grad_ns *= roll(random, 2, 6);
  slow.weight_grad_ns *= roll(random, 1, 6);
  BlockCosts& large = problem.blocks[random() % problem.blocks.size()];
  large.activation_bytes *= roll(random, 2, 4);
  large.gradient_bytes *= 2;
  problem.memory_cap = peak_bytes(times_of("1f1b", problem)) * (2 + i % 3) / 2;
  return problem;
}

// When all of a schedule is done, sums included; less than 0: never, or a device keeps more than it may.
std::int64_t worked_out(const PipelineProblem& problem, const PipelineLayout& layout, const ChunkOrders& orders) {
  using Block = std::tuple<int, std::uint32_t, std::uint32_t>;  // kind, chunk, micro-batch
  const std::vector<BlockCosts>& stages = problem.blocks;
  const auto costs = [&](std::uint32_t chunk) {
    BlockCosts sum;
    for (std::uint32_t s = layout.first_block[chunk]; s < layout.first_block[chunk + 1]; ++s) sum += stages[s];
    return sum;
  };
  for (const std::vector<ChunkTask>& order : orders) {
    std::int64_t live = 0;
    for (const ChunkTask& t : order) {
      const BlockCosts c = costs(t.chunk);
      if (t.kind == Kind::forward) live += c.activation_bytes;
      if (t.kind == Kind::input_grad) live += c.gradient_bytes - c.activation_bytes;
      if (t.kind == Kind::weight_grad) live -= c.gradient_bytes;
      if (problem.memory_cap && live > *problem.memory_cap) return -1;
    }
  }
  std::map<Block, std::int64_t> end;
  std::vector<std::size_t> next(orders.size(), 0);
  std::vector<std::int64_t> free(orders.size(), 0);
  std::map<std::uint32_t, std::int64_t> done;  // by chunk
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t d = 0; d < orders.size(); ++d) {
      while (next[d] < orders[d].size()) {
        const ChunkTask& t = orders[d][next[d]];
        std::vector<Block> before;
        if (t.kind == Kind::forward && t.chunk > 0) before.emplace_back(0, t.chunk - 1, t.micro_batch);
        if (t.kind == Kind::input_grad) before.emplace_back(0, t.chunk, t.micro_batch);
        if (t.kind == Kind::input_grad && t.chunk + 1 < layout.chunks())
          before.emplace_back(1, t.chunk + 1, t.micro_batch);
        if (t.kind == Kind::weight_grad) before.emplace_back(1, t.chunk, t.micro_batch);
        std::int64_t at = free[d];
        bool is_ready = true;
        for (const Block& b : before) {
          const auto known = end.find(b);
          is_ready = is_ready && known != end.end();
          if (is_ready) at = std::max(at, known->second);
        }
        if (!is_ready) break;
        free[d] = at + costs(t.chunk).ns(t.kind);
        end[{static_cast<int>(t.kind), t.chunk, t.micro_batch}] = free[d];
        if (t.kind == Kind::weight_grad) done[t.chunk] = std::max(done[t.chunk], free[d]);
        ++next[d];
        moves = true;
      }
    }
  }
  for (std::size_t d = 0; d < orders.size(); ++d)
    if (next[d] < orders[d].size()) return -1;
  std::int64_t last = std::ranges::max(free);
  if (layout.device_of.size() < 2 || problem.copy_sum_ns.empty()) return last;
  std::vector<std::pair<std::int64_t, std::uint32_t>> sums;
  for (const auto& [chunk, ns] : done) sums.emplace_back(ns, chunk);
  std::ranges::sort(sums);
  std::map<std::uint32_t, std::int64_t> busy;  // by device
  for (const auto& [ns, chunk] : sums) {
    const std::uint32_t a = layout.device_of[0][chunk], b = layout.device_of[1][chunk];
    if (a == b) continue;
    std::int64_t until = std::max({ns, busy[a], busy[b]});
    for (std::uint32_t s = layout.first_block[chunk]; s < layout.first_block[chunk + 1]; ++s)
      until += problem.copy_sum_ns[s];
    busy[a] = busy[b] = until;
    last = std::max(last, until);
  }
  return last;
}

// Every order of a device's blocks in which micro-batches pass in turn.
void all_orders(const PipelineLayout& layout, std::uint32_t device, std::uint32_t micro_batches,
                std::vector<std::vector<ChunkTask>>& out) {
  struct Slot {
    std::uint32_t chunk;
    std::vector<std::uint32_t> micro_batches;
    std::array<std::size_t, 3> count{};
  };
  std::vector<Slot> slots;
  std::size_t blocks = 0;
  for (std::size_t r = 0; r < layout.device_of.size(); ++r)
    for (std::uint32_t c = 0; c < layout.chunks(); ++c) {
      if (layout.device_of[r][c] != device) continue;
      slots.push_back({c, {}});
      for (std::uint32_t m = 0; m < micro_batches; ++m)
        if (layout.route(m) == r) slots.back().micro_batches.push_back(m);
      blocks += 3 * slots.back().micro_batches.size();
    }
  std::vector<ChunkTask> order;
  const auto extend = [&](const auto& self) -> void {
    if (order.size() == blocks) {
      out.push_back(order);
      return;
    }
    for (Slot& slot : slots)
      for (std::size_t kind = 0; kind < 3; ++kind) {
        const std::size_t n = slot.count[kind];
        if (n == slot.micro_batches.size() || (kind > 0 && slot.count[kind - 1] <= n)) continue;
        ++slot.count[kind];
        order.push_back({static_cast<Kind>(kind), false, slot.chunk, slot.micro_batches[n]});
        self(self);
        order.pop_back();
        --slot.count[kind];
      }
  };
  extend(extend);
}

TEST(PipelineSkewed, TheSearchFindsTheOptimumWithinTheCap) {
  constexpr int kProblems = 30;
  std::mt19937 random(11);
  for (int i = 0; i < kProblems; ++i) {
    SCOPED_TRACE(i);
    const PipelineProblem problem = skewed(i, random);
    const FoundSchedule found = search_schedule(problem, {.tries = 40'000});
    verify(problem, found.schedule);
    EXPECT_EQ(found.times.makespan_ns, worked_out(problem, found.schedule.layout, found.schedule.orders));
    PipelineOptimum optimum(problem);
    EXPECT_EQ(optimum.solve(found.times.makespan_ns), found.times.makespan_ns)
        << problem.devices << " devices, " << problem.blocks.size() << " stages, " << problem.micro_batches
        << " micro-batches";
  }
}

// With stages on two devices allowed: no slower than any order of one way or of two, of which the sums count.
TEST(PipelineSkewed, TwoWayIsWorthItsSumsOnly) {
  constexpr int kProblems = 30;
  std::mt19937 random(12);
  int two_way = 0, without_sums = 0, exact = 0;
  for (int i = 0; i < kProblems; ++i) {
    SCOPED_TRACE(i);
    PipelineProblem problem = skewed(i, random);
    problem.devices = 2;
    problem.micro_batches = roll_count(random, 2, 3);
    problem.blocks.resize(2);
    problem.memory_cap = peak_bytes(times_of("1f1b", problem)) * 3 / 2;
    for (std::size_t s = 0; s < problem.blocks.size(); ++s) problem.copy_sum_ns.push_back(roll(random, 0, 6));
    const ScheduleSearchOptions options{.tries = 20'000, .seed = 1, .may_repeat_weights = true};
    const FoundSchedule found = search_schedule(problem, options);
    verify(problem, found.schedule);
    EXPECT_EQ(found.times.makespan_ns, worked_out(problem, found.schedule.layout, found.schedule.orders));
    const PipelineLayout layout = two_way_layout(problem);
    std::vector<std::vector<ChunkTask>> first, second;
    all_orders(layout, 0, problem.micro_batches, first);
    all_orders(layout, 1, problem.micro_batches, second);
    PipelineOptimum one_way(problem);
    std::int64_t best = one_way.solve(std::int64_t{1} << 40);
    for (const std::vector<ChunkTask>& a : first)
      for (const std::vector<ChunkTask>& b : second)
        if (const std::int64_t ns = worked_out(problem, layout, {a, b}); ns >= 0) best = std::min(best, ns);
    const double ratio = static_cast<double>(found.times.makespan_ns) / static_cast<double>(best);
    EXPECT_LE(ratio, 1.05) << found.times.makespan_ns << " against " << best;
    exact += found.times.makespan_ns <= best ? 1 : 0;
    two_way += found.schedule.layout.device_of.size() > 1 ? 1 : 0;
    problem.copy_sum_ns.clear();
    const FoundSchedule free = search_schedule(problem, options);
    EXPECT_LE(free.times.makespan_ns, found.times.makespan_ns);
    without_sums += free.schedule.layout.device_of.size() > 1 ? 1 : 0;
  }
  EXPECT_GE(exact, kProblems - 1);
  EXPECT_LT(two_way, without_sums) << "sums make fewer of them worth it";
  std::printf("two-way layouts taken in %d of %d, without their sums in %d; %d as good as the best of all orders\n",
              two_way, kProblems, without_sums, exact);
}

}  // namespace
}  // namespace overtake
