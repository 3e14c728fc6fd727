// Tasks that run a step late, over many steps and with everything between them that ends a delay: the same bits as in
// order.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
std::uint64_t history_of(TrainingRun& training) {
  Hash64 hash;
  std::vector<NamedTensor> saved;
  std::uint64_t saved_at = 0;
  const auto step = [&](std::uint64_t i) {
    training.fill_inputs(i);
    const float loss = training.step(0.05f / static_cast<float>(1 + i)).loss;
    EXPECT_TRUE(std::isfinite(loss));
    add(hash, loss);
  };
  for (std::uint64_t i = 0; i < 12; ++i) {
    step(i);
    if (i % 4 == 2) {
      training.fill_inputs(100 + i);
      add(hash, training.evaluate().loss);
      add(hash, training.evaluate().loss);  // changes nothing
    }
    if (i == 6) {
      saved = training.tensors();
      saved_at = training.steps_done();
      for (const NamedTensor& t : saved) hash.add(t.bytes);
    }
  }
  const std::uint64_t after_twelve = training.weights_hash();
  training.fill_inputs(50);
  training.step(0.05f);  // with tasks still to do when all is overwritten
  training.restore(saved, saved_at, "the checkpoint");
  for (const NamedTensor& t : training.tensors()) hash.add(t.bytes);
  for (std::uint64_t i = 7; i < 12; ++i) {
    step(i);
    if (i == 10) {
      training.fill_inputs(110);
      training.evaluate();
    }
  }
  EXPECT_EQ(training.weights_hash(), after_twelve) << "going on from a checkpoint is going on";
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

// Every round runs each task of each lane as often as the lane names it. Runs of an update are counted by what it
// keeps: each takes a momentum that is large enough for the gradient to be nothing beside it to 0.9 of what it was.
TEST(TimeLanes, RunWhatTheyAreGiven) {
  const auto backend = open_backend(test_device(), test_backend_options(Precision::f32, 1));
  const Graph graph = training_graph({"ffnn", "batch=64,width=256,image=16", momentum()}, *backend);
  Graph late = graph;
  std::mt19937 random(1);
  delay_at_random(late, random);
  const auto executor = backend->make_executor(
      {place_memory(random_plan(late, 2, random)), place_memory_apart(schedule_in_order(graph))});
  fill_initial_parameters(*executor, kSeed);
  fill_random_inputs(*executor, kSeed);
  executor->run(1, {.step = 0, .seed = kSeed, .learning_rate = 0.01f});
  executor->run(0, {.step = 1, .seed = kSeed, .learning_rate = 0.01f});  // leaves something delayed
  std::vector<TaskId> updates;
  for (TaskId t = 0; t < graph.tasks.size(); ++t)
    if (graph.tasks[t].op == Op::sgd) updates.push_back(t);
  ASSERT_GE(updates.size(), 2u);

  constexpr int kRounds = 3;
  constexpr float kMomentum = 1e30f;
  using Lanes = std::vector<std::vector<TaskId>>;
  const auto runs_in = [&](const Lanes& lanes) {
    std::vector<std::vector<float>> momenta;
    for (const TaskId update : {updates[0], updates[1]}) {
      const BufferId momentum = graph.writes(update)[1];
      momenta.emplace_back(static_cast<std::size_t>(graph.buffers[momentum].shape.elements()), kMomentum);
      executor->write_plain(momentum, std::as_bytes(std::span(momenta.back())));
    }
    const std::vector<std::int64_t> ends = executor->time_lanes(1, lanes, kRounds);
    EXPECT_EQ(ends.size(), lanes.size());
    for (std::size_t l = 0; l < ends.size(); ++l) EXPECT_EQ(ends[l] > 0, !lanes[l].empty()) << l;
    std::vector<long> runs;
    for (const std::size_t i : {0u, 1u}) {
      executor->read_plain(graph.writes(updates[i])[1], std::as_writable_bytes(std::span(momenta[i])));
      runs.push_back(std::lround(std::log(momenta[i][0] / kMomentum) / std::log(0.9f)));
    }
    return runs;
  };
  const std::vector<TaskId> many(8, updates[0]), few(2, updates[1]);
  const long rounds = runs_in({{updates[0]}})[0];
  EXPECT_TRUE(rounds == kRounds || rounds == kRounds + 1) << rounds << ", of which one may be to warm up";
  EXPECT_EQ(runs_in({many}), (std::vector<long>{8 * rounds, 0}));
  EXPECT_EQ(runs_in({many, few}), (std::vector<long>{8 * rounds, 2 * rounds}));
  EXPECT_EQ(runs_in({{}, few}), (std::vector<long>{0, 2 * rounds}));
}

}  // namespace
}  // namespace overtake
