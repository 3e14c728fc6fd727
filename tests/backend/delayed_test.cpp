// Tasks that run a step late, over many steps and with everything between them that ends a delay: the same bits as in
// order.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/hash.h"
#include "optimizers.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"
#include "plan/in_order.h"
#include "plan/lanes/joint_schedule.h"
#include "plan/memory.h"
#include "random_plan.h"
#include "run_setup.h"
#include "test_device.h"
#include "train/initial_values.h"

namespace overtake {
namespace {

struct LateNetwork {
  std::string name, settings;
  OptimizerSettings optimizer;
};
// What the names of tests show.
void PrintTo(const LateNetwork& n, std::ostream* out) { *out << n.name; }

const LateNetwork kLateNetworks[] = {
    {"cnn", "batch=4,width=4", momentum()},
    {"transformer", "layers=2,width=32,heads=4,sequence=16,batch=3,dropout=0.1", clipped_adamw()},
    {"lstm", "batch=3,sequence=6,vocabulary=20,width=9,hidden=12,layers=2,dropout=0.1", momentum()},
};

// A GPU updates the weights of networks as small as these in one task, which cannot be late: the first layer waits.
const std::vector<std::string> kSkipped = {"group_updates"};

RunSetup options_of(const LateNetwork& n) {
  RunSetup options;
  set_optimizer(options.spec, n.optimizer);
  options.spec.schedule = "in-order";
  use_test_device(options, Precision::f32, 2);
  options.spec.parts = 2;
  options.spec.seed = kSeed;
  options.spec.memory_cap = "1G";
  options.spec.skip_passes = kSkipped;
  return options;
}

std::size_t delayed_tasks(const Graph& g) {
  return static_cast<std::size_t>(std::ranges::count_if(g.tasks, &Task::is_delayed));
}

// Out of order on times and loads as if only the forward pass left room beside it: then whatever can be late is.
Plan late_plan(const Graph& graph) {
  Profile profile;
  for (const Task& t : graph.tasks) {
    const bool is_forward = t.kind == Kind::forward;
    const bool is_short = t.kind == Kind::weight_grad || t.kind == Kind::update;
    profile.alone_ns.push_back(is_forward ? 20'000 : is_short ? 5'000 : 10'000);
    profile.load.push_back(is_forward ? 0.3 : 1.0);
  }
  return schedule_jointly(graph, profile, {.most_tries = 2000});
}

void add(Hash64& hash, float x) { hash.add(std::as_bytes(std::span(&x, 1))); }

// Steps on new inputs each, with evaluations, checkpoints and a way back to one of them among them. The hash is of all
// that could be seen on the way and the weights in the end.
std::uint64_t history_of(TrainingRun& session) {
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

class Delayed : public ::testing::TestWithParam<LateNetwork> {
 protected:
  Graph forward() const { return build_model(GetParam().name, ModelSettings::parse(GetParam().settings)); }
};

TEST_P(Delayed, RunsGoOnAsInOrder) {
  TrainingRun in_order = run_of(forward(), options_of(GetParam()));
  const std::uint64_t want = history_of(in_order);
  RunSetup options = options_of(GetParam());
  options.more.compile.own_order = late_plan;
  TrainingRun late = run_of(forward(), options);
  EXPECT_GT(delayed_tasks(late.graph()), 4u);
  EXPECT_EQ(history_of(late), want);
  late.start_anew();
  EXPECT_EQ(history_of(late), want) << "and once more from the start";
}

Graph training_graph(const LateNetwork& n, Backend& backend) {
  PassRunner runner({.skip = {kSkipped.begin(), kSkipped.end()}, .print = {}});
  return build_training_graph(build_model(n.name, ModelSettings::parse(n.settings)), backend.target(),
                              {.optimizer = n.optimizer, .parts = 2, .extra = {}}, runner);
}

// Program 0 trains, program 1 evaluates. Unless `looks` is 0 it is the seed of what happens between the steps: a look
// at the weights, an evaluation, or a step that is taken back by writing everything as it was.
std::uint64_t trained_hash(Plan plan, Backend& backend, std::uint32_t looks) {
  plan = place_memory(std::move(plan));
  verify(plan);
  const Graph graph = plan.graph;
  const auto executor = backend.make_executor({std::move(plan), place_memory(schedule_forward(graph))});
  fill_initial_parameters(*executor, kSeed);
  const auto read_all = [&] {
    std::vector<std::vector<std::byte>> all;
    for (const Parameter& p : graph.parameters) {
      const Buffer& b = graph.buffers[p.buffer];
      executor->read_plain(p.buffer,
                           all.emplace_back(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype))));
    }
    return all;
  };
  const auto train = [&](std::uint64_t step) {
    fill_random_inputs(*executor, step);
    executor->start(0, {.step = step, .seed = kSeed, .learning_rate = 0.05f});
    return executor->finish().metrics;
  };
  std::mt19937 random(looks);
  const auto one_in = [&](std::uint32_t n) { return looks != 0 && random() % n == 0; };
  Hash64 hash;
  for (std::uint64_t step = 0; step < 8; ++step) {
    for (const float x : train(step)) add(hash, x);
    if (one_in(3)) read_all();
    if (one_in(3)) executor->run(1, {.step = step, .seed = kSeed});
    if (one_in(4)) executor->run_traced(1, {.step = step, .seed = kSeed});
    if (one_in(3)) {
      const auto before = read_all();
      train(99);
      for (std::size_t i = 0; i < before.size(); ++i) executor->write_plain(graph.parameters[i].buffer, before[i]);
    }
  }
  for (const auto& values : read_all()) hash.add(values);
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

TEST_P(Delayed, OurOwnPlansWithLooksBetweenTheSteps) {
  const auto backend = open_backend(test_device(), test_backend_options(Precision::f32, 2));
  const Graph graph = training_graph(GetParam(), *backend);
  const std::uint64_t want = trained_hash(schedule_in_order(graph), *backend, 0);
  const Plan plan = late_plan(graph);
  EXPECT_GT(delayed_tasks(plan.graph), 6u);
  for (std::uint32_t looks = 0; looks < 6; ++looks) EXPECT_EQ(trained_hash(plan, *backend, looks), want) << looks;
}

INSTANTIATE_TEST_SUITE_P(Networks, Delayed, ::testing::ValuesIn(kLateNetworks),
                         [](const auto& network) { return network.param.name; });

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
  double few_ns = time({few})[0], many_ns = time({many})[0];
  for (int again = 0; again < 10 && many_ns / few_ns >= 32; ++again) {  // a moment of peace is less likely to be long
    few_ns = std::min(few_ns, time({few})[0]);
    many_ns = std::min(many_ns, time({many})[0]);
  }
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
