// Plans on clusters: by hand to the nanosecond, and against slow references. On small_cluster(1, n) a way takes 600 ns
// and has 100 bytes per nanosecond.

#include "sim/cluster_simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "plan_case.h"
#include "random_plan.h"
#include "random_training.h"
#include "sim/lane_simulator.h"
#include "sim_case.h"

namespace overtake {
namespace {

using tests::kWayNs;
using tests::plain;
using tests::PlanCase;
using tests::random_profile;
using tests::random_training_graph;
using tests::ring_ends;
using tests::simulate_one;
using tests::small_cluster;
using tests::span_of;

void expect_span(const Trace& trace, TaskId t, std::int64_t begin, std::int64_t end) {
  const Span span = span_of(trace, t);
  EXPECT_EQ(span.begin_ns, begin) << "task " << t;
  EXPECT_EQ(span.end_ns, end) << "task " << t;
}

std::vector<TaskCost> work_of(const Profile& profile) {
  std::vector<TaskCost> work;
  for (std::size_t t = 0; t < profile.alone_ns.size(); ++t)
    work.push_back({.ns = profile.alone_ns[t], .load = profile.load[t]});
  return work;
}

Plan random_plan_with_waits(std::mt19937& random, int i) {
  Graph graph = random_training_graph(random);
  if (i % 2 == 1) delay_at_random(graph, random);
  Plan plan = random_plan(graph, 1 + static_cast<std::size_t>(i) % 4, random);
  const HappensBefore drawn = happens_before(plan, dependencies(plan));
  for (std::size_t k = 0; k < drawn.topological.size() && i % 3 == 0; ++k)
    if (const std::size_t j = k + 1 + random() % 5; j < drawn.topological.size() && random() % 4 == 0)
      plan.waits.push_back({drawn.topological[k], drawn.topological[j]});
  std::ranges::sort(plan.waits);
  return plan;
}

TEST(ClusterSimulator, OneDeviceIsTheLaneSimulator) {
  std::mt19937 random(4);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    const Plan plan = random_plan_with_waits(random, i);
    const Profile profile = random_profile(plan.graph.tasks.size(), random);
    const std::vector<TaskCost> work = work_of(profile);
    const JobResult got = simulate_one(small_cluster(1, 1), {.plan = &plan, .work = work, .devices = {0}});
    EXPECT_TRUE(got.is_finished);
    EXPECT_EQ(save_json(got.trace), save_json(simulate(plan, profile)));
  }
}

// Several steps as one long list of tasks: who reads and writes what, in the order of one task after the other, says
// who must wait.
struct Unrolled {
  Unrolled(const Plan& plan, const Profile& one, std::uint32_t steps) {
    const Graph& g = plan.graph;
    const auto n = static_cast<std::uint32_t>(g.tasks.size());
    const HappensBefore order = happens_before(plan, dependencies(plan));
    std::map<BufferId, TaskId> writer;
    std::map<BufferId, std::vector<TaskId>> readers;
    std::vector<std::pair<TaskId, TaskId>> edges;
    for (std::uint32_t s = 0; s < steps; ++s) {
      const auto runs = [&](TaskId t) { return s > 0 || !g.tasks[t].is_delayed; };
      for (const TaskId t : order.topological) {
        if (!runs(t)) continue;
        const TaskId id = s * n + t;
        for (const BufferId b : g.reads(t)) {
          if (b == kNone) continue;
          if (writer.contains(b)) edges.emplace_back(id, writer[b]);
          readers[b].push_back(id);
        }
        for (const BufferId b : g.writes(t)) {
          for (const TaskId r : readers[b])
            if (r != id) edges.emplace_back(id, r);
          readers[b].clear();
          writer[b] = id;
        }
      }
      for (const Wait& w : plan.waits)
        if (runs(w.before) && runs(w.after)) edges.emplace_back(s * n + w.after, s * n + w.before);
      profile.alone_ns.insert(profile.alone_ns.end(), one.alone_ns.begin(), one.alone_ns.end());
      profile.load.insert(profile.load.end(), one.load.begin(), one.load.end());
      lanes.resize(plan.lanes.size());
      for (std::size_t l = 0; l < lanes.size(); ++l)
        for (const TaskId t : plan.lanes[l].tasks)
          if (runs(t)) lanes[l].push_back(s * n + t);
    }
    deps = dependencies_from(std::move(edges), std::size_t{n} * steps);
  }
  Profile profile;
  std::vector<std::vector<TaskId>> lanes;
  Dependencies deps;
};

TEST(ClusterSimulator, StepsBehindEachOtherAreOneLongPlan) {
  std::mt19937 random(5);
  int overlapped = 0;
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    const Plan plan = random_plan_with_waits(random, i);
    const std::size_t n = plan.graph.tasks.size();
    const Profile profile = random_profile(n, random);
    const std::vector<TaskCost> work = work_of(profile);
    const std::uint32_t steps = 2 + random() % 4;
    const Unrolled long_plan(plan, profile, steps);
    LaneSimulator reference(long_plan.profile);
    reference.set_dependencies(long_plan.deps);
    const std::int64_t time = reference.run(long_plan.lanes);
    const JobResult got = simulate_one(small_cluster(1, 1),
                                       {.plan = &plan, .work = work, .devices = {0}, .steps = static_cast<int>(steps)});
    ASSERT_TRUE(got.is_finished);
    EXPECT_EQ(got.makespan_ns, time);
    std::vector<std::int64_t> begins(steps, kNever), ends(steps, 0);
    for (std::size_t t = 0; t < n * steps; ++t) {
      if (t < n && plan.graph.tasks[t].is_delayed) continue;
      begins[t / n] = std::min(begins[t / n], reference.begins()[t]);
      ends[t / n] = std::max(ends[t / n], reference.ends()[t]);
    }
    EXPECT_EQ(got.step_ends_ns, ends);
    const std::uint32_t first = steps > 2 ? 1 : 0;
    EXPECT_EQ(got.trace.step_ns, (begins.back() - begins[first]) / (steps - 1 - first));
    ASSERT_EQ(got.trace.spans.size(), n);
    for (TaskId t = 0; t < n; ++t)
      expect_span(got.trace, t, reference.begins()[(steps - 1) * n + t] - begins.back(),
                  reference.ends()[(steps - 1) * n + t] - begins.back());
    overlapped += begins.back() < ends[steps - 2];
  }
  EXPECT_GT(overlapped, 20) << "steps did overlap";
}

TEST(ClusterSimulator, AMessageTakesItsBytesAndTheWay) {
  PlanCase c(2);
  const BufferId x = c.buffer(100'000), y = c.buffer();
  const TaskId first = c.run(c.lane(0), 1000, {}, {x});
  const BufferId there = c.send(c.wire(0), c.wire(1), x);
  const TaskId beside = c.run(c.lane(0), 5000);
  const TaskId last = c.run(c.lane(1), 500, {there}, {y});
  const JobResult r = simulate_one(small_cluster(1, 2), c.job());
  ASSERT_TRUE(r.is_finished);
  expect_span(r.trace, first, 0, 1000);
  expect_span(r.trace, c.sends[0], 1000, 2000);
  expect_span(r.trace, c.recvs[0], 1000, 2000 + kWayNs);
  expect_span(r.trace, beside, 1000, 6000);
  expect_span(r.trace, last, 2000 + kWayNs, 2500 + kWayNs);
  EXPECT_EQ(r.makespan_ns, 6000);
  EXPECT_EQ(r.trace.step_ns, 6000);
  EXPECT_EQ(r.step_ends_ns, (std::vector<std::int64_t>{6000}));
  EXPECT_EQ(r.lane_progress, (std::vector<std::uint64_t>{2, 1, 1, 1}));
}

// On ordinary lanes both sides are held: the one until all is sent, the other from when it comes to the recv.
TEST(ClusterSimulator, MessagesOnOrdinaryLanes) {
  PlanCase c(2);
  const BufferId x = c.buffer(100'000);
  c.run(c.lane(0), 1000, {}, {x});
  const TaskId busy = c.run(c.lane(1), 2100);
  c.send(c.lane(0), c.lane(1), x);
  const TaskId after = c.run(c.lane(0), 10), late = c.run(c.lane(1), 3000);
  c.send(c.lane(0), c.lane(1), x);
  const JobResult r = simulate_one(small_cluster(1, 2), c.job());
  ASSERT_TRUE(r.is_finished);
  expect_span(r.trace, c.sends[0], 1000, 2000);
  expect_span(r.trace, busy, 0, 2100);
  expect_span(r.trace, c.recvs[0], 2100, 2600);
  expect_span(r.trace, after, 2000, 2010);
  // The pair carries one message after the other; this one is there at 4200, and looked for at 5600.
  expect_span(r.trace, c.sends[1], 2010, 3600);
  expect_span(r.trace, late, 2600, 5600);
  expect_span(r.trace, c.recvs[1], 5600, 5600);
}

// A chain of stages, forward only, so that no link has two messages: when each block and message begins and ends, one
// after the other.
TEST(ClusterSimulator, AChainFollowsItsRecurrence) {
  std::mt19937 random(6);
  const std::size_t stages = 5, batches = 20;
  for (int round = 0; round < 20; ++round) {
    PlanCase c(stages);
    std::vector<std::int64_t> lane_end(stages, 0), pair_end(stages, 0), send_begin(stages, 0), recv_begin(stages, 0);
    std::vector<std::pair<TaskId, std::pair<std::int64_t, std::int64_t>>> want;
    std::int64_t makespan = 0;
    for (std::size_t b = 0; b < batches; ++b) {
      BufferId x = kNone;
      std::int64_t there = 0;
      for (std::size_t s = 0; s < stages; ++s) {
        const std::int64_t ns = 100 + std::int64_t{static_cast<std::uint32_t>(random()) % 2000};
        const std::int64_t time = static_cast<std::uint32_t>(random()) % 3000;
        const BufferId y = c.buffer(100 * time);
        const TaskId t = x == kNone ? c.run(c.lane(s), ns, {}, {y}) : c.run(c.lane(s), ns, {x}, {y});
        const std::int64_t begin = std::max(lane_end[s], there);
        lane_end[s] = begin + ns;
        makespan = std::max(makespan, lane_end[s]);
        want.push_back({t, {begin, lane_end[s]}});
        if (s + 1 == stages) continue;
        x = c.send(c.wire(s), c.wire(s + 1), y);
        // The asynchronous lane of a stage has recv and send of each batch by turns, begun in this order.
        send_begin[s] = std::max({send_begin[s], recv_begin[s], lane_end[s]});
        const std::int64_t flow = std::max(send_begin[s], pair_end[s]);
        there = pair_end[s] = flow + time + kWayNs;
        recv_begin[s + 1] = std::max({recv_begin[s + 1], send_begin[s + 1], send_begin[s]});
        want.push_back({c.sends.back(), {send_begin[s], flow + time}});
        want.push_back({c.recvs.back(), {recv_begin[s + 1], std::max(recv_begin[s + 1], there)}});
        there = std::max(recv_begin[s + 1], there);
        makespan = std::max(makespan, there);
      }
    }
    const JobResult r = simulate_one(small_cluster(1, static_cast<int>(stages)), c.job());
    ASSERT_TRUE(r.is_finished);
    EXPECT_EQ(r.makespan_ns, makespan);
    for (const auto& [t, span] : want) expect_span(r.trace, t, span.first, span.second);
  }
}

// p stages, m micro-batches, all forward and then all back, nothing lost on the way: (m + p - 1) (F + B).
TEST(ClusterSimulator, AllForwardThenAllBack) {
  for (const std::size_t p : {2u, 3u, 4u, 8u}) {
    for (const std::size_t m : {1u, 2u, 5u, 16u}) {
      PlanCase c(static_cast<std::uint16_t>(p));
      // Lanes of their own for each way, so that nothing waits in line for the other direction.
      const std::size_t back = c.plan.lanes.size();
      for (std::uint16_t s = 0; s < p; ++s) c.plan.lanes.push_back({.device = s, .tasks = {}, .is_asynchronous = true});
      std::vector<BufferId> kept(m * p);
      for (std::size_t b = 0; b < m; ++b) {
        BufferId x = kNone;
        for (std::size_t s = 0; s < p; ++s) {
          const BufferId y = kept[b * p + s] = c.buffer(0);
          s == 0 ? c.run(c.lane(s), 100, {}, {y}) : c.run(c.lane(s), 100, {x}, {y});
          if (s + 1 < p) x = c.send(c.wire(s), c.wire(s + 1), y);
        }
      }
      for (std::size_t b = 0; b < m; ++b) {
        BufferId g = kNone;
        for (std::size_t s = p; s-- > 0;) {
          const BufferId d = c.buffer(0);
          g == kNone ? c.run(c.lane(s), 250, {kept[b * p + s]}, {d}) : c.run(c.lane(s), 250, {kept[b * p + s], g}, {d});
          if (s > 0) g = c.send(back + s, back + s - 1, d);
        }
      }
      ClusterJob job{.plan = &c.plan, .work = c.work};
      for (std::uint32_t s = 0; s < p; ++s) job.devices.push_back(s);
      const JobResult r = simulate_one(small_cluster(1, static_cast<int>(p), "", 0), job);
      ASSERT_TRUE(r.is_finished);
      EXPECT_EQ(r.makespan_ns, static_cast<std::int64_t>(m + p - 1) * 350) << p << " stages, " << m << " micro-batches";
    }
  }
}

// Each of four devices: a task, then an all-reduce of `bytes`, both ways of starting it.
struct FourDevices : PlanCase {
  FourDevices(const TaskCost& w, std::int64_t bytes) : PlanCase(4) {
    for (std::size_t d = 0; d < 4; ++d) {
      const BufferId x = buffer(bytes), y = buffer(bytes);
      tasks.push_back(add(lane(d), "t", Kind::weight_grad, w, {}, {x}));
      reductions.push_back(collective(wire(d), 7, x, y));
    }
  }
  std::vector<TaskId> tasks, reductions;
};

TEST(ClusterSimulator, AStragglerHoldsTheOthersUp) {
  const FourDevices c({.ns = 1000}, 400'000);
  ClusterOptions options = plain();
  options.algorithm = Algorithm::ring;
  options.speeds = {1, 1, 0.4, 1};
  const JobResult r = simulate_one(small_cluster(1, 4), c.job(), options);
  const std::vector<std::int64_t> ready = {1000, 1000, 2500, 1000},
                                  ends = ring_ends(ready, {1000, 1000, 1000, 1000}, kWayNs);
  for (std::size_t d = 0; d < 4; ++d) {
    expect_span(r.trace, c.tasks[d], 0, ready[d]);
    expect_span(r.trace, c.reductions[d], ready[d], ends[d]);
  }
  EXPECT_EQ(r.makespan_ns, std::ranges::max(ends));
}

TEST(ClusterSimulator, HalvesOfAnAllReduce) {
  PlanCase c(4);
  std::vector<TaskId> scatters, gathers;
  for (std::size_t d = 0; d < 4; ++d) {
    const BufferId x = c.buffer(400'000), part = c.buffer(100'000), whole = c.buffer(400'000);
    c.run(c.lane(d), 100, {}, {x});
    scatters.push_back(c.collective(c.wire(d), 0, x, part, 0, Kind::reduce_scatter));
    gathers.push_back(c.collective(c.wire(d), 0, part, whole, 0, Kind::all_gather));
  }
  const JobResult r = simulate_one(small_cluster(1, 4), c.job());
  for (std::size_t d = 0; d < 4; ++d) {
    expect_span(r.trace, scatters[d], 100, 100 + 3 * (kWayNs + 1000));
    expect_span(r.trace, gathers[d], 100 + 3 * (kWayNs + 1000), 100 + 6 * (kWayNs + 1000));
  }
}

TEST(ClusterSimulator, JobsShareALink) {
  // From the first node to the second, 10 bytes per nanosecond, 2000 ns.
  PlanCase c(2);
  c.send(c.wire(0), c.wire(1), c.buffer(100'000, Role::input));
  std::vector<ClusterJob> jobs = {c.job(), c.job()};
  jobs[1].start_ns = 5000;
  const Cluster cluster = small_cluster(2, 1);
  const std::vector<JobResult> r = simulate(cluster, make_topology(cluster), jobs, plain());
  // 5000 alone, 10000 at half the rate; the other has as much left then.
  expect_span(r[0].trace, c.sends[0], 0, 15'000);
  expect_span(r[0].trace, c.recvs[0], 0, 17'000);
  expect_span(r[1].trace, c.sends[0], 0, 15'000);
  EXPECT_EQ(r[1].makespan_ns, 17'000);
}

TEST(ClusterSimulator, JobsShareADevice) {
  PlanCase c(1);
  const TaskId t = c.run(c.lane(0), 1000);
  std::vector<ClusterJob> jobs = {c.job(), c.job(), c.job()};
  jobs[1].start_ns = 500;
  jobs[2].devices = {1};
  const Cluster cluster = small_cluster(1, 2);
  const std::vector<JobResult> r = simulate(cluster, make_topology(cluster), jobs, plain());
  expect_span(r[0].trace, t, 0, 1500);
  expect_span(r[1].trace, t, 0, 1500);
  expect_span(r[2].trace, t, 0, 1000);
}

// The numbers of Collective.AnUrgentOneOvertakesAtTheEndOfAChunk.
// As in collective_test.cpp: at the border between the third and the fourth chunk, or after all of it.
TEST(ClusterSimulator, AnUrgentCollectiveOvertakesAtTheEndOfAChunk) {
  const std::int64_t comes = 3 * (kWayNs + 900) + 610, three = 6 * (kWayNs + 900 * 3 / 4),
                     last = 6 * (kWayNs + 900 / 4), all = 6 * (kWayNs + 900), small = 6 * (kWayNs + 100);
  for (const std::int64_t priority : {0, 1}) {
    PlanCase c(4);
    std::vector<TaskId> bulk, urgent;
    for (std::size_t d = 0; d < 4; ++d) {
      const BufferId x = c.buffer(40'000);
      bulk.push_back(c.collective(c.wire(d), 1, c.buffer(360'000, Role::input), c.buffer(360'000)));
      c.run(c.lane(d), comes, {}, {x});
      urgent.push_back(c.collective(c.wire(d), 2, x, c.buffer(40'000), priority));
    }
    ClusterOptions options = plain();
    options.algorithm = Algorithm::ring;
    options.chunk_bytes = 90'000;
    const JobResult r = simulate_one(small_cluster(1, 4), c.job(), options);
    for (std::size_t d = 0; d < 4; ++d) {
      expect_span(r.trace, urgent[d], comes, (priority == 1 ? three : all) + small);
      expect_span(r.trace, bulk[d], 0, priority == 1 ? three + small + last : all);
    }
  }
}

// Two devices, two layers of 1000 ns forward and (about) 1000 back; the gradient of the second takes 2000 to reduce,
// that of the first 500. First come, first served, the next forward waits for both. With priorities and chunks the
// first layer's goes between the halves of the other, which then hides behind the next step's first layer.
TEST(ClusterSimulator, AnAllReduceHidesBehindTheNextForward) {
  for (const bool has_priorities : {false, true}) {
    PlanCase c(2);
    std::vector<TaskId> forward, reductions;
    for (std::size_t d = 0; d < 2; ++d) {
      c.plan.lanes.push_back({.device = static_cast<std::uint16_t>(d), .tasks = {}, .is_asynchronous = false});
      const std::size_t updates = c.plan.lanes.size() - 1;
      const BufferId w1 = c.buffer(1, Role::weight), w2 = c.buffer(1, Role::weight);
      const BufferId y1 = c.buffer(), y2 = c.buffer(), dy = c.buffer();
      const BufferId g1 = c.buffer(50'000), g2 = c.buffer(200'000), s1 = c.buffer(50'000), s2 = c.buffer(200'000);
      forward.push_back(c.run(c.lane(d), 1000, {w1}, {y1}));
      c.run(c.lane(d), 1000, {w2, y1}, {y2});
      c.run(c.lane(d), 1000, {w2, y2, y1}, {g2, dy});
      c.run(c.lane(d), 990, {dy}, {g1});
      reductions.push_back(c.collective(c.wire(d), 2, g2, s2));
      c.collective(c.wire(d), 1, g1, s1, has_priorities);
      c.run(updates, 0, {w1, s1}, {w1});
      c.run(updates, 0, {w2, s2}, {w2});
    }
    ClusterJob job{.plan = &c.plan, .work = c.work, .devices = {0, 1}, .steps = 4};
    ClusterOptions options = plain();
    options.algorithm = Algorithm::ring;
    options.chunk_bytes = has_priorities ? 50'000 : 0;
    const JobResult r = simulate_one(small_cluster(1, 2, "", 0), job, options);
    ASSERT_TRUE(r.is_finished);
    EXPECT_EQ(r.trace.step_ns, has_priorities ? 4500 : 5500);
    EXPECT_EQ(r.makespan_ns, has_priorities ? 3 * 4500 + 5500 : 4 * 5500);
    EXPECT_EQ(r.step_ends_ns[1], has_priorities ? 4500 + 5500 : 2 * 5500);
    expect_span(r.trace, forward[1], 0, 1000);
    expect_span(r.trace, reductions[1], 3000, has_priorities ? 5500 : 5000);
    EXPECT_EQ(r.trace.spans.size(), c.work.size());
  }
}

// Lanes in order, and everything after what it waits for.
void expect_order(const Plan& plan, const Trace& trace) {
  std::vector<Span> spans(plan.graph.tasks.size());
  for (const Span& s : trace.spans) spans[s.task] = s;
  const Dependencies deps = dependencies(plan);
  for (TaskId t = 0; t < spans.size(); ++t)
    for (const TaskId before : deps.of(t)) {
      const bool is_message = plan.graph.tasks[t].kind == Kind::recv;
      EXPECT_LE(spans[before].begin_ns, spans[t].begin_ns);
      EXPECT_LE(spans[before].end_ns, is_message ? spans[t].end_ns : spans[t].begin_ns);
    }
  for (const Lane& lane : plan.lanes)
    for (std::size_t i = 1; i < lane.tasks.size(); ++i) {
      const Span &first = spans[lane.tasks[i - 1]], &second = spans[lane.tasks[i]];
      EXPECT_LE(lane.is_asynchronous ? first.begin_ns : first.end_ns, second.begin_ns);
    }
}

// Messages, collectives and tasks at random on eight devices, three steps, two jobs.
TEST(ClusterSimulator, TheSameBytesOfOutputTwice) {
  const auto run = [] {
    std::mt19937 random(9);
    PlanCase c(8);
    std::vector<BufferId> last;
    for (std::size_t d = 0; d < 8; ++d) last.push_back(c.buffer(1'000'000, Role::input));
    for (int i = 0; i < 60; ++i) {
      for (std::size_t d = 0; d < 8; ++d) {
        const BufferId y = c.buffer(1 + static_cast<std::int64_t>(random() % 1'000'000));
        const std::int64_t ns = static_cast<std::uint32_t>(random()) % 20'000;
        c.add(c.lane(d), "t", Kind::forward, {.ns = ns, .memory_ns = ns / 2}, {last[d]}, {y});
        last[d] = y;
      }
      const std::size_t from = random() % 8, to = (from + 1 + random() % 7) % 8;
      last[to] = c.send(c.wire(from), c.wire(to), last[from]);
      if (i % 5 == 0)
        for (std::size_t d = 0; d < 8; ++d) {
          const BufferId g = c.buffer(500'000);
          c.run(c.lane(d), 100, {last[d]}, {g});
          c.collective(c.wire(d), i, g, last[d] = c.buffer(500'000), i % 3);
        }
    }
    std::vector<ClusterJob> jobs = {c.job(3), c.job(2)};
    jobs[1].devices = {4, 5, 6, 7, 8, 9, 10, 11};
    const Cluster cluster = load_cluster("dgx-h100:2");
    std::string text;
    for (const JobResult& r : simulate(cluster, make_topology(cluster), jobs, {.chunk_bytes = 100'000})) {
      EXPECT_TRUE(r.is_finished);
      EXPECT_EQ(r.trace.spans.size(), c.work.size());
      expect_order(c.plan, r.trace);
      text += save_json(r.trace) + std::to_string(r.makespan_ns);
    }
    return text;
  };
  EXPECT_EQ(run(), run());
}

TEST(ClusterSimulator, NothingTakesNoTime) {
  const PlanCase c(2);
  const JobResult r = simulate_one(small_cluster(1, 2), c.job(3));
  EXPECT_TRUE(r.is_finished);
  EXPECT_EQ(r.makespan_ns, 0);
  EXPECT_EQ(r.step_ends_ns, (std::vector<std::int64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace overtake
