// Passes that only GPUs ask for, on graphs and, where the CPU can do the same, on numbers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/place.h"
#include "machine/image_layouts.h"
#include "overtake/zoo.h"
#include "passes/differentiate.h"
#include "passes/fuse.h"
#include "passes/fuse_gradients.h"
#include "passes/join_projections.h"
#include "passes/layout.h"
#include "passes/pad_classes.h"
#include "passes/precision.h"
#include "passes/training_passes.h"
#include "passes/weights.h"
#include "plan/in_order.h"
#include "plan/lanes/joint_schedule.h"
#include "plan/memory.h"
#include "random_plan.h"
#include "run_setup.h"
#include "unit/symbolic_run.h"

namespace overtake {
namespace {

// Wants all that a target can want.
class WishfulTarget final : public Target {
 public:
  bool fuses_linear(std::string_view function) const override { return function == "gelu_tanh"; }
  bool fuses_batch_norm(std::string_view function) const override {
    return function == "relu" || function == "hard_swish";
  }
  bool fuses_derivative(std::string_view function) const override { return function == "gelu_tanh"; }
  bool fuses_gradient_sums() const override { return true; }
  bool pads_classes() const override { return true; }
  ImageLayout image_layout(const Graph& g, const Task& t) const override { return channels_last_where_possible(g, t); }
  std::optional<Layout> first_image_layout(const Graph& g, const Task& t) const override {
    const bool is_narrow = t.op == Op::conv2d && t.kind == Kind::forward && g.buffers[g.reads(t)[0]].shape[1] == 3;
    return is_narrow ? std::optional(layout_from_string("acdB8b")) : std::nullopt;
  }
  std::optional<OperandFormat> weight_format(const Graph& g, const Task& t, std::size_t operand) const override {
    const bool is_weight_grad = t.kind == Kind::weight_grad;
    if (t.op != Op::linear || operand != (is_weight_grad ? 2u : 1u)) return {};
    return OperandFormat{g.buffers[g.reads(t)[0]].dtype, plain_layout(2)};
  }
  bool shares_concats() const override { return true; }
  // As the CUDA backend, if cuDNN has all convolutions.
  bool takes_pitch(const Graph& g, const Task& t, std::size_t operand, std::int64_t) const override {
    const bool is_forward = t.kind == Kind::forward;
    if (t.op == Op::max_pool || t.op == Op::avg_pool) return operand == (is_forward ? 1u : 0u);
    if (t.op != Op::batch_norm) return t.op == Op::concat || t.op == Op::conv2d;
    if (is_forward) return operand == 0 || (operand == t.reads && g.reads(t)[1] == kNone);
    return operand <= 1 || (t.kind == Kind::input_grad && operand >= 8);
  }
  bool updates_write_copies() const override { return true; }
  std::int64_t update_group_elements() const override { return 3000; }
  std::int64_t scratch_bytes(const Graph&, const Task&) const override { return 0; }
};

Graph forward_of(const std::string& name, const std::string& settings) {
  return build_model(name, ModelSettings::parse(settings));
}

Graph training_graph(Graph forward, bool bf16, const OptimizerSettings& optimizer = {.momentum = 0.9},
                     const std::set<std::string>& skip = {}) {
  const WishfulTarget target;
  PassRunner runner({.skip = skip});
  TrainingPassOptions options;
  options.optimizer = optimizer;
  options.bf16 = bf16;
  return build_training_graph(std::move(forward), target, options, runner);
}

std::size_t count(const Graph& g, Op op, Kind kind) {
  return static_cast<std::size_t>(
      std::ranges::count_if(g.tasks, [&](const Task& t) { return t.op == op && t.kind == kind; }));
}

const std::string kDecoder =
    "batch=2,sequence=8,positions=8,vocabulary=521,width=32,heads=4,layers=2,dropout=0";  // 521 becomes 576

std::vector<float> values_of(const NamedTensor& t) {
  std::vector<float> values(t.bytes.size() / sizeof(float));
  std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
  return values;
}

TEST(PadClasses, FilesAndNumbersStayTheSame) {
  const Graph plain = forward_of("gpt2", kDecoder), padded = pad_classes(plain);
  EXPECT_NE(print(plain), print(padded));
  const auto train = [](const Graph& g) {
    RunSetup options = in_order_setup();
    options.spec.parts = 1;
    set_optimizer(options.spec, {.kind = OptimizerSettings::Kind::adamw, .weight_decay = 0.1});
    auto training = std::make_unique<TrainingRun>(g, options.spec, options.more);
    training->fill_inputs(1);
    for (int i = 0; i < 3; ++i) training->step(0.01f);
    return training;
  };
  const auto a = train(plain), b = train(padded);
  EXPECT_NEAR(a->evaluate().loss, b->evaluate().loss, 1e-5);
  EXPECT_EQ(sample_form_of(b->graph()).vocabulary, 521);
  EXPECT_EQ(sample_form_of(b->graph()).classes, 521);
  const auto left = a->tensors(), right = b->tensors();
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    SCOPED_TRACE(left[i].name);
    EXPECT_EQ(left[i].name, right[i].name);
    ASSERT_EQ(left[i].dims, right[i].dims);
    const std::vector<float> x = values_of(left[i]), y = values_of(right[i]);
    for (std::size_t j = 0; j < x.size(); ++j) ASSERT_NEAR(x[j], y[j], 1e-4) << j;
  }
  // A checkpoint of one is a checkpoint of the other.
  b->restore(left, 3, "here");
  EXPECT_NEAR(a->evaluate().loss, b->evaluate().loss, 1e-6);
}

TEST(JoinProjections, FilesAndNumbersStayTheSame) {
  const std::string settings = "batch=2,sequence=8,positions=8,vocabulary=50,width=32,heads=4,layers=2,dropout=0";
  const Graph plain = forward_of("bert-12", settings), joined = join_projections(plain);
  EXPECT_EQ(count(plain, Op::linear, Kind::forward) - count(joined, Op::linear, Kind::forward), 4u);
  EXPECT_EQ(print(load_graph_json(save_json(joined))), print(joined));
  const auto train = [](const Graph& g) {
    RunSetup options = in_order_setup();
    options.spec.parts = 1;
    auto training = std::make_unique<TrainingRun>(g, options.spec, options.more);
    training->fill_inputs(1);
    for (int i = 0; i < 3; ++i) training->step(0.01f);
    return training;
  };
  const auto a = train(plain), b = train(joined);
  EXPECT_NEAR(a->evaluate().loss, b->evaluate().loss, 1e-5);
  const auto left = a->tensors(), right = b->tensors();
  ASSERT_EQ(left.size(), right.size());
  for (const NamedTensor& t : left) {
    SCOPED_TRACE(t.name);
    const NamedTensor* other = find_tensor(right, t.name);
    ASSERT_NE(other, nullptr);
    ASSERT_EQ(t.dims, other->dims);
    const std::vector<float> x = values_of(t), y = values_of(*other);
    for (std::size_t j = 0; j < x.size(); ++j) ASSERT_NEAR(x[j], y[j], 1e-5) << j;
  }
  // A checkpoint of one is a checkpoint of the other.
  b->restore(left, 3, "here");
  EXPECT_NEAR(a->evaluate().loss, b->evaluate().loss, 1e-6);
  const auto again = b->tensors();
  for (const NamedTensor& t : left) EXPECT_EQ(values_of(t), values_of(*find_tensor(again, t.name))) << t.name;
}

TEST(JoinProjections, NotWhereSomebodyElseReads) {
  const Graph packed = forward_of("gpt2", kDecoder);  // has one projection already
  EXPECT_EQ(print(join_projections(packed)), print(packed));
}

TEST(PadClasses, RowsBeyondTheClassesStayZero) {
  RunSetup options = in_order_setup();
  TrainingRun training = run_of(pad_classes(forward_of("bert-12", kDecoder)), options);
  training.fill_inputs(1);
  for (int i = 0; i < 3; ++i) training.step(0.1f);
  const Graph& g = training.graph();
  std::size_t padded = 0;
  for (const Parameter& p : g.parameters) {
    if (p.stored_rows == 0) continue;
    ++padded;
    const Shape& shape = g.buffers[p.buffer].shape;
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    training.executor().read_plain(p.buffer, std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(shape[0], 576);
    const auto rest =
        std::span(values).subspan(static_cast<std::size_t>(p.stored_rows * (shape.elements() / shape[0])));
    EXPECT_TRUE(std::ranges::all_of(rest, [](float x) { return x == 0.0f; })) << g.buffer_name(p.buffer);
  }
  EXPECT_EQ(padded, 4u);  // the tied table, its bias, and the momentum of each
}

TEST(PadClasses, NotWhereItDoesNotPay) {
  for (const char* settings : {"batch=2,sequence=8,vocabulary=520,width=32,heads=4,layers=1",  // a multiple of 8
                               "batch=2,sequence=8,vocabulary=99,width=32,heads=4,layers=1"}) {
    const Graph g = forward_of("transformer", settings);
    EXPECT_EQ(print(pad_classes(g)), print(g)) << settings;
  }
}

TEST(FuseLayerNorm, TakesTheSumAndItsGradient) {
  const Graph forward = forward_of("gpt2", kDecoder), fused = fuse(forward);
  // Of five sums (the embeddings', two in each layer) each has one norm behind it.
  EXPECT_EQ(count(forward, Op::add, Kind::forward), 5u);
  EXPECT_LE(count(fused, Op::add, Kind::forward), 1u);
  const Graph before = differentiate(forward), after = differentiate(fused);
  EXPECT_LT(count(after, Op::sum, Kind::input_grad), count(before, Op::sum, Kind::input_grad));
  verify(after);
}

TEST(FuseGradients, DerivativesGoIntoTheProductAbove) {
  const Graph g = training_graph(forward_of("gpt2", kDecoder), false);
  EXPECT_EQ(count(g, Op::activation, Kind::input_grad), 0u);
  EXPECT_EQ(std::ranges::count_if(g.tasks,
                                  [&](const Task& t) {
                                    return t.op == Op::linear && t.kind == Kind::input_grad &&
                                           g.attrs_of(t).has("derivative") && t.reads == 3;
                                  }),
            2);
}

TEST(FuseGradients, SumsGoIntoTheNormBelow) {
  const WishfulTarget target;
  const Graph before = differentiate(fuse(forward_of("resnet-18", "batch=2,image=32,classes=10")));
  const Graph after = fuse_gradients(before, target);
  verify(after);
  EXPECT_EQ(count(before, Op::sum, Kind::input_grad), 8u);
  EXPECT_EQ(count(after, Op::sum, Kind::input_grad), 1u);  // what the pooling of the stem gets is no norm's
  EXPECT_EQ(std::ranges::count_if(
                after.tasks,
                [](const Task& t) { return t.op == Op::batch_norm && t.kind == Kind::weight_grad && t.reads == 8; }),
            7);
}

// Parts of concats and of their gradients that have to be copied.
std::size_t copied_parts(const Graph& g) {
  std::size_t copied = 0;
  for (const Task& t : g.tasks) {
    if (t.op != Op::concat) continue;
    for (const ConcatPart& part : concat_parts(g, t)) copied += part.buffer != kNone && !lies_in_place(g, t, part);
  }
  return copied;
}

TEST(ShareConcats, DenseNetHasOneImagePerBlockAndCopiesNothing) {
  const std::string settings = "batch=32";
  const Graph g = training_graph(forward_of("densenet-121", settings), true);
  EXPECT_EQ(count(g, Op::concat, Kind::forward), 58u);
  EXPECT_EQ(count(g, Op::concat, Kind::input_grad), 58u);
  EXPECT_EQ(copied_parts(g), 0u);
  EXPECT_EQ(count(g, Op::sum, Kind::input_grad), 0u);  // every norm adds what comes round it
  std::map<BufferId, std::size_t> inside;
  for (const Buffer& b : g.buffers)
    if (b.inside.buffer != kNone) ++inside[b.inside.buffer];
  std::multiset<std::int64_t> widths;
  for (const auto& [holder, parts] : inside) widths.insert(g.buffers[holder].shape[1]);
  EXPECT_EQ(widths, (std::multiset<std::int64_t>{256, 256, 512, 512, 1024, 1024, 1024, 1024}));

  const Graph copying =
      training_graph(forward_of("densenet-121", settings), true, {.momentum = 0.9}, {"share_concats"});
  EXPECT_EQ(copied_parts(copying), 4 * 58u);
  const Plan plan = place_memory(schedule_in_order(g)), before = place_memory(schedule_in_order(copying));
  verify(plan);
  std::printf("densenet-121, batch 32: %.2f GB in %.2f GB of memory; with copies %.2f GB in %.2f GB\n",
              traffic_of(g) * 1e-9, static_cast<double>(plan.arena_bytes) * 1e-9, traffic_of(copying) * 1e-9,
              static_cast<double>(before.arena_bytes) * 1e-9);
  EXPECT_LT(static_cast<double>(plan.arena_bytes), 0.8 * static_cast<double>(before.arena_bytes));
  EXPECT_LT(traffic_of(g), 0.9 * traffic_of(copying));
  // Weight gradients that wait as long as they like.
  const Profile profile{std::vector<std::int64_t>(g.tasks.size(), 1000), std::vector<double>(g.tasks.size(), 0.4)};
  verify(place_memory(schedule_jointly(g, profile, {.most_tries = 100})));
  verify(place_memory(schedule_forward(g)));
}

TEST(ShareConcats, BranchesOfInceptionWriteBesideEachOther) {
  const Graph g = training_graph(forward_of("inception-v3", "batch=2,classes=10"), true);
  EXPECT_GT(count(g, Op::concat, Kind::forward), 10u);
  EXPECT_EQ(copied_parts(g), 0u);
  verify(place_memory(schedule_in_order(g)));
}

// Whole steps of small ones, weights and updates included.
TEST(ShareConcats, NetworksRunWellOnRandomLanes) {
  std::mt19937 random(5);
  const std::pair<const char*, const char*> networks[] = {
      {"densenet-121", "batch=1,image=32,classes=10,growth=4"},
      {"densenet-121", "batch=1,image=32,classes=10,growth=4,dropout=0.1"},
      {"inception-v3", "batch=1,image=75,classes=10,width_multiplier=0.125"}};
  for (const auto& [name, settings] : networks) {
    SCOPED_TRACE(settings);
    const Graph g = training_graph(forward_of(name, settings), false);
    for (std::size_t lanes = 1; lanes <= 3; ++lanes) {
      const Plan plan = place_memory(random_plan(g, lanes, random));
      verify(plan);
      EXPECT_TRUE(runs_well(plan, random)) << lanes << " lanes";
    }
  }
}

TEST(GroupUpdates, TakesNeighboursUpToTheLimit) {
  const Graph g = training_graph(forward_of("ffnn", "batch=2,image=8,width=24"), false);
  std::size_t weights = 0;
  for (const Task& t : g.tasks) {
    if (t.op != Op::sgd) continue;
    EXPECT_EQ(t.reads % 5, 0);
    EXPECT_EQ(t.writes % 3, 0);
    EXPECT_EQ(t.reads / 5, t.writes / 3);
    weights += t.reads / 5u;
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < t.writes; i += 3) elements += g.buffers[g.writes(t)[i]].shape.elements();
    EXPECT_TRUE(elements <= 3000 || t.writes == 3) << elements;
  }
  EXPECT_EQ(weights, static_cast<std::size_t>(
                         std::ranges::count_if(g.parameters, [](const Parameter& p) { return p.gradient != kNone; })));
  EXPECT_LT(count(g, Op::sgd, Kind::update), weights);
}

TEST(WeightCopies, AreWrittenByTheUpdateAndReadByTheProducts) {
  const Graph g = training_graph(forward_of("ffnn", "batch=2,image=8,width=24"), true);
  verify(g);
  std::size_t copies = 0;
  for (const Parameter& p : g.parameters) {
    if (p.copy == kNone) continue;
    ++copies;
    EXPECT_EQ(g.buffers[p.copy].role, Role::weight_copy);
    EXPECT_EQ(g.buffers[p.copy].dtype, DType::bf16);
    EXPECT_EQ(g.buffers[p.buffer].dtype, DType::f32);
    EXPECT_EQ(g.buffers[p.gradient].dtype, DType::bf16);
    for (const Task& t : g.tasks) {
      const auto reads = g.reads(t), writes = g.writes(t);
      const bool reads_copy = std::ranges::find(reads, p.copy) != reads.end();
      if (std::ranges::find(writes, p.copy) != writes.end()) {
        EXPECT_EQ(t.op, Op::sgd);
      }
      if (reads_copy && t.op != Op::sgd) {
        EXPECT_EQ(t.op, Op::linear);
      }
      if (t.op == Op::linear) {
        EXPECT_EQ(std::ranges::find(reads, p.buffer), reads.end());
      }
    }
  }
  EXPECT_GE(copies, 2u);
  // They survive a file.
  EXPECT_EQ(print(load_graph_json(save_json(g))), print(g));
}

TEST(FirstImageLayout, OneReorderFromTheInputToThePaddedImage) {
  const WishfulTarget target;
  const Graph g = choose_layouts(use_bf16(forward_of("resnet-18", "batch=2,image=32,classes=10")), target);
  std::size_t reorders = 0;
  for (const Task& t : g.tasks) {
    if (t.op != Op::reorder) continue;
    ++reorders;
    EXPECT_EQ(g.buffers[g.reads(t)[0]].role, Role::input);
    EXPECT_EQ(to_string(g.buffers[g.writes(t)[0]].layout), "acdB8b");
    EXPECT_EQ(g.buffers[g.writes(t)[0]].dtype, DType::bf16);
  }
  EXPECT_EQ(reorders, 1u);
}

}  // namespace
}  // namespace overtake
