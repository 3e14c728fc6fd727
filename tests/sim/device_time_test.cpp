// Where the time of a step goes, by hand.

#include "report/device_time.h"

#include <gtest/gtest.h>

#include "plan_case.h"
#include "sim_case.h"

namespace overtake {
namespace {

using tests::PlanCase;

TEST(DeviceTime, BusyExposedAndBubbleAddUp) {
  PlanCase c(3);
  const TaskId first = c.run(c.lane(0), 0), second = c.run(c.lane(0), 0), alone = c.run(c.lane(1), 0);
  c.send(c.wire(0), c.wire(1), c.buffer(1, Role::input));
  c.plan.lanes.push_back({.device = 0, .tasks = {}, .is_asynchronous = false});
  const TaskId beside = c.run(6, 0);
  Trace trace;
  trace.step_ns = 1000;
  trace.spans = {{first, 0, 0, 100},        {beside, 6, 50, 150},      {second, 0, 400, 600},
                 {c.sends[0], 1, 120, 300}, {c.recvs[0], 3, 120, 450}, {alone, 2, 450, 950}};
  const std::vector<DeviceTime> times = device_times(c.plan, trace);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0], (DeviceTime{350, 150, 500}));
  EXPECT_EQ(times[1], (DeviceTime{500, 330, 170}));
  EXPECT_EQ(times[2], (DeviceTime{0, 0, 1000}));
}

// In a row of steps the end of one lies beside the start of the next.
TEST(DeviceTime, WhatRunsPastTheStepRunsInTheNext) {
  PlanCase c(1);
  const TaskId task = c.run(c.lane(0), 0);
  const TaskId reduction = c.collective(c.wire(0), 0, c.buffer(1, Role::input), c.buffer(1));
  Trace trace;
  trace.step_ns = 1000;
  trace.spans = {{task, 0, 100, 800}, {reduction, 1, 700, 1250}};
  EXPECT_EQ(device_times(c.plan, trace)[0], (DeviceTime{700, 300, 0}));
  trace.spans = {{task, 0, 1100, 1800}, {reduction, 1, 700, 1050}};
  EXPECT_EQ(device_times(c.plan, trace)[0], (DeviceTime{700, 250, 50}));
  trace.spans = {{task, 0, 100, 200}, {reduction, 1, 200, 2500}};
  EXPECT_EQ(device_times(c.plan, trace)[0], (DeviceTime{100, 900, 0}));
}

TEST(DeviceTime, OfASimulatedStep) {
  PlanCase c(2);
  const BufferId x = c.buffer(100'000), y = c.buffer();
  c.run(c.lane(0), 1000, {}, {x});
  c.run(c.lane(1), 500, {c.send(c.wire(0), c.wire(1), x)}, {y});
  const JobResult r = tests::simulate_one(tests::small_cluster(1, 2), c.job());
  const std::vector<DeviceTime> times = device_times(c.plan, r.trace);
  EXPECT_EQ(times[0], (DeviceTime{1000, 1000, 1100}));  // computes, sends, waits for the other
  EXPECT_EQ(times[1], (DeviceTime{500, 1600, 1000}));   // waits, receives, computes
}

}  // namespace
}  // namespace overtake
