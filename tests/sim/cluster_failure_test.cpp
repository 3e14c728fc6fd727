// Devices that are gone, plans that wait for ever, plans that are wrong.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "plan_case.h"
#include "sim_case.h"

namespace overtake {
namespace {

using tests::plain;
using tests::PlanCase;
using tests::simulate_one;
using tests::small_cluster;
using tests::span_of;

bool says_of(const std::vector<StuckTask>& stuck, TaskId t, const std::string& text) {
  return std::ranges::any_of(stuck,
                             [&](const StuckTask& s) { return s.task == t && s.why.find(text) != std::string::npos; });
}
std::string all_of(const std::vector<StuckTask>& stuck) {
  std::string text;
  for (const StuckTask& s : stuck) text += s.why + "\n";
  return text;
}

TEST(ClusterFailure, ADeviceIsGone) {
  PlanCase c(4);
  std::vector<TaskId> tasks, reductions, updates;
  for (std::size_t d = 0; d < 4; ++d) {
    const BufferId x = c.buffer(400'000), y = c.buffer(400'000);
    tasks.push_back(c.run(c.lane(d), 1000, {}, {x}, "back"));
    reductions.push_back(c.collective(c.wire(d), 3, x, y));
    updates.push_back(c.run(c.lane(d), 10, {y}, {}, "update"));
  }
  const auto run = [&](std::int64_t at_ns) {
    ClusterOptions options = plain();
    options.algorithm = Algorithm::ring;
    options.failures = {{2, at_ns}};
    return simulate_one(small_cluster(1, 4), c.job(), options);
  };
  // In its task: the others begin to reduce, and wait for it.
  JobResult r = run(600);
  EXPECT_FALSE(r.is_finished);
  EXPECT_TRUE(r.step_ends_ns.empty());
  EXPECT_EQ(r.makespan_ns, 1000);
  EXPECT_EQ(r.trace.spans.size(), 3u);
  EXPECT_EQ(r.lane_progress, (std::vector<std::uint64_t>{1, 1, 1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(r.stuck[0].task, tasks[2]) << all_of(r.stuck);
  EXPECT_TRUE(says_of(r.stuck, tasks[2], "back.forward on n.0/d.2 does not end: the device is gone"))
      << all_of(r.stuck);
  EXPECT_TRUE(says_of(r.stuck, reductions[0], "c3.all_reduce on n.0/d.0 waits for c3.all_reduce on n.0/d.2, not begun"))
      << all_of(r.stuck);
  EXPECT_TRUE(says_of(r.stuck, updates[1], "waits for c3.all_reduce on n.0/d.1, not ended")) << all_of(r.stuck);
  EXPECT_EQ(r.stuck.size(), 8u) << all_of(r.stuck);  // every lane, the one with the task that is gone first
  for (const StuckTask& s : r.stuck)
    EXPECT_NE(std::ranges::find(c.plan.lanes[s.lane].tasks, s.task), c.plan.lanes[s.lane].tasks.end()) << s.why;
  // At the end of its task, which has ended; then in the all-reduce.
  for (const std::int64_t at_ns : {1000, 3000}) {
    r = run(at_ns);
    EXPECT_FALSE(r.is_finished);
    EXPECT_EQ(span_of(r.trace, tasks[2]).end_ns, 1000);
    EXPECT_EQ(r.trace.spans.size(), 4u);
  }
  EXPECT_TRUE(says_of(r.stuck, reductions[1], "waits for n.0/d.2, which is gone")) << all_of(r.stuck);
  // After the end nobody minds.
  EXPECT_TRUE(run(1'000'000).is_finished);
}

// A job that has nothing to do with the device goes on; one that sends to it does not. Steps before stay done.
TEST(ClusterFailure, AFailureIsForThoseWhoNeedTheDevice) {
  PlanCase c(2);
  const BufferId x = c.buffer(100'000), y = c.buffer();
  c.run(c.lane(0), 1000, {}, {x});
  c.run(c.lane(1), 100, {c.send(c.wire(0), c.wire(1), x)}, {y});
  std::vector<ClusterJob> jobs = {c.job(5), c.job(5)};
  jobs[1].devices = {2, 3};
  const Cluster cluster = small_cluster(1, 4);
  ClusterOptions options = plain();
  options.failures = {{1, 5000}};
  const std::vector<JobResult> r = simulate(cluster, make_topology(cluster), jobs, options);
  EXPECT_TRUE(r[1].is_finished);
  EXPECT_TRUE(r[1].stuck.empty());
  EXPECT_FALSE(r[0].is_finished);
  // The first two steps' messages are there at 2600 and 4600: x is written anew when it has been sent, at 2000, and
  // sent when it has been received.
  EXPECT_EQ(r[0].step_ends_ns, (std::vector<std::int64_t>{2700, 4700}));
  EXPECT_TRUE(says_of(r[0].stuck, c.recvs[0], "in step 2 does not end: the device is gone")) << all_of(r[0].stuck);
  EXPECT_TRUE(says_of(r[0].stuck, c.sends[0], "in step 2 waits for n.0/d.1, which is gone")) << all_of(r[0].stuck);
}

TEST(ClusterFailure, CollectivesInDifferentOrdersWaitForEver) {
  PlanCase c(2);
  std::vector<TaskId> t;
  for (const auto& [d, number] : {std::pair{0, 1}, {0, 2}, {1, 2}, {1, 1}})
    t.push_back(c.collective(c.lane(static_cast<std::size_t>(d)), number, c.buffer(100, Role::input), c.buffer(100)));
  const JobResult r = simulate_one(small_cluster(1, 2), c.job());
  EXPECT_FALSE(r.is_finished);
  EXPECT_EQ(r.makespan_ns, 0);
  ASSERT_EQ(r.stuck.size(), 2u) << all_of(r.stuck);
  EXPECT_EQ(r.stuck[0].why, "c1.all_reduce on n.0/d.0 waits for c1.all_reduce on n.0/d.1, not begun");
  EXPECT_EQ(r.stuck[1].why, "c2.all_reduce on n.0/d.1 waits for c2.all_reduce on n.0/d.0, not begun");
  // The same on lanes that do not wait.
  for (Lane& lane : c.plan.lanes) lane.is_asynchronous = true;
  EXPECT_TRUE(simulate_one(small_cluster(1, 2), c.job()).is_finished);
}

TEST(ClusterFailure, LanesThatWaitForEachOther) {
  PlanCase c(2);
  const BufferId x = c.buffer(), y = c.buffer();
  const TaskId last = c.run(c.lane(0), 10, {y}, {});
  const TaskId first = c.run(c.lane(0), 10, {}, {x});
  c.plan.lanes.push_back({.device = 0, .tasks = {}, .is_asynchronous = false});
  const TaskId second = c.run(4, 10, {x}, {y});
  ClusterJob job{.plan = &c.plan, .work = c.work, .devices = {0, 1}};
  const JobResult r = simulate_one(small_cluster(1, 2), job);
  EXPECT_FALSE(r.is_finished);
  EXPECT_TRUE(says_of(r.stuck, last, "waits for task.forward")) << all_of(r.stuck);
  EXPECT_TRUE(says_of(r.stuck, second, "waits for task.forward")) << all_of(r.stuck);
  EXPECT_FALSE(says_of(r.stuck, first, ""));
}

TEST(ClusterFailure, PlansThatAreWrongAreOurs) {
  const Cluster cluster = small_cluster(1, 2);
  PlanCase alone(2);
  alone.send(alone.wire(0), alone.wire(1), alone.buffer(1, Role::input));
  alone.plan.lanes[alone.wire(1)].tasks.clear();
  EXPECT_THROW(simulate_one(cluster, alone.job()), InternalError) << "nobody receives";
  PlanCase twice(1);
  for (int i = 0; i < 2; ++i) twice.collective(twice.wire(0), 1, twice.buffer(1, Role::input), twice.buffer(1));
  EXPECT_THROW(simulate_one(cluster, twice.job()), InternalError) << "twice on a device";
  PlanCase other(2);
  for (std::size_t d = 0; d < 2; ++d)
    other.collective(other.wire(d), 1, other.buffer(1 + static_cast<std::int64_t>(d), Role::input), other.buffer(1));
  EXPECT_THROW(simulate_one(cluster, other.job()), InternalError) << "different sizes";
  PlanCase task(1);
  task.run(task.wire(0), 10);
  EXPECT_THROW(simulate_one(cluster, task.job()), InternalError) << "a task on an asynchronous lane";
  PlanCase many(3);
  EXPECT_THROW(simulate_one(cluster, many.job()), InternalError) << "more devices than there are";
}

}  // namespace
}  // namespace overtake
