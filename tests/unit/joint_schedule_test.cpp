// What the joint scheduler promises of its plans, on networks.

#include "plan/lanes/joint_schedule.h"
#include "optimizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "exec/cpu/target.h"
#include "machine/measured_costs.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"
#include "plan/in_order.h"
#include "plan/lanes/join_gradients.h"
#include "plan/lanes/lane_choices.h"
#include "plan/memory.h"
#include "sim/lane_simulator.h"
#include "unit/cpu_step.h"

namespace overtake {
namespace {

Profile random_profile(const Graph& g, std::uint32_t seed) {
  std::mt19937 random(seed);
  Profile p;
  for (std::size_t t = 0; t < g.tasks.size(); ++t) {
    p.alone_ns.push_back(random() % 8 == 0 ? 0 : 1000 + static_cast<std::int64_t>(random() % 99'000));
    p.load.push_back(0.2 + 0.01 * static_cast<double>(random() % 91));
    p.in_order_ns += p.alone_ns.back();
  }
  return p;
}

// Only the forward pass leaves room beside it, so that everything gains from being late.
Profile profile_for_delays(const Graph& g) {
  Profile p;
  for (const Task& t : g.tasks) {
    const bool is_forward = t.kind == Kind::forward,
               is_deferred = t.kind != Kind::forward && t.kind != Kind::input_grad;
    p.alone_ns.push_back(is_forward ? 20'000 : is_deferred ? 5'000 : 10'000);
    p.load.push_back(is_forward ? 0.3 : is_deferred ? 0.5 : 1.0);
    p.in_order_ns += p.alone_ns.back();
  }
  return p;
}

std::vector<Graph> networks() {
  return {cpu_step("cnn", "batch=4,width=4"), cpu_step("resnet-18", "batch=2,image=32,classes=10,width=8"),
          cpu_step("lstm", "batch=3,sequence=6,vocabulary=20,width=9,hidden=12,layers=2"),
          cpu_step("transformer", "layers=2,width=32,heads=4,sequence=16,batch=3", clipped_adamw()),
          cpu_step("densenet-121", "batch=2,image=32,classes=10,growth=4")};
}

void expect_critical_order(const Plan& plan) {
  TaskId last = 0;
  for (std::size_t l = 0; l < plan.lanes.size(); ++l)
    for (const TaskId t : plan.lanes[l].tasks) {
      const Kind kind = plan.graph.tasks[t].kind;
      if (kind != Kind::forward && kind != Kind::input_grad) continue;
      EXPECT_EQ(l, 0u) << plan.graph.task_name(t);
      EXPECT_GE(t, last);
      last = t;
    }
}

TEST(JointPlans, AreLegalAndNeverSlowerThanInOrder) {
  std::size_t delayed = 0, held = 0;
  std::uint32_t seed = 0;
  for (const Graph& graph : networks())
    for (const std::size_t side_lanes : {1u, 2u})
      for (const bool may_delay : {false, true})
        for (const std::uint64_t tries : {0u, 400u}) {
          SCOPED_TRACE(
              fmt::format("{}, {} side lanes, delays {}, {} tries", graph.model, side_lanes, may_delay, tries));
          const Profile profile = random_profile(graph, ++seed);
          std::int64_t predicted = 0;
          const Plan plan = schedule_jointly(
              graph, profile, {.side_lanes = side_lanes, .may_delay = may_delay, .most_tries = tries}, &predicted);
          EXPECT_NO_THROW(verify(plan));
          EXPECT_NO_THROW(verify(place_memory(plan)));
          const Plan waiting = with_waits_for_memory(plan, profile, 0.02);
          EXPECT_NO_THROW(verify(waiting));
          EXPECT_NO_THROW(verify(place_memory(waiting)));
          expect_critical_order(plan);
          EXPECT_LE(plan.lanes.size(), 1 + side_lanes);
          EXPECT_EQ(simulate(plan, profile).step_ns, predicted) << "what it says of the plan is what the plan takes";
          EXPECT_LE(predicted, profile.in_order_ns);
          const auto late = std::ranges::count_if(plan.graph.tasks, &Task::is_delayed);
          EXPECT_TRUE(may_delay || late == 0);
          delayed += static_cast<std::size_t>(late);
          held += plan.waits.size();
        }
  EXPECT_GT(delayed, 50u);
  EXPECT_GT(held, 50u);
}

// Nothing can be gained where every task fills the device: then nothing is.
TEST(JointPlans, InOrderWhereNothingIsGained) {
  for (const Graph& graph : networks()) {
    Profile profile = random_profile(graph, 77);
    profile.load.assign(graph.tasks.size(), 1.0);
    std::int64_t predicted = 0;
    schedule_jointly(graph, profile, {.most_tries = 200}, &predicted);
    EXPECT_EQ(predicted, profile.in_order_ns) << graph.model;
  }
}

TEST(JointPlans, AreTheSameEveryTime) {
  const Graph graph = cpu_step("cnn", "batch=4,width=4");
  const Profile profile = random_profile(graph, 5);
  const JointOptions options{.most_tries = 500};
  EXPECT_EQ(save_json(schedule_jointly(graph, profile, options)), save_json(schedule_jointly(graph, profile, options)));
}

// With clipping every update needs every gradient. So what is late is late for all of them, and all of it has ended
// before the first task that reads a weight.
TEST(JointPlans, ClippingWaitsForEveryGradient) {
  for (const char* name : {"cnn", "transformer"}) {
    SCOPED_TRACE(name);
    const Graph graph = cpu_step(
        name, name[0] == 'c' ? "batch=4,width=4" : "layers=2,width=32,heads=4,sequence=16,batch=3", clipped_adamw());
    const Profile profile = profile_for_delays(graph);
    const Plan plan = schedule_jointly(graph, profile, {.most_tries = 2000});
    const Trace trace = simulate(plan, profile);
    std::vector<Span> span(graph.tasks.size());
    for (const Span& s : trace.spans) span[s.task] = s;
    const Graph& g = plan.graph;
    TaskId clip = kNone;
    for (TaskId t = 0; t < g.tasks.size(); ++t)
      if (g.tasks[t].op == Op::clip_norm) clip = t;
    ASSERT_NE(clip, kNone);
    int late = 0;
    for (TaskId t = 0; t < g.tasks.size(); ++t) {
      const Task& task = g.tasks[t];
      late += task.is_delayed;
      if (task.kind == Kind::weight_grad && task.is_delayed) {
        EXPECT_TRUE(g.tasks[clip].is_delayed) << g.task_name(t);
        EXPECT_LE(span[t].end_ns, span[clip].begin_ns);
      }
      if (task.kind != Kind::update || t == clip || task.op == Op::squared_norm) continue;
      EXPECT_TRUE(task.is_delayed || !g.tasks[clip].is_delayed) << g.task_name(t);
      // A late update alone uses the factor of the step before, so it comes before this step's clipping.
      EXPECT_TRUE(task.is_delayed == g.tasks[clip].is_delayed ? span[clip].end_ns <= span[t].begin_ns
                                                              : span[t].end_ns <= span[clip].begin_ns)
          << g.task_name(t);
      const BufferId weight = g.reads(t)[0];
      for (TaskId reader = 0; reader < g.tasks.size(); ++reader) {
        const bool reads = std::ranges::find(g.reads(reader), weight) != g.reads(reader).end();
        if (reader == t || !reads) continue;
        EXPECT_TRUE(task.is_delayed ? span[t].end_ns <= span[reader].begin_ns : span[reader].end_ns <= span[t].begin_ns)
            << g.task_name(t) << " and " << g.task_name(reader);
      }
    }
    EXPECT_GT(late, 0);
  }
}

// The largest sum of bytes that are live at once in the model's time, from first principles.
double live_bytes(const Plan& plan, const Profile& profile) {
  const Graph& g = plan.graph;
  std::vector<Span> span(g.tasks.size());
  for (const Span& s : simulate(plan, profile).spans) span[s.task] = s;
  std::vector<std::pair<std::int64_t, double>> changes;
  std::vector<TaskId> writer(g.buffers.size(), kNone);
  for (TaskId t = 0; t < g.tasks.size(); ++t)
    for (const BufferId b : g.writes(t))
      if (b != kNone) writer[b] = t;
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    const Role role = g.buffers[b].role;
    if (writer[b] == kNone || is_persistent(role) || role == Role::input || role == Role::output) continue;
    const auto bytes = static_cast<double>(g.bytes(b));
    std::int64_t last = span[writer[b]].end_ns, carried = -1;
    for (TaskId t = 0; t < g.tasks.size(); ++t)
      if (std::ranges::find(g.reads(t), b) != g.reads(t).end()) {
        const bool is_carried = g.tasks[t].is_delayed && !g.tasks[writer[b]].is_delayed;
        (is_carried ? carried : last) = std::max(is_carried ? carried : last, span[t].end_ns);
      }
    changes.emplace_back(span[writer[b]].begin_ns, bytes);
    // What is carried over stays to the end of the step, and from its begin to its last reader.
    if (carried < 0) {
      changes.emplace_back(last, -bytes);
    } else {
      changes.emplace_back(0, bytes);
      changes.emplace_back(carried, -bytes);
    }
  }
  std::ranges::sort(changes);  // at one moment what dies goes first
  double live = 0, most = 0;
  for (const auto& [ns, bytes] : changes) most = std::max(most, live += bytes);
  return most;
}

// Where tasks take no time one begins when another ends that waits for it.
TEST(JointPlans, WaitsForMemoryAreNeverACircle) {
  const Graph graph = cpu_step("resnet-18", "batch=2,image=32,classes=10,width=8");
  const std::size_t tasks = graph.tasks.size();
  const Profile real{std::vector<std::int64_t>(tasks, 1000), std::vector<double>(tasks, 0.4), 0,
                     std::vector<std::int64_t>(tasks, 1500)};
  const Profile nothing{std::vector<std::int64_t>(tasks, 0), std::vector<double>(tasks, 0.4), 0,
                        std::vector<std::int64_t>(tasks, 0)};
  for (const std::size_t side_lanes : {1u, 2u}) {
    Plan plan = schedule_jointly(graph, real, {.side_lanes = side_lanes, .most_tries = 200});
    EXPECT_NO_THROW(verify(with_waits_for_memory(plan, nothing, 0.0)));
    plan = join_gradients(std::move(plan), real);
    EXPECT_NO_THROW(verify(with_waits_for_memory(plan, nothing, 0.0)));
  }
}

TEST(JointPlans, KeepToTheirMemory) {
  // Activations are most of it, and what is late keeps them.
  const Graph graph = cpu_step("gpt2", "batch=16,sequence=12,positions=16,vocabulary=50,width=32,heads=4,layers=4");
  const Profile profile = profile_for_delays(graph);
  const double in_order = live_bytes(schedule_in_order(graph), profile);
  const Plan free = schedule_jointly(graph, profile, {.most_tries = 2000});
  EXPECT_GT(live_bytes(free, profile), 1.15 * in_order) << "there is something to cap";
  for (const double cap : {1.15, 1.1, 1.05, 1.0}) {
    SCOPED_TRACE(cap);
    std::int64_t ns = 0;
    const Plan plan = schedule_jointly(graph, profile, {.most_tries = 2000, .most_memory = cap}, &ns);
    // The search looks at a thousand moments of the step.
    EXPECT_LE(live_bytes(plan, profile), 1.02 * cap * in_order);
    EXPECT_LE(ns, profile.in_order_ns);
    // Waits only take freedom away, so memory can be placed at least as well, up to the placer's luck.
    const std::uint64_t arena = place_memory(plan).arena_bytes;
    const Plan waiting = with_waits_for_memory(plan, profile, 0.0);
    EXPECT_LE(static_cast<double>(place_memory(waiting).arena_bytes), 1.02 * static_cast<double>(arena));
    EXPECT_GE(simulate(waiting, profile).step_ns, ns) << "waits cost time, or none";
    EXPECT_LE(simulate(waiting, profile).step_ns, ns + ns / 50);
  }
}

TEST(JointPlans, ChosenPlansAreUnderTheCap) {
  const Graph graph = cpu_step("resnet-18", "batch=8,image=32,classes=10,width=16");
  const Profile profile = random_profile(graph, 3);
  const std::uint64_t in_order = place_memory(schedule_in_order(graph)).arena_bytes;
  for (const double part : {0.0, 1.0, 1.05, 1.5}) {
    LaneOptions options{.schedule = "ooo", .most_lanes = 2, .search_tries = 500};
    if (part > 0) options.memory_cap = static_cast<std::uint64_t>(part * static_cast<double>(in_order));
    const auto cap = options.memory_cap.value_or(in_order + in_order / 10);
    std::string reason;
    const std::vector<PlanChoice> choices = lane_choices(graph, costs_of(profile), options, reason);
    EXPECT_EQ(choices.size() == 1, !reason.empty()) << reason;
    for (const PlanChoice& c : choices) {
      const Plan plan =
          place_memory(c.order.is_given() ? with_order(graph, c.order) : schedule_in_order(graph), options.memory_cap);
      EXPECT_LE(plan.arena_bytes, cap) << c.name;
      EXPECT_EQ(plan.arena_bytes, c.most_bytes()) << c.name;
      EXPECT_NO_THROW(verify(plan)) << c.name;
    }
  }
}  // namespace

// A search counts its tries, sixteen to a round, and looks at no clock: asked often enough, it is the same one.
TEST(JointPlans, KeepToTheirTries) {
  const Graph graph = cpu_step("cnn", "batch=4,width=4");
  const Profile profile = random_profile(graph, 3);
  int rounds = 0;
  JointOptions options{.most_tries = 64};
  options.is_cancelled = [&] { return ++rounds > 100; };
  schedule_jointly(graph, profile, options);
  EXPECT_EQ(rounds, 4);
}

TEST(JointPlans, StopWhenAsked) {
  const Graph graph = cpu_step("cnn", "batch=4,width=4");
  const Profile profile = random_profile(graph, 3);
  int asked = 0;
  JointOptions options{.most_tries = 1'000'000'000};
  options.is_cancelled = [&] { return ++asked > 3; };
  EXPECT_NO_THROW(verify(schedule_jointly(graph, profile, options)));
  EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace overtake
