#include "overtake/graph.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "exec/cpu/target.h"
#include "graph/fingerprint.h"
#include "ops/check_task.h"
#include "overtake/plan.h"
#include "overtake/zoo.h"
#include "passes/differentiate.h"
#include "passes/training_passes.h"
#include "plan/in_order.h"
#include "plan/memory.h"

namespace overtake {
namespace {

using nlohmann::json;

Graph forward_graph(const std::string& name) {
  const bool is_image = name == "ffnn" || name == "lenet" || name == "cnn";
  return build_model(name, ModelSettings::parse(is_image ? "batch=3" : "batch=3,width=32"));
}

Graph training_graph(const std::string& name) {
  const CpuTarget target;
  PassRunner runner;
  TrainingPassOptions options;
  options.optimizer.clip_norm = 1;
  return build_training_graph(forward_graph(name), target, options, runner);
}

// x -> a -> b -> loss, where a reads a weight that an update changes.
struct SmallGraph {
  Graph g;
  BufferId x, w, a, b, loss, dw;
  TaskId first, second, last, grad, update;

  SmallGraph() {
    g.model = "small";
    const LayerId layer = g.add_layer("layer");
    const auto buffer = [&](const char* name, Role role) { return g.add_buffer(name, {4}, DType::f32, role); };
    x = buffer("x", Role::input);
    w = buffer("w", Role::weight);
    a = buffer("a", Role::activation);
    b = buffer("b", Role::activation);
    loss = buffer("loss", Role::output);
    dw = buffer("dw", Role::weight_gradient);
    g.losses = {loss};
    g.parameters = {{.buffer = w, .gradient = dw, .init = {Init::Kind::normal, 0.5}}};
    first = g.add_task(Kind::forward, Op::add, layer, 0, {x, w}, {a});
    second =
        g.add_task(Kind::forward, Op::activation, layer, g.add_attrs({{"function", std::string("relu")}}), {a}, {b});
    last = g.add_task(Kind::forward, Op::mse, layer, 0, {b, x}, {loss});
    grad = g.add_task(Kind::weight_grad, Op::sum, layer, 0, {b}, {dw});
    update = g.add_task(Kind::update, Op::sgd, layer, 0, {w, dw, kNone, kNone}, {w, kNone});
  }
};

// The error's text holds these words.
template <class Error>
void expect_error(const std::function<void()>& run, const std::string& words) {
  try {
    run();
    FAIL() << "nothing was thrown; expected '" << words << "'";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

// The number may be another process's.
TEST(Graph, NumbersBeyondAListHaveANameToo) {
  EXPECT_EQ(to_string(static_cast<DType>(200)), "unknown");
  EXPECT_EQ(to_string(static_cast<Kind>(200)), "unknown");
  EXPECT_EQ(to_string(static_cast<Role>(200)), "unknown");
  EXPECT_EQ(to_string(static_cast<Op>(200)), "unknown");
}

TEST(Graph, RoundTripOfForwardAndTrainingGraphs) {
  for (const char* name : {"ffnn", "lenet", "cnn", "transformer", "lstm", "gru"}) {
    SCOPED_TRACE(name);
    for (const Graph& g : {forward_graph(name), training_graph(name)}) {
      const std::string text = save_json(g);
      const Graph back = load_graph_json(text);
      EXPECT_EQ(print(back), print(g));
      EXPECT_EQ(save_json(back), text);
    }
  }
}

TEST(Graph, LoadedGraphGoesOnLikeTheSavedOne) {
  for (const char* name : {"cnn", "transformer"}) {
    const Graph g = forward_graph(name);
    EXPECT_EQ(print(differentiate(load_graph_json(save_json(g)))), print(differentiate(g)));
  }
}

TEST(Graph, RoundTripOfPlansAndTraces) {
  for (Plan plan : {schedule_in_order(training_graph("cnn")), schedule_forward(training_graph("cnn"))}) {
    plan = place_memory(std::move(plan));
    const std::string text = save_json(plan);
    const Plan back = load_plan_json(text);
    EXPECT_EQ(save_json(back), text);
    EXPECT_EQ(back.offsets, plan.offsets);
    EXPECT_EQ(back.shares, plan.shares);
    EXPECT_EQ(back.arena_bytes, plan.arena_bytes);
  }
  const Trace trace{{{3, 1, 20, 50}, {4, 0, -1, 1ll << 40}}, 77};
  const std::string text = save_json(trace);
  EXPECT_EQ(save_json(load_trace_json(text)), text);
}

TEST(Graph, EqualAttributesAndStringsAreStoredOnce) {
  Graph g;
  const AttrsId a = g.add_attrs({{"k", std::int64_t{1}}}), b = g.add_attrs({{"k", 1.0}});
  EXPECT_NE(a, b);  // an integer is no real
  EXPECT_EQ(g.add_attrs({{"k", std::int64_t{1}}}), a);
  EXPECT_EQ(g.add_attrs({}), 0u);
  EXPECT_EQ(g.intern("name"), g.intern("name"));
}

TEST(Graph, TaskNames) {
  SmallGraph s;
  EXPECT_EQ(s.g.task_name(s.grad), "layer.weight_grad");
  s.g.tasks[s.grad].micro_batch = 3;
  EXPECT_EQ(s.g.task_name(s.grad), "layer.weight_grad#3");
}

TEST(Graph, DependenciesFollowReadsAndWrites) {
  const SmallGraph s;
  const Dependencies deps = dependencies(s.g);
  const auto of = [&](TaskId t) { return std::vector<TaskId>(deps.of(t).begin(), deps.of(t).end()); };
  EXPECT_EQ(of(s.first), (std::vector<TaskId>{}));
  EXPECT_EQ(of(s.second), (std::vector<TaskId>{s.first}));
  EXPECT_EQ(of(s.last), (std::vector<TaskId>{s.second}));
  EXPECT_EQ(of(s.grad), (std::vector<TaskId>{s.second}));
  EXPECT_EQ(of(s.update), (std::vector<TaskId>{s.first, s.grad}));  // after every reader of the weight
  const Dependencies next = reversed(deps);
  EXPECT_EQ(std::vector<TaskId>(next.of(s.first).begin(), next.of(s.first).end()),
            (std::vector<TaskId>{s.second, s.update}));
}

TEST(Graph, DependenciesAcrossSteps) {
  SmallGraph s;
  const auto of = [&](TaskId t) {
    const Dependencies deps = dependencies_across_steps(s.g);
    return std::vector<TaskId>(deps.of(t).begin(), deps.of(t).end());
  };
  EXPECT_EQ(of(s.first), (std::vector<TaskId>{s.second, s.update}));  // writes `a` anew, reads the new weight
  EXPECT_EQ(of(s.second), (std::vector<TaskId>{s.last, s.grad}));
  EXPECT_EQ(of(s.last), (std::vector<TaskId>{}));
  EXPECT_EQ(of(s.grad), (std::vector<TaskId>{s.update}));
  EXPECT_EQ(of(s.update), (std::vector<TaskId>{}));
  // Who writes what a view shows waits for those who read the view.
  s.g.tasks[s.second].op = Op::reshape;
  EXPECT_EQ(of(s.first), (std::vector<TaskId>{s.second, s.last, s.grad, s.update}));
  s.g.tasks[s.second].op = Op::activation;
  // A delayed update comes before the forward of its own pass, and reads what the pass before left.
  s.g.tasks[s.update].is_delayed = true;
  EXPECT_EQ(of(s.first), (std::vector<TaskId>{s.second}));
  EXPECT_EQ(of(s.grad), (std::vector<TaskId>{}));
  EXPECT_EQ(of(s.update), (std::vector<TaskId>{s.first, s.grad}));
}

// Every way in which a file can be damaged is the user's error.
TEST(GraphFile, DamageIsAUserError) {
  const json good = json::parse(save_json(SmallGraph().g));
  const auto expect_refused = [&](const char* what, const std::function<void(json&)>& damage,
                                  const std::string& words) {
    SCOPED_TRACE(what);
    json bad = good;
    damage(bad);
    expect_error<UserError>([&] { load_graph_json(bad.dump()); }, words);
  };
  ASSERT_NO_THROW(load_graph_json(good.dump()));
  expect_refused(
      "op", [](json& j) { j["tasks"][0][1] = "nonsense"; }, "unknown op: 'nonsense'");
  expect_refused(
      "kind", [](json& j) { j["tasks"][0][0] = "nonsense"; }, "nonsense");
  expect_refused(
      "role", [](json& j) { j["buffers"][0][2] = "nonsense"; }, "nonsense");
  expect_refused(
      "type", [](json& j) { j["buffers"][0][1] = "f64"; }, "f64");
  expect_refused(
      "layout", [](json& j) { j["buffers"][0][4] = "zz"; }, "zz");
  expect_refused(
      "layout of another rank", [](json& j) { j["buffers"][0][4] = "abcd"; }, "layout");
  expect_refused(
      "rank", [](json& j) { j["buffers"][0][3] = {1, 1, 1, 1, 1, 1, 1}; }, "dimensions");
  expect_refused(
      "negative dimension", [](json& j) { j["buffers"][0][3] = {-4}; }, "x");
  expect_refused(
      "inside an unknown buffer", [](json& j) { j["buffers"][0][6] = 1000; }, "unknown buffer 1000");
  expect_refused(
      "inside one it does not fit", [](json& j) { j["buffers"][0][6] = 1; }, "cannot lie at channel 0");
  expect_refused(
      "gaps without a place",
      [](json& j) {
        j["buffers"][0][4] = to_string(plain_layout(static_cast<int>(j["buffers"][0][3].size()))) + "/999";
      },
      "gaps");
  expect_refused(
      "format", [](json& j) { j["format"] = 99; }, "format 99");
  expect_refused(
      "no tasks", [](json& j) { j.erase("tasks"); }, "tasks");
  expect_refused(
      "tasks are no list of lists",
      [](json& j) {
        j["tasks"] = {1, 2};
      },
      "graph file");
  expect_refused(
      "short row", [](json& j) { j["tasks"][0].erase(7); }, "graph file");
  expect_refused(
      "text for a number", [](json& j) { j["tasks"][0][2] = "layer"; }, "graph file");
  expect_refused(
      "unknown read", [](json& j) { j["tasks"][0][6][0] = 1000; }, "unknown buffer 1000");
  expect_refused(
      "unknown write", [](json& j) { j["tasks"][0][7][0] = 1000; }, "unknown buffer 1000");
  expect_refused(
      "unknown layer", [](json& j) { j["tasks"][0][2] = 1000; }, "layer");
  expect_refused(
      "unknown attributes", [](json& j) { j["tasks"][0][3] = 1000; }, "attributes");
  expect_refused(
      "unknown loss", [](json& j) { j["losses"] = {1000}; }, "loss");
  expect_refused(
      "unknown parameter", [](json& j) { j["parameters"][0][0] = 1000; }, "parameter");
  expect_refused(
      "unknown gradient", [](json& j) { j["parameters"][0][1] = 1000; }, "parameter");
  expect_refused(
      "unknown start", [](json& j) { j["parameters"][0][2] = 17; }, "parameter");
  expect_refused(
      "cycle", [](json& j) { j["tasks"][0][6][1] = 3; }, "waits for itself");
  expect_refused(
      "attribute", [](json& j) { j["attrs"][1]["function"] = nullptr; }, "graph file");
  for (const char* text : {"", "{", "[]", "null", "42", "\"graph\"", "{\"format\":1}"})
    expect_error<UserError>([&] { load_graph_json(text); }, "graph file");
}

TEST(PlanFile, DamageIsAUserError) {
  const json good = json::parse(save_json(place_memory(schedule_in_order(SmallGraph().g))));
  const auto expect_refused = [&](const char* what, const std::function<void(json&)>& damage) {
    SCOPED_TRACE(what);
    json bad = good;
    damage(bad);
    expect_error<UserError>([&] { load_plan_json(bad.dump()); }, "plan file");
  };
  ASSERT_NO_THROW(load_plan_json(good.dump()));
  expect_refused("no graph", [](json& j) { j.erase("graph"); });
  expect_refused("unknown task", [](json& j) { j["lanes"][0]["tasks"][0] = 1000; });
  expect_refused("too few offsets", [](json& j) { j["offsets"].erase(0); });
  expect_refused("too few flags", [](json& j) { j["skipped"] = {0}; });
  expect_refused("share of nothing", [](json& j) { j["shares"] = {{1000, 2000}}; });
  expect_refused("share of what nobody writes", [](json& j) { j["shares"] = {{2, 0}}; });
  expect_refused("arena too small", [](json& j) { j["arena_bytes"] = 8; });
  expect_error<UserError>([&] { load_trace_json("[1]"); }, "trace file");
}

TEST(Verify, DoubleWriter) {
  SmallGraph s;
  s.g.add_task(Kind::forward, Op::activation, 0, 0, {s.x}, {s.a});
  expect_error<InternalError>([&] { verify(s.g); }, "buffer a is written by");
}

TEST(Verify, ReadOfNothing) {
  SmallGraph s;
  const BufferId ghost = s.g.add_buffer("ghost", {4}, DType::f32, Role::activation);
  s.g.add_task(Kind::forward, Op::activation, 0, 0, {ghost}, {});
  expect_error<InternalError>([&] { verify(s.g); }, "reads ghost, which nothing writes");
}

TEST(Verify, WrittenInput) {
  SmallGraph s;
  s.g.add_task(Kind::forward, Op::activation, 0, 0, {s.a}, {s.x});
  expect_error<InternalError>([&] { verify(s.g); }, "writes the input x");
}

TEST(Verify, UnknownBuffer) {
  SmallGraph s;
  s.g.add_task(Kind::forward, Op::activation, 0, 0, {1000}, {});
  expect_error<InternalError>([&] { verify(s.g); }, "unknown buffer 1000");
}

TEST(Verify, Cycle) {
  SmallGraph s;
  s.g.set_operands(s.first, std::vector{s.b, s.w}, std::vector{s.a});
  expect_error<InternalError>([&] { verify(s.g); }, "waits for itself");
}

// An update that the gradient of the same weight waits for.
TEST(Verify, CycleThroughAWeight) {
  SmallGraph s;
  const BufferId step = s.g.add_buffer("step", {1}, DType::f32, Role::activation);
  s.g.set_operands(s.update, std::vector{s.w, s.dw}, std::vector{s.w, step});
  s.g.set_operands(s.first, std::vector{s.x, s.w, step}, std::vector{s.a});
  expect_error<InternalError>([&] { verify(s.g); }, "waits for itself");
}

TEST(Verify, MissingTask) {
  Plan plan = schedule_in_order(SmallGraph().g);
  plan.lanes[0].tasks.pop_back();
  expect_error<InternalError>([&] { verify(plan); }, "layer.update is on no lane");
}

TEST(Verify, TaskPlannedTwiceOrUnknown) {
  Plan plan = schedule_in_order(SmallGraph().g);
  plan.lanes[0].tasks.push_back(2);
  expect_error<InternalError>([&] { verify(plan); }, "task 2 is unknown or planned twice");
  plan.lanes[0].tasks.back() = 1000;
  expect_error<InternalError>([&] { verify(plan); }, "task 1000 is unknown or planned twice");
}

TEST(Verify, LaneOfAnotherDevice) {
  Plan plan = schedule_in_order(SmallGraph().g);
  plan.lanes[0].device = 1;
  expect_error<InternalError>([&] { verify(plan); }, "another device");
}

TEST(Verify, WrongOrderOnOneLane) {
  Plan plan = schedule_in_order(SmallGraph().g);
  std::swap(plan.lanes[0].tasks[0], plan.lanes[0].tasks[1]);
  expect_error<InternalError>([&] { verify(plan); }, "deadlock: lane 0");
}

// Each lane alone could run, but each waits for the other.
TEST(Verify, DeadlockOfTwoLanes) {
  Graph g;
  const LayerId layer = g.add_layer("layer");
  const BufferId x = g.add_buffer("x", {4}, DType::f32, Role::input);
  BufferId made[4];
  for (int i = 0; i < 4; ++i) made[i] = g.add_buffer("b" + std::to_string(i), {4}, DType::f32, Role::activation);
  const TaskId a = g.add_task(Kind::forward, Op::activation, layer, 0, {x}, {made[0]});
  const TaskId after_a = g.add_task(Kind::forward, Op::activation, layer, 0, {made[0]}, {made[1]});
  const TaskId b = g.add_task(Kind::forward, Op::activation, layer, 0, {x}, {made[2]});
  const TaskId after_b = g.add_task(Kind::forward, Op::activation, layer, 0, {made[2]}, {made[3]});
  Plan plan;
  plan.graph = g;
  plan.lanes = {{0, {after_b, a}}, {0, {after_a, b}}};
  expect_error<InternalError>([&] { verify(plan); }, "deadlock");
  plan.lanes = {{0, {a, after_b}}, {0, {b, after_a}}};
  EXPECT_NO_THROW(verify(plan));
}

TEST(Verify, OverlappingLiveBuffers) {
  const SmallGraph s;
  Plan plan = schedule_in_order(s.g);
  plan.offsets = {64, 0, 128, 192, 256, 320};  // x, w, a, b, loss, dw: each for itself
  plan.persistent_bytes = 64;
  plan.arena_bytes = 384;
  EXPECT_NO_THROW(verify(plan));
  const auto with = [&](BufferId b, std::uint64_t offset, std::vector<Share> shares = {}) {
    Plan other = plan;
    other.offsets[b] = offset;
    other.shares = std::move(shares);
    return other;
  };
  const std::string clash = "live at once on the same bytes";
  expect_error<InternalError>([&] { verify(with(s.b, plan.offsets[s.x])); }, "buffers x and b are " + clash);
  expect_error<InternalError>([&] { verify(with(s.dw, plan.offsets[s.w] + 8)); }, clash);  // half of it
  expect_error<InternalError>([&] { verify(with(s.b, plan.offsets[s.a])); }, clash);       // in place, not declared
  EXPECT_NO_THROW(verify(with(s.b, plan.offsets[s.a], {{s.a, s.b}})));
  EXPECT_NO_THROW(verify(with(s.dw, plan.offsets[s.a])));  // dead by then
  expect_error<InternalError>(
      [&] {
        verify(with(s.b, plan.offsets[s.b], {{s.a, s.b}}));
      },
      "buffers a and b share their bytes, but are apart");
  expect_error<InternalError>([&] { verify(with(s.dw, plan.arena_bytes)); }, "dw lies beyond the arena");
  expect_error<InternalError>([&] { verify(with(s.w, 64)); }, "w lies beyond what lives across steps");
}

// On two lanes that do not wait for each other, buffers that would be apart in time on one lane are not.
TEST(Verify, LanesAreNotOrdered) {
  Graph g;
  const LayerId layer = g.add_layer("layer");
  const BufferId x = g.add_buffer("x", {4}, DType::f32, Role::input);
  const auto chain = [&](const std::string& name) {
    const BufferId b = g.add_buffer(name, {4}, DType::f32, Role::activation);
    const BufferId out = g.add_buffer(name + ".out", {4}, DType::f32, Role::output);
    return std::pair{g.add_task(Kind::forward, Op::activation, layer, 0, {x}, {b}),
                     g.add_task(Kind::forward, Op::activation, layer, 0, {b}, {out})};
  };
  const auto [a, a_out] = chain("a");
  const auto [b, b_out] = chain("b");
  Plan plan;
  plan.graph = g;
  plan.lanes = {{0, {a, a_out, b, b_out}}};
  plan = place_memory(std::move(plan));
  EXPECT_EQ(plan.offsets[1], plan.offsets[3]);  // one after the other on the same bytes
  plan.lanes = {{0, {a, a_out}}, {0, {b, b_out}}};
  expect_error<InternalError>([&] { verify(plan); }, "buffers a and b are live at once");
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Graph, AMillionTasks) {
  constexpr std::size_t kTasks = 1'000'000;
  Graph g;
  g.model = "large";
  const double build = seconds_of([&] {
    const LayerId layer = g.add_layer("layer");
    std::vector<BufferId> last = {g.add_buffer("x", {8}, DType::f32, Role::input)};
    const AttrsId attrs = g.add_attrs({{"function", std::string("relu")}});
    for (std::size_t i = 0; i < kTasks; ++i) {
      const BufferId to = g.add_buffer("b", {8}, DType::f32, Role::activation);
      g.add_task(Kind::forward, Op::add, layer, attrs, {last[i], last[i / 2]}, {to});
      last.push_back(to);
    }
  });
  const double check = seconds_of([&] { verify(g); });
  const double rules = seconds_of([&] { check_tasks(g); }), print = seconds_of([&] { fingerprint(g); });
  std::string text;
  const double save = seconds_of([&] { text = save_json(g); });
  EXPECT_GT(text.size(), 10 * kTasks);
  RecordProperty("build_s", std::to_string(build));
  RecordProperty("verify_s", std::to_string(check));
  RecordProperty("save_s", std::to_string(save));
  std::printf(
      "a million tasks: built in %.2f s, verified in %.2f s (and against ops in %.3f s), hashed in %.3f s, saved in "
      "%.2f s (%zu bytes)\n",
      build, check, rules, print, save, text.size());
}

}  // namespace
}  // namespace overtake
