// Times and memory of pipeline schedules against a slow reference; cuts; errors.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "pipeline_problems.h"
#include "plan/pipeline/cut.h"

namespace overtake {
namespace {

PipelineProblem at_random(std::mt19937& random) {
  PipelineProblem problem{
      .devices = roll_count(random, 1, 8), .micro_batches = roll_count(random, 1, 24), .blocks = {}};
  problem.transfer_ns = roll(random, 0, 30);
  problem.blocks.resize(problem.devices * roll_count(random, 1, 4) + roll_count(random, 0, 2));
  for (BlockCosts& c : problem.blocks)
    c = {roll(random, 1, 99), roll(random, 1, 99), roll(random, 0, 99),
         roll(random, 0, 99), roll(random, 0, 50), roll(random, 0, 99)};
  return problem;
}

// The same with two kinds of devices, a time for every link, and sizes that also differ by kind.
PipelineProblem with_unequal_devices(PipelineProblem problem, std::mt19937& random) {
  problem.blocks_of_kind.resize(2, std::vector<BlockCosts>(problem.blocks.size()));
  for (std::vector<BlockCosts>& blocks : problem.blocks_of_kind)
    for (BlockCosts& c : blocks)
      c = {roll(random, 1, 99), roll(random, 1, 99), roll(random, 0, 99),
           roll(random, 0, 99), roll(random, 0, 50), roll(random, 0, 99)};
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    problem.kind_of_device.push_back(roll_count(random, 0, 1));
    problem.link_ns.emplace_back();
    for (std::uint32_t to = 0; to < problem.devices; ++to) problem.link_ns[d].push_back(roll(random, 0, 50));
  }
  return problem;
}

// Longest paths by going over all blocks until nothing changes; memory by looking at every block's start.
struct Reference {
  std::vector<std::int64_t> start, end;
  std::vector<std::int64_t> peak;
};
Reference reference(const PipelineProblem& problem, const PipelineSchedule& schedule) {
  const PipelineLayout& layout = schedule.layout;
  const std::size_t chunks = layout.first_block.size() - 1;
  // A chunk's costs for a micro-batch, where that one runs it.
  const auto costs_of = [&](std::size_t chunk, std::size_t micro_batch) {
    const std::uint32_t d = layout.device_of[layout.route_of.empty() ? 0 : layout.route_of[micro_batch]][chunk];
    BlockCosts sum;
    for (std::uint32_t s = layout.first_block[chunk]; s < layout.first_block[chunk + 1]; ++s)
      sum += problem.kind_of_device.empty() ? problem.blocks[s] : problem.blocks_of_kind[problem.kind_of_device[d]][s];
    return sum;
  };
  const std::size_t blocks = chunks * 3 * problem.micro_batches;
  Reference r{std::vector<std::int64_t>(blocks), std::vector<std::int64_t>(blocks), {}};
  struct Edge {
    std::uint32_t from, to;
    std::int64_t ns;
  };
  std::vector<Edge> edges;
  std::vector<std::int64_t> length(blocks);
  // A block's task: from its first block to its last.
  std::vector<std::uint32_t> first(blocks), last(blocks);
  for (const std::vector<ChunkTask>& order : schedule.orders) {
    for (std::size_t i = 0, end = 0; i < order.size(); i = end) {
      while (order[end++].is_joined) continue;
      for (std::size_t j = i; j < end; ++j) {
        const std::uint32_t id = block_id(problem, order[j]);
        first[id] = block_id(problem, order[i]);
        last[id] = block_id(problem, order[end - 1]);
        length[id] = costs_of(order[j].chunk, order[j].micro_batch).ns(order[j].kind);
        if (j > 0) edges.push_back({block_id(problem, order[j - 1]), id, 0});
      }
    }
  }
  for (std::uint32_t b = 0; b < problem.micro_batches; ++b) {
    const auto id = [&](Kind kind, std::uint32_t c) { return block_id(problem, kind, c, b); };
    for (std::uint32_t c = 0; c + 1 < chunks; ++c) {
      const auto& devices = layout.device_of[layout.route(b)];
      const auto link = [&](std::uint32_t from, std::uint32_t to) {
        if (from == to) return std::int64_t{0};
        return problem.link_ns.empty() ? problem.transfer_ns : problem.link_ns[from][to];
      };
      edges.push_back({last[id(Kind::forward, c)], first[id(Kind::forward, c + 1)], link(devices[c], devices[c + 1])});
      edges.push_back(
          {last[id(Kind::input_grad, c + 1)], first[id(Kind::input_grad, c)], link(devices[c + 1], devices[c])});
    }
  }
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (const Edge& e : edges) {
      const std::int64_t at = r.start[e.from] + length[e.from] + e.ns;
      if (at <= r.start[e.to]) continue;
      r.start[e.to] = at;
      is_changed = true;
    }
  }
  for (std::size_t i = 0; i < blocks; ++i) r.end[i] = r.start[i] + length[i];
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    std::int64_t peak = 0;
    for (std::size_t now = 0; now < schedule.orders[d].size(); ++now) {
      // After this block: what lies before it in the order has run.
      std::vector<std::array<bool, 3>> has_run(chunks * problem.micro_batches);
      for (std::size_t i = 0; i <= now; ++i) {
        const ChunkTask& b = schedule.orders[d][i];
        has_run[b.chunk * problem.micro_batches + b.micro_batch][static_cast<std::size_t>(b.kind)] = true;
      }
      std::int64_t live = 0;
      for (std::size_t i = 0; i < has_run.size(); ++i) {
        const BlockCosts c = costs_of(i / problem.micro_batches, i % problem.micro_batches);
        if (has_run[i][0] && !has_run[i][1]) live += c.activation_bytes;
        if (has_run[i][1] && !has_run[i][2]) live += c.gradient_bytes;
      }
      peak = std::max(peak, live);
    }
    r.peak.push_back(peak);
  }
  return r;
}

TEST(PipelineTimes, EqualASlowReference) {
  std::mt19937 random(5);
  int compared = 0;
  for (int i = 0; i < 120; ++i) {
    PipelineProblem problem = at_random(random);
    if (i >= 60) problem = with_unequal_devices(std::move(problem), random);
    for (const NamedSchedule& named : named_schedules()) {
      SCOPED_TRACE(testing::Message() << i << " " << named.name);
      PipelineSchedule schedule;
      try {
        schedule = make_schedule(named.name, problem);
      } catch (const UserError&) {
        continue;
      }
      ++compared;
      verify(problem, schedule);
      const PipelineTimes times = evaluate(problem, schedule);
      const Reference expected = reference(problem, schedule);
      ASSERT_EQ(times.start_ns, expected.start);
      ASSERT_EQ(times.end_ns, expected.end);
      EXPECT_EQ(times.makespan_ns, std::ranges::max(expected.end));
      std::int64_t chain = 0, busy = 0;
      for (const BlockCosts& c : chunk_costs(problem, schedule.layout)) chain += c.forward_ns + c.input_grad_ns;
      chain /= static_cast<std::int64_t>(schedule.layout.device_of.size());
      for (std::uint32_t d = 0; d < problem.devices; ++d) {
        EXPECT_EQ(times.devices[d].peak_activation_bytes, expected.peak[d]);
        EXPECT_EQ(times.devices[d].bubble_ns + times.devices[d].busy_ns, times.makespan_ns);
        busy += times.devices[d].busy_ns;
        EXPECT_GE(times.makespan_ns, times.devices[d].busy_ns);
      }
      EXPECT_GE(times.makespan_ns, chain);
      std::int64_t all = 0;
      for (const BlockCosts& c : problem.blocks) all += c.ns();
      if (problem.kind_of_device.empty()) {
        EXPECT_EQ(busy, all * problem.micro_batches);
      }
    }
  }
  EXPECT_GT(compared, 700);
}

TEST(PipelineTimes, TransfersAreBetweenDevices) {
  PipelineProblem problem = alike(4, 6, {2, 3, 4}, 2);
  problem.transfer_ns = 7;
  // Six of them on the way of the last micro-batch; none between the two stages of a chunk.
  EXPECT_EQ(times_of("gpipe", problem).makespan_ns, (6 + 4 - 1) * 2 * 9 + 2 * 3 * 7);
}

TEST(PipelineTimes, SaysWhoWaitsForEver) {
  const PipelineProblem problem = alike(2, 2, {1, 1, 1});
  PipelineSchedule schedule = make_schedule("gpipe", problem);
  // The first device wants to go backward before it has been forward with the second micro-batch, the second device
  // not.
  const auto first_backward = schedule.orders[0].begin() + 2;
  std::rotate(schedule.orders[0].begin() + 1, first_backward, first_backward + 2);
  const PipelineTimes times = evaluate(problem, schedule);
  EXPECT_TRUE(times.is_stuck);
  EXPECT_NE(times.why_stuck.find("device 0 waits for ever to run input_grad of micro-batch 0 in chunk 0; "
                                 "device 1 waits for ever to run forward of micro-batch 1 in chunk 1"),
            std::string::npos)
      << times.why_stuck;
  EXPECT_THROW(verify(problem, schedule), InternalError);
}

TEST(PipelineTimes, VerifyFindsWhatIsWrong) {
  const PipelineProblem problem = alike(2, 3, {1, 1, 1});
  const PipelineSchedule good = make_schedule("zb-h1", problem);
  EXPECT_NO_THROW(verify(problem, good));
  const auto expect_wrong = [&](auto change) {
    PipelineSchedule schedule = good;
    change(schedule);
    EXPECT_THROW(verify(problem, schedule), InternalError);
  };
  expect_wrong([](PipelineSchedule& s) { s.orders[0].pop_back(); });
  expect_wrong([](PipelineSchedule& s) { s.orders[0].push_back(s.orders[0].back()); });
  expect_wrong([](PipelineSchedule& s) { std::swap(s.orders[0], s.orders[1]); });
  expect_wrong([](PipelineSchedule& s) { s.orders[1].back().is_joined = true; });
  expect_wrong([](PipelineSchedule& s) { s.orders[0][0].micro_batch = 3; });
  expect_wrong([](PipelineSchedule& s) { s.layout.first_block[1] = 0; });
  expect_wrong([](PipelineSchedule& s) { s.layout.device_of[0][1] = 2; });
}

TEST(PipelineCut, IsTheBestOfAllCuts) {
  std::mt19937 random(9);
  for (int i = 0; i < 300; ++i) {
    const std::uint32_t n = roll_count(random, 1, 10), parts = roll_count(random, 1, n);
    std::vector<BlockCosts> stages(n);
    for (BlockCosts& c : stages) c.forward_ns = roll(random, 0, 19);
    const PipelineProblem problem{.devices = parts, .micro_batches = 1, .blocks = stages};
    std::int64_t best = INT64_MAX;
    for (std::uint32_t mask = 0; mask < 1u << (n - 1); ++mask) {
      if (static_cast<std::uint32_t>(std::popcount(mask)) != parts - 1) continue;
      std::int64_t most = 0, sum = 0;
      for (std::uint32_t s = 0; s < n; ++s) {
        sum += stages[s].forward_ns;
        most = std::max(most, sum);
        if ((mask >> s & 1) != 0) sum = 0;
      }
      best = std::min(best, most);
    }
    const std::vector<std::uint32_t> cut = contiguous_layout(problem).first_block;
    ASSERT_EQ(cut.size(), parts + 1);
    std::int64_t most = 0;
    for (std::uint32_t c = 0; c < parts; ++c) {
      ASSERT_LT(cut[c], cut[c + 1]);
      std::int64_t sum = 0;
      for (std::uint32_t s = cut[c]; s < cut[c + 1]; ++s) sum += stages[s].forward_ns;
      most = std::max(most, sum);
    }
    EXPECT_EQ(most, best);
  }
}

TEST(PipelineErrors, SayWhatToDo) {
  const Times t{1, 1, 1};
  const auto expect = [&](std::string_view name, const PipelineProblem& problem, const std::string& text,
                          const ScheduleOptions& options = {}) {
    EXPECT_EQ(error_of([&] { make_schedule(name, problem, options); }), text);
  };
  expect(
      "zb-h3", alike(2, 2, t),
      "`pipeline zb-h3`: no schedule is called so; use one of gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, dualpipe, "
      "dualpipe-v, fast-forward, modulo, or search; did you mean zb-h1?");
  expect("interleaved", alike(4, 8, t),
         "pipeline: interleaved needs 8 stages for 4 devices, there are 4; cut the model finer (`blocks`), or use "
         "fewer devices");
  expect("interleaved", alike(4, 8, t, 2),
         "pipeline: interleaved with 1 chunks per device; give 2 or more, or use 1f1b", {.chunks = 1, .group = 1});
  expect(
      "zb-v", alike(4, 8, t),
      "pipeline: zb-v needs 8 stages for 4 devices, there are 4; cut the model finer (`blocks`), or use fewer devices");
  expect("modulo", alike(4, 8, t),
         "pipeline: modulo needs 8 stages for 4 devices, there are 4; cut the model finer (`blocks`), or use fewer "
         "devices",
         {.chunks = 2, .group = 2});
  expect("modulo", alike(4, 8, t), "pipeline: modulo with groups of 0 stages; give at least 1",
         {.chunks = 2, .group = 0});
  expect("dualpipe", alike(5, 20, t), "pipeline: dualpipe on 5 devices; use an even number, or dualpipe-v");
  expect("dualpipe", alike(4, 7, t), "pipeline: dualpipe with 7 micro-batches on 4 devices; give at least 8");
  expect("dualpipe-v", alike(3, 5, t, 2), "pipeline: dualpipe-v with 5 micro-batches on 3 devices; give at least 6");
  expect("1f1b", alike(0, 5, t), "pipeline: 0 devices; give at least 1");
  expect("1f1b", alike(2, 0, t), "pipeline: 0 micro-batches; give at least 1");
  PipelineProblem problem = alike(2, 4, t);
  problem.devices = 3;
  expect("1f1b", problem, "pipeline: 2 stages for 3 devices; use at most 2 devices");
  expect("1f1b", alike(2, 4, {1, -2, 1}), "pipeline: stage 0 has a cost of -2; give 0 or more");
  problem = alike(2, 4, t);
  problem.transfer_ns = -1;
  expect("1f1b", problem, "pipeline: transfers take -1 ns; give 0 or more");
  expect("1f1b", alike(2, 4'000'000'000u, t),
         "pipeline: 2 stages times 4000000000 micro-batches are too many; use fewer micro-batches");
}

}  // namespace
}  // namespace overtake
