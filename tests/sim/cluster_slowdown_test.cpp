// Computation and communication on one device: by hand, and against what must add up. On small_cluster(1, n) a way
// takes 600 ns and has 100 bytes per nanosecond, and a device 1000 bytes per nanosecond of memory bandwidth.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "plan_case.h"
#include "sim/busy_device.h"
#include "sim/lane_simulator.h"
#include "sim_case.h"

namespace overtake {
namespace {

using tests::kWayNs;
using tests::plain;
using tests::PlanCase;
using tests::simulate_one;
using tests::small_cluster;
using tests::span_of;

// 2000 / (2000 - 3 * 300) = 1.82, what attention was measured to lose beside an all-reduce.
TEST(ClusterSlowdown, ByHand) {
  EXPECT_DOUBLE_EQ(slowdown({.ns = 100, .memory_ns = 100}, 0.16, 0.45), 2000.0 / 1100);
  EXPECT_NEAR(slowdown({.ns = 100, .compute_ns = 30, .memory_ns = 90}, 0.16, 0.45), 1.82, 0.005);
  EXPECT_DOUBLE_EQ(slowdown({.ns = 100, .compute_ns = 100, .memory_ns = 20}, 0.16, 0.45), 1 / 0.84);
  EXPECT_DOUBLE_EQ(slowdown({.ns = 100}, 0.25, 0.45), 1 / 0.75) << "not known: bound by arithmetic";
  // 80 / 0.9 of arithmetic, 60 / 0.5 of memory: the other one binds now.
  EXPECT_DOUBLE_EQ(slowdown({.ns = 100, .compute_ns = 80, .memory_ns = 60}, 0.1, 0.5), 120.0 / 80);
  EXPECT_DOUBLE_EQ(slowdown({.ns = 100, .compute_ns = 80, .memory_ns = 60}, 0, 0), 1);
}

// A product of a full wave: twice as long where one collective, of 0.2 of the SMs, leaves it too few.
TEST(ClusterSlowdown, WavesByHand) {
  const TaskCost wave{.ns = 100, .compute_ns = 100, .memory_ns = 10, .beside_ns = 200};
  EXPECT_DOUBLE_EQ(slowdown(wave, 0.2, 0, 0.2), 2);
  EXPECT_DOUBLE_EQ(slowdown(wave, 0, 0, 0.2), 1);
  EXPECT_DOUBLE_EQ(slowdown(wave, 0.05, 0, 0.2), 1.25) << "a quarter of the way";
  EXPECT_DOUBLE_EQ(slowdown(wave, 0.4, 0, 0.2), 2 * 0.8 / 0.6) << "two collectives";
  EXPECT_DOUBLE_EQ(slowdown(wave, 0.2, 0, 0), 1 / 0.8) << "what a collective holds is not known";
  // Tasks taken together, as blocks are.
  TaskCost both = wave;
  both += {.ns = 100, .compute_ns = 100, .memory_ns = 10, .beside_ns = 120};
  EXPECT_DOUBLE_EQ(slowdown(both, 0.2, 0, 0.2), 1.6);
  both += {.ns = 100, .compute_ns = 100, .memory_ns = 10};
  EXPECT_DOUBLE_EQ(slowdown(both, 0.2, 0, 0.2), 1 / 0.8) << "one that is not known";
}

// 300 GB/s links without latency, memory of 2000 GB/s: a ring takes 900 of them.
Cluster busy_cluster() {
  return parse_cluster(
      R"([device.d]
f32 = "1 TFLOP/s"
memory = [{ capacity = "1 GB", bandwidth = "2000 GB/s" }]
sms = 100
[node.n]
devices = { d = 4 }
[node.n.switch.s]
[[link]]
between = ["n/d", "n/s"]
kind = "NVLink"
bandwidth = "300 GB/s"
latency = "0 ns"
)",
      "test");
}

TEST(ClusterSlowdown, ComputationAndCommunicationSlowEachOther) {
  struct Expected {
    TaskCost work;
    double slower, share;  // of the links, while the task runs
  };
  for (const auto& [work, slower, share] :
       {Expected{{.ns = 1'000'000, .compute_ns = 500'000, .memory_ns = 1'000'000}, 2000.0 / 1100, 2000.0 / 2900},
        Expected{{.ns = 1'000'000, .compute_ns = 1'000'000, .memory_ns = 100'000}, 1 / 0.84, 1},
        Expected{{.ns = 1'000'000}, 1 / 0.84, 1}}) {
    // The all-reduce first, and a task of 1 ms beside it.
    PlanCase c(4);
    std::vector<TaskId> tasks, reductions;
    for (std::size_t d = 0; d < 4; ++d) {
      const BufferId x = c.buffer(4 * 300 * 1'000'000, Role::input), y = c.buffer(4 * 300 * 1'000'000);
      reductions.push_back(c.collective(c.wire(d), 0, x, y));
      tasks.push_back(c.add(c.lane(d), "t", Kind::forward, work, {}, {}));
    }
    const JobResult r =
        simulate_one(busy_cluster(), c.job(), {.algorithm = Algorithm::ring, .protocol = Protocol::ideal});
    const double together = 1e6 * slower;
    for (std::size_t d = 0; d < 4; ++d) {
      EXPECT_NEAR(static_cast<double>(span_of(r.trace, tasks[d]).end_ns), together, 1);
      EXPECT_NEAR(static_cast<double>(span_of(r.trace, reductions[d]).end_ns), 6e6 + together * (1 - share), 3);
    }
    const JobResult apart = simulate_one(busy_cluster(), c.job(), plain());
    EXPECT_EQ(span_of(apart.trace, tasks[0]).end_ns, 1'000'000);
  }
}

// No more than nine tenths go to communication; nothing of what the description does not tell.
TEST(ClusterSlowdown, BusyDevicesHaveLimits) {
  const auto end_of = [](const DeviceType& type, const DeviceLoad& load) {
    const TaskCost work{.ns = 1000, .compute_ns = 1000, .memory_ns = 1000};
    BusyDevice device(type, 1);
    device.start(0, 0, work);
    device.set_rates(0, load);
    return device.next_ns();
  };
  DeviceType known;
  known.memories = {{.bytes_per_s = 1'000'000}};
  known.sms = 100;
  EXPECT_EQ(end_of(known, {50, 0}), 2000);
  EXPECT_EQ(end_of(known, {0, 750'000}), 4000);
  EXPECT_NEAR(static_cast<double>(end_of(known, {200, 0})), 10'000, 1);
  EXPECT_NEAR(static_cast<double>(end_of(known, {0, 5e6})), 10'000, 1);
  EXPECT_EQ(end_of(DeviceType{}, {16, 5e6}), 1000);
}

// The slowdown begins and ends with the communication: half of the task's work is done when it begins.
TEST(ClusterSlowdown, RatesChangeWhileTasksRun) {
  PlanCase c(4);
  std::vector<TaskId> tasks;
  const std::int64_t piece = 10'000;  // six of which are the all-reduce
  for (std::size_t d = 0; d < 4; ++d) {
    const BufferId x = c.buffer(4 * 300 * piece), y = c.buffer(4 * 300 * piece);
    c.plan.lanes.push_back({.device = static_cast<std::uint16_t>(d), .tasks = {}, .is_asynchronous = false});
    c.add(c.plan.lanes.size() - 1, "before", Kind::forward, {.ns = 500'000, .load = 0}, {}, {x});
    c.collective(c.wire(d), 0, x, y);
    tasks.push_back(c.add(c.lane(d), "t", Kind::forward, {.ns = 1'000'000}, {}, {}));
  }
  ClusterJob job{.plan = &c.plan, .work = c.work, .devices = {0, 1, 2, 3}};
  const JobResult r = simulate_one(busy_cluster(), job, {.algorithm = Algorithm::ring, .protocol = Protocol::ideal});
  EXPECT_NEAR(static_cast<double>(span_of(r.trace, tasks[2]).end_ns), 1e6 + 60'000 * 0.16, 1);
}

// Random tasks on two lanes of two devices, and messages from one to the other. Between any two neighbouring moments
// of the trace the rates follow from what runs; what is done at these rates adds up to every task's work and every
// message's bytes.
TEST(ClusterSlowdown, WorkAndBytesAddUpBesideEachOther) {
  std::mt19937 random(7);
  const auto number = [&](std::uint32_t below) { return std::int64_t{static_cast<std::uint32_t>(random()) % below}; };
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    PlanCase c(2);
    for (std::uint16_t d = 0; d < 2; ++d) c.plan.lanes.push_back({.device = d, .tasks = {}, .is_asynchronous = false});
    std::vector<std::int64_t> bytes;
    for (int i = 0; i < 30; ++i) {
      const std::int64_t ns = 1 + number(20'000), memory = number(2) == 0 ? ns : number(20'000) * ns / 20'000;
      const TaskCost work{.ns = ns,
                          .compute_ns = ns - memory / 2,
                          .memory_ns = memory,
                          .load = 0.1 + 0.01 * static_cast<double>(number(100))};
      const std::size_t lane = std::array<std::size_t, 4>{0, 2, 4, 5}[static_cast<std::size_t>(number(4))];
      const BufferId x = c.buffer(1000 * (1 + number(2000)));
      c.add(lane, "t", Kind::forward, work, {}, {x});
      if (c.plan.lanes[lane].device == 1) continue;
      c.send(c.wire(0), c.wire(1), x);
      bytes.push_back(c.plan.graph.bytes(x));
    }
    ClusterJob job{.plan = &c.plan, .work = c.work, .devices = {0, 1}};
    const std::array<double, 2> speeds = {1, 0.7};
    const JobResult r =
        simulate_one(small_cluster(1, 2), job, {.speeds = {speeds[0], speeds[1]}, .protocol = Protocol::ideal});
    ASSERT_TRUE(r.is_finished);

    struct Flow {
      std::int64_t begin, sent, there;
    };
    std::vector<Flow> flows;
    std::vector<std::int64_t> moments = {0};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const Span send = span_of(r.trace, c.sends[i]), recv = span_of(r.trace, c.recvs[i]);
      flows.push_back({std::max(send.begin_ns, i == 0 ? 0 : flows.back().there), send.end_ns, recv.end_ns});
      EXPECT_EQ(recv.end_ns, send.end_ns + kWayNs);
      moments.insert(moments.end(), {flows.back().begin, flows.back().sent, flows.back().there});
    }
    for (const Span& s : r.trace.spans) moments.insert(moments.end(), {s.begin_ns, s.end_ns});
    std::ranges::sort(moments);
    std::vector<double> done(c.work.size(), 0), moved(bytes.size(), 0);
    for (std::size_t i = 0; i + 1 < moments.size(); ++i) {
      const std::int64_t from = moments[i], to = moments[i + 1];
      if (from == to) continue;
      const auto covers = [&](std::int64_t begin, std::int64_t end) { return begin <= from && end >= to; };
      double share = 1;
      for (std::uint16_t d = 0; d < 2; ++d) {
        double sms = 0, memory = 0, wanted = 0;
        for (std::size_t f = 0; f < flows.size(); ++f) {
          if (!covers(flows[f].begin, d == 0 ? flows[f].sent : flows[f].there)) continue;
          sms = 0.16;
          memory = static_cast<double>(bytes[f]) / static_cast<double>(kWayNs + bytes[f] / 100) / 1000;
        }
        std::vector<TaskId> active;
        std::vector<double> loads;
        for (const Span& s : r.trace.spans) {
          const Task& task = c.plan.graph.tasks[s.task];
          if (task.op == Op::transfer || task.device != d || !covers(s.begin_ns, s.end_ns)) continue;
          active.push_back(s.task);
          loads.push_back(c.work[s.task].load);
        }
        std::vector<double> rates(loads.size());
        rates_of(loads, rates);
        for (std::size_t k = 0; k < active.size(); ++k) {
          const TaskCost& w = c.work[active[k]];
          const auto compute = static_cast<double>(w.compute_ns), traffic = static_cast<double>(w.memory_ns);
          const double longer = std::max(compute / (1 - sms), traffic / (1 - memory)) / std::max(compute, traffic);
          done[active[k]] += static_cast<double>(to - from) * rates[k] * speeds[d] / longer;
          wanted += rates[k] * speeds[d] * traffic / static_cast<double>(w.ns);
        }
        if (memory > 0 && wanted + memory > 1) share = std::min(share, 1 / (wanted + memory));
      }
      for (std::size_t f = 0; f < flows.size(); ++f)
        if (covers(flows[f].begin, flows[f].sent)) moved[f] += 100 * share * static_cast<double>(to - from);
    }
    for (TaskId t = 0; t < c.work.size(); ++t)
      EXPECT_NEAR(done[t], static_cast<double>(c.work[t].ns), 2) << "task " << t;
    for (std::size_t f = 0; f < flows.size(); ++f) EXPECT_NEAR(moved[f], static_cast<double>(bytes[f]), 200);
  }
}

}  // namespace
}  // namespace overtake
