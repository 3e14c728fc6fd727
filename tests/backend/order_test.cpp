// The promise everything rests on: any legal order, on any lanes, with any number of threads, gives the same bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/hash.h"
#include "optimizers.h"
#include "overtake/model.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"
#include "plan/in_order.h"
#include "plan/lanes/join_gradients.h"
#include "plan/lanes/joint_schedule.h"
#include "plan/memory.h"
#include "random_plan.h"
#include "test_device.h"
#include "train/initial_values.h"

namespace overtake {
namespace {

// Kept, so that kernels are made once; executors take their threads from it.
Backend& backend(bool bf16, unsigned threads) {
  static std::map<std::pair<bool, unsigned>, std::unique_ptr<Backend>> opened;
  std::unique_ptr<Backend>& b = opened[{bf16, threads}];
  if (!b) b = open_backend(test_device(), test_backend_options(bf16 ? Precision::bf16 : Precision::f32, threads));
  return *b;
}

bool is_bf16(const Graph& g) {
  return std::ranges::any_of(g.buffers, [](const Buffer& b) { return b.dtype == DType::bf16; });
}

Graph training_graph(Graph forward, const OptimizerSettings& optimizer, unsigned parts, bool bf16 = false) {
  PassRunner runner;
  return build_training_graph(std::move(forward), backend(bf16, 1).target(),
                              {.optimizer = optimizer, .bf16 = bf16, .parts = parts, .extra = {}}, runner);
}

// Of all that lives across steps.
std::uint64_t hash_of_parameters(Executor& executor) {
  const Graph& g = executor.plan(0).graph;
  Hash64 hash;
  for (const Parameter& p : g.parameters) {
    const Buffer& b = g.buffers[p.buffer];
    std::vector<std::byte> values(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));
    executor.read_plain(p.buffer, values);
    hash.add(values);
  }
  return hash.value();
}

// Trains for a few steps from the same start; weights must move and losses be finite. The hash is of the losses on the
// way and of all that lives across steps in the end.
std::uint64_t trained_hash(Plan plan, unsigned threads, std::uint64_t steps) {
  plan = place_memory(std::move(plan));
  verify(plan);
  const bool bf16 = is_bf16(plan.graph);
  const auto executor = backend(bf16, threads).make_executor({std::move(plan)});
  fill_initial_parameters(*executor, kSeed);
  fill_random_inputs(*executor, kSeed);
  std::uint64_t last = hash_of_parameters(*executor);
  Hash64 hash;
  for (std::uint64_t step = 0; step < steps; ++step) {
    executor->run(0, {.step = step, .seed = kSeed, .learning_rate = 0.05f / static_cast<float>(1 + step)});
    const auto metrics = executor->bytes(executor->plan(0).graph.losses[0]);
    EXPECT_TRUE(std::isfinite(*reinterpret_cast<const float*>(metrics.data())));
    hash.add(metrics);
    // Looking ends what is delayed, so not after every step.
    if (step % 3 != 1 && step + 1 != steps) continue;
    const std::uint64_t now = hash_of_parameters(*executor);
    EXPECT_NE(now, last) << "step " << step << " changed nothing";
    last = now;
  }
  hash.add(std::as_bytes(std::span(&last, 1)));
  return hash.value();
}

// How much is tried: large networks get fewer orders and steps.
struct Effort {
  int orders = 90;
  std::uint64_t steps = 5;
};
constexpr Effort kLarge = {.orders = 6, .steps = 3};

// Random orders, over 1, 2 and 3 lanes and 1, 2 and 3 threads in turn.
void expect_same_bits(const Graph& graph, const Effort& effort, std::uint32_t seed) {
  const std::uint64_t want = trained_hash(schedule_in_order(graph), 2, effort.steps);
  std::mt19937 random(seed);
  for (int i = 0; i < effort.orders; ++i) {
    const std::size_t lanes = 1 + static_cast<std::size_t>(i) % 3;
    const unsigned threads = 1 + static_cast<unsigned>(i / 3) % 3;
    Graph delayed = graph;
    if (i % 2 == 1) delay_at_random(delayed, random);
    ASSERT_EQ(trained_hash(random_plan(delayed, lanes, random), threads, effort.steps), want)
        << "order " << i << " of seed " << seed << ", " << lanes << " lanes, " << threads << " threads";
  }
}

struct Network {
  std::string name;
  std::string settings;
  Effort effort = {};
};

const std::string kTinyResidual = "batch=2,image=32,classes=10,width=8";
const std::string kTinyDense = "batch=2,image=32,classes=10,growth=4,dropout=0.1";
const std::string kTinyInception = "batch=2,image=75,classes=10,width_multiplier=0.125";
const std::string kTinyRecurrent = "batch=3,sequence=6,vocabulary=20,width=9,hidden=12,layers=2,dropout=0.1";
const std::string kTinyDecoder = "batch=2,sequence=12,positions=16,vocabulary=50,width=32,heads=4,layers=2";

const Network kNetworks[] = {
    {"ffnn", "batch=5,width=24,image=8"},
    {"lenet", "batch=3"},
    {"cnn", "batch=4,width=4"},
    {"vgg-16", "batch=2,image=32,classes=10,width=8,hidden=64", kLarge},
    {"resnet-32-cifar", "batch=2,image=16", kLarge},
    {"resnet-18", kTinyResidual, kLarge},
    {"resnet-34", kTinyResidual + ",stem=1", kLarge},
    {"resnet-50", kTinyResidual + ",norm=group", kLarge},
    {"resnet-101", kTinyResidual, kLarge},
    {"resnet-152", kTinyResidual, kLarge},
    {"densenet-121", kTinyDense, kLarge},
    {"densenet-169", kTinyDense + ",norm=group", kLarge},
    {"mobilenet-v3-large", "batch=2,image=32,classes=10,width_multiplier=0.25", kLarge},
    {"inception-v3", kTinyInception, kLarge},
    {"inception-v4", kTinyInception, kLarge},
    {"vit-b-16", "batch=2,image=32,classes=10,width=32,heads=4,layers=2,dropout=0.1"},
    {"lstm", kTinyRecurrent},
    {"gru", kTinyRecurrent},
    {"transformer", "layers=2,width=32,heads=4,sequence=16,batch=3,dropout=0.1"},
    {"gpt2", kTinyDecoder},
    {"gpt3-medium", kTinyDecoder + ",dropout=0"},
    {"bert-12", kTinyDecoder},
    {"bert-24", kTinyDecoder + ",dropout=0"},
    {"bert-36", kTinyDecoder},
    {"bert-48", kTinyDecoder},
};

TEST(OrderOfNetworks, EveryNetworkOfTheZooIsListed) {
  for (const ZooEntry& entry : zoo())
    EXPECT_EQ(std::ranges::count(kNetworks, entry.name, &Network::name), 1) << entry.name;
}

class Order : public ::testing::TestWithParam<Network> {
 protected:
  Graph forward() const { return build_model(GetParam().name, ModelSettings::parse(GetParam().settings)); }
};

TEST_P(Order, SgdWithMomentum) { expect_same_bits(training_graph(forward(), momentum(), 2), GetParam().effort, 1); }

TEST_P(Order, AdamWWithClipping) {
  expect_same_bits(training_graph(forward(), clipped_adamw(), 3), GetParam().effort, 2);
}

TEST_P(Order, Bf16) {
  OVERTAKE_NEEDS_BF16();
  const Effort effort = {std::min(GetParam().effort.orders, 18), GetParam().effort.steps};
  expect_same_bits(training_graph(forward(), momentum(), 2, true), effort, 3);
}

// Our own schedule, on times that are none.
TEST_P(Order, OutOfOrderOnRandomTimes) {
  const Graph graph = training_graph(forward(), momentum(), 2);
  const std::uint64_t steps = GetParam().effort.steps, want = trained_hash(schedule_in_order(graph), 2, steps);
  std::mt19937 random(4);
  for (const std::size_t side_lanes : {1u, 2u}) {
    Profile profile;
    for (std::size_t t = 0; t < graph.tasks.size(); ++t) {
      profile.alone_ns.push_back(1000 + static_cast<std::int64_t>(random() % 9000));
      profile.load.push_back(0.2 + 0.1 * static_cast<double>(random() % 9));
    }
    const Plan plan = schedule_jointly(graph, profile, {.side_lanes = side_lanes, .most_tries = 300});
    EXPECT_EQ(trained_hash(plan, 2, steps), want);
    EXPECT_EQ(trained_hash(with_waits_for_memory(plan, profile, 0.02), 2, steps), want);
  }
}

// Neighbouring gradients of a layer as one task, wherever there are such.
TEST_P(Order, JoinedGradients) {
  if (!backend(false, 1).target().joins_gradients()) GTEST_SKIP() << "this device runs every task by itself";
  const Graph graph = training_graph(forward(), momentum(), 2);
  const std::size_t tasks = graph.tasks.size();
  const Profile profile{std::vector<std::int64_t>(tasks, 1000), std::vector<double>(tasks, 1.0), 0,
                        std::vector<std::int64_t>(tasks, 1500)};
  const Plan plan = join_gradients(schedule_in_order(graph), profile);
  EXPECT_GT(plan.joins.size(), 0u);
  const std::uint64_t steps = GetParam().effort.steps, want = trained_hash(schedule_in_order(graph), 2, steps);
  for (const unsigned threads : {1u, 2u, 3u}) EXPECT_EQ(trained_hash(plan, threads, steps), want);
}

INSTANTIATE_TEST_SUITE_P(Networks, Order, ::testing::ValuesIn(kNetworks), [](const auto& network) {
  std::string name = network.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

// Views of weights, fan-outs and in-place neighbours: what the memory planner can get wrong.
TEST(OrderOfViews, ViewsOfWeights) {
  Model m("views", 4);
  const Value w = m.parameter({6, 2}, {Init::Kind::normal, 1.0}, "w");
  const Value x = m.linear(m.input({12}), {.out = 12}, "fc");
  const Value view = m.reshape(m.reshape(w, {3, 4}), {12});
  Value y = m.mul(m.activation(x, "silu"), view);
  y = m.add(m.mul(y, m.reshape(m.activation(m.reshape(x, {4, 3, 4}), "tanh"), {4, 12})), x);
  m.mean_squared_error(m.mul(y, m.reshape(w, {12})));
  const Graph graph = training_graph(std::move(m).finish(), momentum(), 2);
  expect_same_bits(graph, {.orders = 30}, 5);
}

// Chains of concats, which GPUs do in place: growth by whole packs, and no dropout that would have to be copied.
TEST(OrderOfViews, DenseBlocks) {
  for (const bool bf16 : {false, true}) {
    if (bf16 && !test_device_has_bf16()) continue;
    const Graph forward = build_model("densenet-121", ModelSettings::parse("batch=2,image=32,classes=10,growth=8"));
    expect_same_bits(training_graph(forward, momentum(), 1, bf16), kLarge, 7);
  }
}

// The bits that depend on nothing do depend on the seed.
TEST(OrderOfViews, OtherWeightsGiveOtherBits) {
  const Graph graph =
      training_graph(build_model("ffnn", ModelSettings::parse("batch=5,width=24,image=8")), momentum(), 2);
  const auto executor = backend(false, 1).make_executor({place_memory(schedule_in_order(graph))});
  fill_initial_parameters(*executor, 1);
  const std::uint64_t first = hash_of_parameters(*executor);
  fill_initial_parameters(*executor, 2);
  EXPECT_NE(hash_of_parameters(*executor), first);
}

}  // namespace
}  // namespace overtake
