// Tasks that run a step late, over many steps and with everything between them that ends a delay: the same bits as in
// order. And gradients that are not finite, which show a step late too.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "models/zoo.h"
#include "passes/joint_schedule.h"
#include "passes/memory.h"
#include "passes/schedule.h"
#include "random_plan.h"
#include "test_device.h"
#include "train/session.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

constexpr std::uint64_t kSeed = 3;

OptimizerSettings momentum() { return {.momentum = 0.9}; }
OptimizerSettings clipped_adamw() {
  return {.kind = OptimizerSettings::Kind::adamw, .weight_decay = 0.01, .clip_norm = 0.5};
}

struct Network {
  std::string name, settings;
  OptimizerSettings optimizer;
};
const Network kNetworks[] = {
    {"cnn", "batch=4,width=4", momentum()},
    {"transformer", "layers=2,width=32,heads=4,sequence=16,batch=3,dropout=0.1", clipped_adamw()},
    {"lstm", "batch=3,sequence=6,vocabulary=20,width=9,hidden=12,layers=2,dropout=0.1", momentum()},
};

SessionOptions options_of(const Network& n, ScheduleChoice schedule, const std::filesystem::path& profiles) {
  SessionOptions options;
  options.optimizer = n.optimizer;
  options.schedule = schedule;
  options.device = test_device();
  options.backend = test_backend_options(Precision::f32, 2);
  options.parts = 2;
  options.seed = kSeed;
  options.memory_cap = std::uint64_t{1} << 30;
  options.plan_seconds = 0.2;
  options.profiles = profiles;
  return options;
}

std::size_t delayed_tasks(const Graph& g) {
  return static_cast<std::size_t>(std::ranges::count_if(g.tasks, &Task::is_delayed));
}

// Measures a profile, then makes it one in which only the forward pass leaves room beside it.
void make_delays_pay(const Network& n, const std::filesystem::path& profiles) {
  const Session measured(build_model(n.name, ModelSettings::parse(n.settings)),
                         options_of(n, ScheduleChoice::ooo, profiles));
  std::filesystem::path path;
  for (const auto& entry : std::filesystem::directory_iterator(profiles)) path = entry.path();
  nlohmann::json profile = nlohmann::json::parse(read_file(path));
  for (TaskId t = 0; t < measured.graph().tasks.size(); ++t) {
    const Kind kind = measured.graph().tasks[t].kind;
    const bool is_deferred = kind == Kind::weight_grad || kind == Kind::update;
    profile["alone_ns"][t] = kind == Kind::forward ? 20'000 : is_deferred ? 5'000 : 10'000;
    profile["load"][t] = kind == Kind::forward ? 0.3 : is_deferred ? 0.5 : 1.0;
  }
  write_file_atomically(path, profile.dump());
}

void add(Hash64& hash, float x) { hash.add(std::as_bytes(std::span(&x, 1))); }

// Steps on new inputs each, with evaluations, checkpoints and a way back to one of them among them. The hash is of all
// that could be seen on the way and the weights in the end.
std::uint64_t history_of(Session& session) {
  Hash64 hash;
  std::vector<NamedTensor> saved;
  std::uint64_t saved_at = 0;
  const auto step = [&](std::uint64_t i) {
    session.fill_inputs(i);
    const float loss = session.step(0.05f / static_cast<float>(1 + i)).loss;
    EXPECT_TRUE(std::isfinite(loss));
    add(hash, loss);
  };
  for (std::uint64_t i = 0; i < 12; ++i) {
    step(i);
    if (i % 4 == 2) {
      session.fill_inputs(100 + i);
      add(hash, session.evaluate().loss);
      add(hash, session.evaluate().loss);  // changes nothing
    }
    if (i == 6) {
      saved = session.tensors();
      saved_at = session.steps_done();
      for (const NamedTensor& t : saved) hash.add(t.bytes);
    }
  }
  const std::uint64_t after_twelve = session.weights_hash();
  session.fill_inputs(50);
  session.step(0.05f);  // with tasks still to do when all is overwritten
  session.restore(saved, saved_at, "the checkpoint");
  for (const NamedTensor& t : session.tensors()) hash.add(t.bytes);
  for (std::uint64_t i = 7; i < 12; ++i) {
    step(i);
    if (i == 10) {
      session.fill_inputs(110);
      session.evaluate();
    }
  }
  EXPECT_EQ(session.weights_hash(), after_twelve) << "going on from a checkpoint is going on";
  hash.add(std::as_bytes(std::span(&after_twelve, 1)));
  return hash.value();
}

class Delayed : public ::testing::TestWithParam<Network> {
 protected:
  Graph forward() const { return build_model(GetParam().name, ModelSettings::parse(GetParam().settings)); }
};

TEST_P(Delayed, SessionsGoOnAsInOrder) {
  const TemporaryFolder folder;
  Session in_order(forward(), options_of(GetParam(), ScheduleChoice::in_order, folder.path()));
  const std::uint64_t want = history_of(in_order);
  make_delays_pay(GetParam(), folder.path());
  Session late(forward(), options_of(GetParam(), ScheduleChoice::ooo, folder.path()));
  EXPECT_GT(delayed_tasks(late.graph()), 4u) << late.planned().reason;
  EXPECT_EQ(history_of(late), want);
  late.initialise();
  EXPECT_EQ(history_of(late), want) << "and once more from the start";
}

Graph training_graph(const Network& n, Backend& backend) {
  PassRunner runner;
  return build_training_graph(build_model(n.name, ModelSettings::parse(n.settings)), backend.target(),
                              {.optimizer = n.optimizer, .parts = 2, .extra = {}}, runner);
}

// Program 0 trains, program 1 evaluates; weights are looked at, and evaluated, after steps that `random` picks.
std::uint64_t trained_hash(Plan plan, Backend& backend, std::uint32_t looks) {
  const Graph graph = plan.graph;
  plan = place_memory(std::move(plan));
  verify(plan);
  const auto executor = backend.make_executor({std::move(plan), place_memory(schedule_forward(graph))});
  fill_initial_parameters(*executor, kSeed);
  std::mt19937 random(looks);
  Hash64 hash;
  const auto hash_weights = [&] {
    Hash64 weights;
    for (const Parameter& p : graph.parameters) {
      const Buffer& b = graph.buffers[p.buffer];
      std::vector<std::byte> values(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));
      executor->read_plain(p.buffer, values);
      weights.add(values);
    }
    return weights.value();
  };
  for (std::uint64_t step = 0; step < 8; ++step) {
    fill_random_inputs(*executor, step);
    executor->start(0, {.step = step, .seed = kSeed, .learning_rate = 0.05f});
    for (const float x : executor->finish().metrics) add(hash, x);
    if (looks != 0 && random() % 3 == 0) hash_weights();
    if (looks != 0 && random() % 3 == 0) executor->run(1, {.step = step, .seed = kSeed});
    if (looks != 0 && random() % 4 == 0) executor->run_traced(1, {.step = step, .seed = kSeed});
  }
  const std::uint64_t weights = hash_weights();
  hash.add(std::as_bytes(std::span(&weights, 1)));
  return hash.value();
}

TEST_P(Delayed, RandomPlansWithLooksBetweenTheSteps) {
  const auto backend = open_backend(test_device(), test_backend_options(Precision::f32, 2));
  const Graph graph = training_graph(GetParam(), *backend);
  const std::uint64_t want = trained_hash(schedule_in_order(graph), *backend, 0);
  std::mt19937 random(21);
  std::size_t delayed = 0;
  for (std::uint32_t i = 0; i < 12; ++i) {
    Graph late = graph;
    delay_at_random(late, random);
    delayed += delayed_tasks(late);
    ASSERT_EQ(trained_hash(random_plan(late, 1 + i % 3, random), *backend, i), want) << i;
  }
  EXPECT_GT(delayed, 50u);
}

INSTANTIATE_TEST_SUITE_P(Networks, Delayed, ::testing::ValuesIn(kNetworks),
                         [](const auto& network) { return network.param.name; });

// Two linear layers: a of 1e38 and b of 1e-38, so that values and losses are of a sensible size, but the gradient of b
// (1e38 times about 100) is beyond float32.
class NotFinite : public ::testing::Test {
 protected:
  void SetUp() override {
    Model m("overflow", 2);
    const Value hidden = m.linear(m.input({4}), {.out = 4, .bias = false}, "a");
    m.mean_squared_error(m.linear(hidden, {.out = 4, .bias = false}, "b"));
    PassRunner runner;
    graph_ = build_training_graph(std::move(m).finish(), backend_->target(),
                                  {.optimizer = {.momentum = 0}, .parts = 1, .extra = {}}, runner);
    for (Task& t : graph_.tasks) {
      const bool is_b = graph_.layer_name(t.layer).starts_with("b");
      t.is_delayed = is_b && (t.kind == Kind::weight_grad || t.kind == Kind::update);
    }
    EXPECT_EQ(delayed_tasks(graph_), 2u);
    std::mt19937 random(1);
    Plan plan = place_memory(random_plan(graph_, 2, random));
    verify(plan);
    executor_ = backend_->make_executor({std::move(plan), place_memory(schedule_forward(graph_))});
    write("a.weight", 1e38f);
    write("b.weight", 1e-38f);
    for (BufferId b = 0; b < graph_.buffers.size(); ++b) {
      if (graph_.buffers[b].role != Role::input) continue;
      const auto bytes = executor_->bytes(b);
      auto* values = reinterpret_cast<float*>(bytes.data());
      const bool is_target = graph_.buffer_name(b) == "targets";
      std::fill_n(values, bytes.size() / sizeof(float), is_target ? 400.0f : 0.5f);
    }
  }

  BufferId buffer(const std::string& name) const {
    for (const Parameter& p : graph_.parameters)
      if (graph_.buffer_name(p.buffer) == name) return p.buffer;
    ADD_FAILURE() << "no weight " << name;
    return kNone;
  }
  void write(const std::string& name, float value) {
    const std::vector<float> values(16, value);
    executor_->write_plain(buffer(name), std::as_bytes(std::span(values)));
  }
  std::vector<float> read(const std::string& name) {
    std::vector<float> values(16);
    executor_->read_plain(buffer(name), std::as_writable_bytes(std::span(values)));
    return values;
  }
  static StepArgs args(std::uint64_t step) { return {.step = step, .seed = kSeed, .learning_rate = 0.001f}; }
  float loss_of(std::uint64_t step, std::size_t program = 0) {
    executor_->start(program, args(step));
    return executor_->finish().metrics[0];
  }

  std::unique_ptr<Backend> backend_ = open_backend(test_device(), test_backend_options(Precision::f32, 2));
  Graph graph_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(NotFinite, ShowsInTheNextLoss) {
  EXPECT_TRUE(std::isfinite(loss_of(4)));
  EXPECT_TRUE(std::isnan(loss_of(5)));
  EXPECT_EQ(read("b.weight"), std::vector<float>(16, 1e-38f)) << "the weight was not touched";
  EXPECT_EQ(executor_->find_non_finite(0, args(5)), "task b.weight_grad (linear)");
}

TEST_F(NotFinite, ReadingAWeightIsAUserError) {
  EXPECT_TRUE(std::isfinite(loss_of(4)));
  EXPECT_TRUE(says(user_error([&] { read("a.weight"); }), {"step 5", "not finite", "--lr"}));
  EXPECT_EQ(read("b.weight"), std::vector<float>(16, 1e-38f)) << "said once; the weight was not touched";
}

TEST_F(NotFinite, EvaluatingIsAUserErrorToo) {
  EXPECT_TRUE(std::isfinite(loss_of(4)));
  EXPECT_TRUE(says(user_error([&] { loss_of(5, 1); }), {"step 5", "not finite", "--clip-norm"}));
}

TEST_F(NotFinite, FindsTheTaskOfTheStepUnderWay) {
  EXPECT_TRUE(std::isfinite(loss_of(0)));
  EXPECT_TRUE(says(user_error([&] { executor_->find_non_finite(0, args(0)); }), {"step 1", "not finite"}));
  EXPECT_EQ(executor_->find_non_finite(0, args(0)), "task b.weight_grad (linear)");
}

TEST_F(NotFinite, AllIsWellWithOtherWeights) {
  EXPECT_TRUE(std::isfinite(loss_of(0)));
  user_error([&] { read("b.weight"); });
  write("a.weight", 0.5f);
  write("b.weight", 0.5f);
  const float first = loss_of(1), second = loss_of(2);
  EXPECT_TRUE(std::isfinite(first));
  EXPECT_LT(second, first);
  EXPECT_NE(read("b.weight")[0], 0.5f);
  EXPECT_EQ(executor_->find_non_finite(0, args(2)), "");
}

// Eight times the tasks take about that much longer, and lanes side by side no less than each alone; with room for
// machines that are busy with something else.
TEST(TimeLanes, AreInProportion) {
  const auto backend = open_backend(test_device(), test_backend_options(Precision::f32, 1));
  const Graph graph = training_graph({"ffnn", "batch=64,width=256,image=16", momentum()}, *backend);
  Graph late = graph;
  std::mt19937 random(1);
  delay_at_random(late, random);
  const auto executor = backend->make_executor(
      {place_memory(random_plan(late, 2, random)), place_memory_apart(schedule_in_order(graph))});
  fill_initial_parameters(*executor, kSeed);
  fill_random_inputs(*executor, kSeed);
  executor->run(0, {.step = 0, .seed = kSeed, .learning_rate = 0.01f});  // leaves something delayed
  executor->run(1, {.step = 1, .seed = kSeed, .learning_rate = 0.01f});
  TaskId longest = kNone;
  std::int64_t most = 0;
  for (const Span& s : executor->run_traced(1, {.step = 2, .seed = kSeed}).spans)
    if (graph.tasks[s.task].kind == Kind::weight_grad && s.end_ns - s.begin_ns > most) {
      most = s.end_ns - s.begin_ns;
      longest = s.task;
    }
  ASSERT_NE(longest, kNone);
  // The shortest of several: other programs may want the cores too.
  const auto time = [&](const std::vector<std::vector<TaskId>>& lanes) {
    std::vector<double> shortest(lanes.size(), std::numeric_limits<double>::max());
    for (int i = 0; i < 9; ++i) {
      const std::vector<std::int64_t> ends = executor->time_lanes(1, lanes, 3);
      EXPECT_EQ(ends.size(), lanes.size());
      for (std::size_t l = 0; l < lanes.size(); ++l) shortest[l] = std::min(shortest[l], static_cast<double>(ends[l]));
    }
    return shortest;
  };
  const std::vector<TaskId> few(8, longest), many(64, longest);
  const double few_ns = time({few})[0], many_ns = time({many})[0];
  EXPECT_GT(few_ns, 0);
  EXPECT_GT(many_ns / few_ns, 2);
  EXPECT_LT(many_ns / few_ns, 32);
  const std::vector<double> both = time({many, few});
  EXPECT_GT(both[0], 0.4 * many_ns);
  EXPECT_GT(both[1], 0.4 * few_ns);
  const auto none = executor->time_lanes(1, {{}, {longest}}, 3);
  EXPECT_EQ(none[0], 0);
  EXPECT_GT(none[1], 0);
}

}  // namespace
}  // namespace overtake
