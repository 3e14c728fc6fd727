// Lanes on the model of time: by hand to the nanosecond, and against what must hold of any plan.

#include "sim/lane_simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "plan/in_order.h"
#include "random_plan.h"
#include "random_training.h"

namespace overtake {
namespace {

using tests::random_profile;
using tests::random_training_graph;

std::vector<double> rates(std::vector<double> loads) {
  std::vector<double> result(loads.size(), -1.0);
  rates_of(loads, result);
  return result;
}

void expect_rates(const std::vector<double>& loads, const std::vector<double>& want) {
  const std::vector<double> got = rates(loads);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << "task " << i;
}

TEST(Rates, LoadsThatFitGoAtFullSpeed) {
  expect_rates({0.3, 0.4}, {1, 1});
  expect_rates({0.25, 0.75}, {1, 1});  // exactly the device
  expect_rates({0.2, 0.3, 0.1, 0.4}, {1, 1, 1, 1});
}

TEST(Rates, OneTaskGoesAtFullSpeedWhateverItsLoad) {
  expect_rates({0.1}, {1});
  expect_rates({1.0}, {1});
  expect_rates({1.25}, {1});
}

TEST(Rates, EqualLoadsShareEvenly) {
  expect_rates({1, 1}, {0.5, 0.5});
  expect_rates({0.8, 0.8}, {0.625, 0.625});
  expect_rates({1, 1, 1, 1}, {0.25, 0.25, 0.25, 0.25});
}

// 0.1 is less than a third, so it keeps its speed; the other two share 0.9.
TEST(Rates, OneSmallBesideTwoLarge) {
  expect_rates({0.1, 0.9, 0.5}, {1, 0.5, 0.9});
  expect_rates({0.9, 0.1, 0.5}, {0.5, 1, 0.9});
  // What the first leaves makes room for the second: 0.4 > 1/3, but no more than (1 - 0.1) / 2.
  expect_rates({0.4, 0.1, 0.9}, {1, 1, 0.5 / 0.9});
}

TEST(Rates, LoadsBeyondTheDeviceAreSlowedMore) { expect_rates({1.25, 0.5}, {0.4, 1}); }

TEST(Rates, OrderDoesNotMatterAndTheDeviceIsFull) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<double> loads(2 + random() % 4);
    for (double& load : loads) load = 0.05 + 0.01 * static_cast<double>(random() % 120);
    const std::vector<double> forward = rates(loads);
    double total = 0, used = 0;
    for (std::size_t k = 0; k < loads.size(); ++k) {
      total += loads[k];
      used += loads[k] * forward[k];
      EXPECT_GT(forward[k], 0);
      EXPECT_LE(forward[k], 1);
      // Who is slowed down has at least as much as anyone else.
      for (std::size_t j = 0; j < loads.size() && forward[k] < 1; ++j)
        EXPECT_GE(loads[k] * forward[k], loads[j] * forward[j] - 1e-12);
    }
    EXPECT_NEAR(used, std::min(1.0, total), 1e-9);
    std::ranges::reverse(loads);
    std::vector<double> backward = rates(loads);
    std::ranges::reverse(backward);
    for (std::size_t k = 0; k < loads.size(); ++k) EXPECT_NEAR(backward[k], forward[k], 1e-12);
  }
}

// Tasks 0..n-1 with edges (after, before).
struct Case {
  Case(std::vector<std::int64_t> ns, std::vector<double> load, std::vector<std::pair<TaskId, TaskId>> edges = {})
      : profile{std::move(ns), std::move(load)}, simulator(profile) {
    simulator.set_dependencies(dependencies_from(std::move(edges), profile.alone_ns.size()));
  }
  void expect_span(TaskId t, std::int64_t begin, std::int64_t end) const {
    EXPECT_EQ(simulator.begins()[t], begin) << "task " << t;
    EXPECT_EQ(simulator.ends()[t], end) << "task " << t;
  }
  Profile profile;
  LaneSimulator simulator;
};

TEST(LaneSimulator, NothingTakesNoTime) {
  Case c({}, {});
  EXPECT_EQ(c.simulator.run({}), 0);
  EXPECT_EQ(c.simulator.run({{}, {}}), 0);
}

// 0 and 1 fit side by side; 2 beside the rest of 1 goes at half speed.
//   main: 0 [0,100) 2 [100,?)   side: 1 [0,300)
// From 100 to 300 the loads are 1 and 0.5: 1 keeps its speed, 2 does 100 of its 250; the other 150 alone: ends at 450.
TEST(LaneSimulator, TwoLanesByHand) {
  Case c({100, 300, 250}, {0.5, 0.5, 1.0});
  EXPECT_EQ(c.simulator.run({{0, 2}, {1}}), 450);
  c.expect_span(0, 0, 100);
  c.expect_span(1, 0, 300);
  c.expect_span(2, 100, 450);
}

// 1 (side) waits for 0; 2 (main) runs meanwhile; 3 waits for 1.
TEST(LaneSimulator, DependenciesByHand) {
  Case c({100, 80, 40, 10}, {1, 1, 1, 1}, {{1, 0}, {3, 1}});
  // 0 [0,100); then 1 and 2 at half speed: 2 ends at 180, 1 has 40 left and ends at 220; 3 [220,230).
  EXPECT_EQ(c.simulator.run({{0, 2, 3}, {1}}), 230);
  c.expect_span(0, 0, 100);
  c.expect_span(2, 100, 180);
  c.expect_span(1, 100, 220);
  c.expect_span(3, 220, 230);
}

TEST(LaneSimulator, HoldsByHand) {
  Case c({100, 50, 60}, {0.9, 0.1, 0.9});
  EXPECT_EQ(c.simulator.run({{0, 1}, {2}}, {kNone, kNone, 0}), 160);
  c.expect_span(2, 100, 160);
  EXPECT_EQ(c.simulator.run({{0, 1}, {2}}, {kNone, kNone, 1}), 210);
  c.expect_span(2, 150, 210);
  // Free: both at 5/9 of their speed. 2 ends at 108; 0 has done 60 and ends 40 later.
  EXPECT_EQ(c.simulator.run({{0, 1}, {2}}), 198);
  c.expect_span(2, 0, 108);
  c.expect_span(0, 0, 148);
}

// A step is never shorter than a nanosecond, and ends are whole ones: 10 ns at 0.625 are 16.
TEST(LaneSimulator, EndsAreWholeNanoseconds) {
  Case c({10, 10, 1, 3}, {0.8, 0.8, 1, 1});
  EXPECT_EQ(c.simulator.run({{0}, {1}}), 16);
  Case odd({1, 3}, {1, 1});
  EXPECT_EQ(odd.simulator.run({{0}, {1}}), 4);
  odd.expect_span(0, 0, 2);
}

TEST(LaneSimulator, TasksOfNoTimePassInARow) {
  Case c({0, 0, 0, 20, 0, 0}, {1, 1, 1, 1, 1, 1}, {{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 4}});
  EXPECT_EQ(c.simulator.run({{0, 2, 4}, {1, 3, 5}}), 20);
  c.expect_span(2, 0, 0);
  c.expect_span(3, 0, 20);
  c.expect_span(4, 20, 20);
  c.expect_span(5, 20, 20);
  Case only({0, 0}, {1, 1}, {{1, 0}});
  EXPECT_EQ(only.simulator.run({{1}, {0}}), 0);
}

TEST(LaneSimulator, TasksOnNoLaneCountAsDone) {
  Case c({100, 50, 70}, {1, 1, 1}, {{1, 0}, {2, 1}});
  EXPECT_EQ(c.simulator.run({{1}}), 50);
  c.expect_span(1, 0, 50);
  EXPECT_EQ(c.simulator.run({{2}, {0}}), 170);  // side by side at half speed: 2 ends at 140, 0 has 30 left
  c.expect_span(2, 0, 140);
  EXPECT_EQ(c.simulator.run({{0, 1, 2}}), 220);
}

TEST(LaneSimulator, ADeadlockIsNever) {
  Case c({10, 10, 10}, {1, 1, 1}, {{1, 0}, {0, 2}});
  EXPECT_EQ(c.simulator.run({{1, 0}, {2}}), LaneSimulator::kNever);
  EXPECT_EQ(c.simulator.run({{0, 1}, {2}}), 30);
  EXPECT_EQ(c.simulator.run({{0}, {2, 1}}, {kNone, kNone, 1}), LaneSimulator::kNever);
  EXPECT_EQ(c.simulator.run({{0, 1}, {2}}), 30) << "the run before left nothing behind";
}

TEST(LaneSimulator, OtherDependenciesFromThenOn) {
  Case c({10, 10}, {0.5, 0.5}, {{1, 0}});
  EXPECT_EQ(c.simulator.run({{0}, {1}}), 20);
  c.simulator.set_dependencies(dependencies_from({}, 2));
  EXPECT_EQ(c.simulator.run({{0}, {1}}), 10);
}

// x -> forward(w) -> a -> input_grad -> g; weight_grad(a, g) -> dw; update(w, dw) -> w.
Graph one_layer() {
  Graph g;
  const LayerId layer = g.add_layer("layer");
  const auto buffer = [&](const char* name, Role role) { return g.add_buffer(name, {8}, DType::f32, role); };
  const BufferId x = buffer("x", Role::input), w = buffer("w", Role::weight), v = buffer("v", Role::weight);
  const BufferId a = buffer("a", Role::activation), y = buffer("y", Role::activation);
  const BufferId dy = buffer("dy", Role::gradient), dw = buffer("dw", Role::weight_gradient);
  g.add_task(Kind::forward, Op::linear, layer, 0, {x, v}, {a});
  g.add_task(Kind::forward, Op::linear, layer, 0, {a, w}, {y});
  g.add_task(Kind::input_grad, Op::mse, layer, 0, {y}, {dy});
  g.add_task(Kind::weight_grad, Op::linear, layer, 0, {dy, a}, {dw});
  g.add_task(Kind::update, Op::sgd, layer, 0, {w, dw}, {w});
  verify(g);
  return g;
}

void expect_spans(const Trace& trace, const std::vector<std::pair<std::int64_t, std::int64_t>>& want) {
  ASSERT_EQ(trace.spans.size(), want.size());
  for (const Span& s : trace.spans)
    EXPECT_EQ(std::pair(s.begin_ns, s.end_ns), want[s.task]) << "task " << s.task << " on lane " << s.lane;
}

TEST(Simulate, PlansByHand) {
  const Profile profile{{10, 20, 5, 40, 4}, {1, 1, 1, 0.5, 0.5}};
  Plan plan = schedule_in_order(one_layer());
  Trace trace = simulate(plan, profile);
  EXPECT_EQ(trace.step_ns, 79);
  expect_spans(trace, {{0, 10}, {10, 30}, {30, 35}, {35, 75}, {75, 79}});

  plan.lanes = {{0, {0, 1, 2}}, {0, {3, 4}}};
  trace = simulate(plan, profile);
  EXPECT_EQ(trace.step_ns, 79) << "everything waits for what is before it";

  // The update alone is late: before the forward pass that reads its weight, beside the one that does not.
  plan.graph.tasks[4].is_delayed = true;
  plan.lanes = {{0, {0, 1, 2, 3}}, {0, {4}}};
  verify(plan);
  trace = simulate(plan, profile);
  EXPECT_EQ(trace.step_ns, 77);  // 4 ns at load 0.5 take 2 from the first task
  expect_spans(trace, {{0, 12}, {12, 32}, {32, 37}, {37, 77}, {0, 4}});

  // The weight gradient is late too: it reads `a` before the first task writes it anew.
  plan.graph.tasks[3].is_delayed = true;
  plan.lanes = {{0, {0, 1, 2}}, {0, {3, 4}}};
  verify(plan);
  trace = simulate(plan, profile);
  EXPECT_EQ(trace.step_ns, 77);
  expect_spans(trace, {{40, 52}, {52, 72}, {72, 77}, {0, 40}, {40, 44}});
}

TEST(Simulate, WaitsOfThePlanCount) {
  const Profile profile{{10, 20, 5, 40, 4}, {0.5, 0.5, 0.5, 0.5, 0.5}};
  Plan plan = schedule_in_order(one_layer());
  plan.graph.tasks[4].is_delayed = true;
  plan.lanes = {{0, {0, 1, 2, 3}}, {0, {4}}};
  EXPECT_EQ(simulate(plan, profile).step_ns, 75);
  plan.waits = {{0, 4}};  // the update after the first task, then the second waits for it
  verify(plan);
  const Trace trace = simulate(plan, profile);
  EXPECT_EQ(trace.step_ns, 79);
  expect_spans(trace, {{0, 10}, {14, 34}, {34, 39}, {39, 79}, {10, 14}});
}

TEST(Simulate, SkippedTasksCountAsDoneAndADeadlockIsOurs) {
  const Profile profile{{10, 20, 5, 40, 4}, {1, 1, 1, 1, 1}};
  const Plan forward = schedule_forward(one_layer());
  EXPECT_EQ(simulate(forward, profile).step_ns, 30);
  Plan plan = schedule_in_order(one_layer());
  plan.lanes[0].tasks = {4, 3, 2, 1, 0};
  EXPECT_THROW(simulate(plan, profile), InternalError);
}

// What the device has done of a task's load between two moments, as sum of load and time.
double load_of(const Profile& p, TaskId t) { return p.load[t] * static_cast<double>(p.alone_ns[t]); }

struct Bounds {
  double load = 0;                 // all of it, and a task's load alone is at most the device's
  std::int64_t critical_path = 0;  // along dependencies, waits and lanes
};

Bounds bounds_of(const Plan& plan, const Profile& p) {
  Bounds bounds;
  const Dependencies deps = dependencies(plan);
  const HappensBefore order = happens_before(plan, deps);
  std::vector<std::int64_t> end(plan.graph.tasks.size(), 0);
  for (const TaskId t : order.topological) {
    std::int64_t begin = order.place_of[t] == 0 ? 0 : end[plan.lanes[order.lane_of[t]].tasks[order.place_of[t] - 1]];
    for (const TaskId before : deps.of(t)) begin = std::max(begin, end[before]);
    end[t] = begin + p.alone_ns[t];
    bounds.critical_path = std::max(bounds.critical_path, end[t]);
    bounds.load += std::min(1.0, p.load[t]) * static_cast<double>(p.alone_ns[t]);
  }
  return bounds;
}

// The work that is done between any two neighbouring moments of a trace, from the rates the contract gives, adds up to
// each task's own time.
void expect_work_conserved(const Trace& trace, const Profile& p) {
  std::vector<std::int64_t> moments = {0};
  for (const Span& s : trace.spans) {
    moments.push_back(s.begin_ns);
    moments.push_back(s.end_ns);
  }
  std::ranges::sort(moments);
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  std::vector<double> done(p.alone_ns.size(), 0);
  for (std::size_t i = 0; i + 1 < moments.size(); ++i) {
    std::vector<TaskId> active;
    std::vector<double> loads;
    for (const Span& s : trace.spans)
      if (s.begin_ns <= moments[i] && s.end_ns >= moments[i + 1]) {
        active.push_back(s.task);
        loads.push_back(p.load[s.task]);
      }
    ASSERT_FALSE(active.empty()) << "nothing runs at " << moments[i];
    const std::vector<double> speed = rates(loads);
    for (std::size_t k = 0; k < active.size(); ++k)
      done[active[k]] += speed[k] * static_cast<double>(moments[i + 1] - moments[i]);
  }
  double load = 0, want = 0;
  for (const Span& s : trace.spans) {
    EXPECT_NEAR(done[s.task], static_cast<double>(p.alone_ns[s.task]), 2.0) << "task " << s.task;
    load += p.load[s.task] * done[s.task];
    want += load_of(p, s.task);
  }
  EXPECT_NEAR(load, want, 1e-4 * want + 2);
}

TEST(Simulate, RandomPlansConserveWorkAndKeepTheirBounds) {
  std::mt19937 random(2);
  int overlapped = 0;
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE(i);
    Graph graph = random_training_graph(random);
    if (i % 2 == 1) delay_at_random(graph, random);
    const Profile p = random_profile(graph.tasks.size(), random);
    Plan plan = random_plan(graph, 1 + static_cast<std::size_t>(i) % 4, random);
    // Waits along the order that the plan was drawn in are legal.
    const HappensBefore drawn = happens_before(plan, dependencies(plan));
    for (std::size_t k = 0; k < drawn.topological.size() && i % 3 == 0; ++k)
      if (const std::size_t j = k + 1 + random() % 5; j < drawn.topological.size() && random() % 4 == 0)
        plan.waits.push_back({drawn.topological[k], drawn.topological[j]});
    std::ranges::sort(plan.waits);
    verify(plan);
    const Trace trace = simulate(plan, p);
    ASSERT_EQ(trace.spans.size(), graph.tasks.size());
    expect_work_conserved(trace, p);
    const Bounds bounds = bounds_of(plan, p);
    EXPECT_GE(trace.step_ns, bounds.critical_path);
    EXPECT_GE(static_cast<double>(trace.step_ns), bounds.load - 1);
    std::int64_t sum = 0, last = 0;
    std::vector<std::int64_t> begin(graph.tasks.size()), end(graph.tasks.size());
    for (const Span& s : trace.spans) {
      sum += p.alone_ns[s.task];
      last = std::max(last, end[s.task] = s.end_ns);
      begin[s.task] = s.begin_ns;
      EXPECT_GE(s.end_ns - s.begin_ns, p.alone_ns[s.task]);
    }
    EXPECT_EQ(last, trace.step_ns);
    overlapped += trace.step_ns < sum;
    const Dependencies deps = dependencies(plan);
    for (TaskId t = 0; t < graph.tasks.size(); ++t)
      for (const TaskId before : deps.of(t)) EXPECT_LE(end[before], begin[t]);
    for (const Lane& lane : plan.lanes)
      for (std::size_t k = 0; k + 1 < lane.tasks.size(); ++k) EXPECT_LE(end[lane.tasks[k]], begin[lane.tasks[k + 1]]);

    // Again: the same to the nanosecond.
    const Trace again = simulate(plan, p);
    EXPECT_EQ(again.step_ns, trace.step_ns);
    for (std::size_t k = 0; k < trace.spans.size(); ++k) {
      EXPECT_EQ(again.spans[k].begin_ns, trace.spans[k].begin_ns);
      EXPECT_EQ(again.spans[k].end_ns, trace.spans[k].end_ns);
    }
  }
  EXPECT_GT(overlapped, 200) << "tasks did run side by side";
}

TEST(Simulate, InOrderIsTheSumOfTimes) {
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    const Graph graph = random_training_graph(random);
    const Profile p = random_profile(graph.tasks.size(), random);
    std::int64_t sum = 0;
    for (const std::int64_t ns : p.alone_ns) sum += ns;
    EXPECT_EQ(simulate(schedule_in_order(graph), p).step_ns, sum);
  }
}

}  // namespace
}  // namespace overtake
