// Training as programs outside do it: inputs and what was computed by name, and the errors of wrong uses.

#include <cmath>

#include "caught_error.h"
#include "overtake/overtake.h"
#include "plan/in_order.h"
#include "random_plan.h"
#include "run_setup.h"

namespace overtake {
namespace {

constexpr float kRate = 0.5f;

RunSpec plain_spec() {
  RunSpec spec;
  spec.schedule = "in-order";
  spec.threads = 2;
  spec.parts = 2;
  spec.seed = 3;
  spec.momentum = 0;
  return spec;
}

std::vector<float> numbers(std::size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

// [N, C, H, W] -> [N, H, W, C]
std::vector<float> channels_last(const std::vector<float>& images, std::size_t n, std::size_t c, std::size_t pixels) {
  std::vector<float> out(images.size());
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < c; ++j)
      for (std::size_t p = 0; p < pixels; ++p) out[(i * pixels + p) * c + j] = images[(i * c + j) * pixels + p];
  return out;
}

Graph image_model() {
  Model m("images", 4);
  Value x = m.relu(m.conv2d(m.input({3, 8, 8}, "photo"), {.out = 8, .kernel = 3, .padding = 1}, "conv"));
  m.cross_entropy(m.linear(m.flatten(m.max_pool(x)), {.out = 5}, "head"));
  return std::move(m).finish();
}
constexpr std::size_t kPhotos = 4 * 3 * 8 * 8;
const std::vector<std::int32_t> kLabels = {0, 4, 2, 3};

// y = x W^T + b, and the mean of (y - t)^2.
Graph line_model(std::int64_t batch = 3) {
  Model m("line", batch);
  m.mean_squared_error(m.linear(m.input({4}), {.out = 2}, "fc"));
  return std::move(m).finish();
}
const std::vector<float> kX = numbers(3 * 4), kTargets = numbers(3 * 2, 2);
std::vector<Input> line_inputs() { return {{"input", kX}, {"targets", kTargets}}; }

Trainer line_trainer(const CompileOptions& options = {}) { return {line_model(), plain_spec(), options}; }

TEST(Trainer, TakesInputsByAnyNameAndImagesInBothOrders) {
  const std::vector<float> photos = numbers(kPhotos);
  const std::vector<float> last = channels_last(photos, 4, 3, 64);
  Trainer a(image_model(), plain_spec()), b(image_model(), plain_spec());
  Input turned("photo", last);
  turned.is_channels_last = true;
  for (int step = 0; step < 3; ++step) {
    const StepResult result = a.step({{"photo", photos}, {"labels", kLabels}}, kRate);
    EXPECT_EQ(b.step({{"labels", kLabels}, turned}, kRate).loss, result.loss);
    EXPECT_EQ(result.counted, 4);
  }
  EXPECT_EQ(a.weights_hash(), b.weights_hash());
  EXPECT_EQ(a.steps_done(), 3u);
  Trainer wrong(image_model(), plain_spec());
  wrong.step({{"photo", last}, {"labels", kLabels}}, kRate);
  EXPECT_NE(wrong.read("conv.weight").values, a.read("conv.weight").values) << "the order of pixels counts";
}

TEST(Trainer, TakesMasks) {
  constexpr std::int64_t kLength = 6;
  Model m("masked", 2);
  const Value mask = m.mask({kLength}, "visible");
  Value x = m.embedding(m.tokens({kLength}, "words"), 16, 8);
  const auto linear = [&] { return m.linear(x, {.out = 8}); };
  const Value q = linear(), k = linear(), v = linear();
  m.cross_entropy(m.linear(m.attention(q, k, v, {.heads = 2}, mask), {.out = 16}));
  Trainer trainer(std::move(m).finish(), plain_spec());
  const std::vector<std::int32_t> words = {1, 5, 2, 9, 0, 0, 7, 7, 3, 4, 15, 0}, labels(12, 3);
  const std::vector<std::uint8_t> all(12, 1), some = {1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0};
  const auto loss = [&](const std::vector<std::uint8_t>& visible, const std::vector<std::int32_t>& read) {
    return trainer.evaluate({{"visible", visible}, {"words", read}, {"labels", labels}}).loss;
  };
  std::vector<std::int32_t> others = words;
  others[4] = 8;
  EXPECT_NE(loss(all, words), loss(some, words));
  EXPECT_NE(loss(all, words), loss(all, others));
}

TEST(Trainer, ReadsWeightsActivationsAndGradients) {
  Trainer trainer = line_trainer({.readable = {"fc", "fc.weight.grad", "fc.grad", "fc.bias"}});
  const Tensor weight = trainer.read("fc.weight"), bias = trainer.read("fc.bias");
  EXPECT_EQ(weight.shape, (std::vector<std::int64_t>{2, 4}));
  trainer.step(line_inputs(), kRate);
  const Tensor y = trainer.read("fc"), dy = trainer.read("fc.grad"), dw = trainer.read("fc.weight.grad");
  EXPECT_EQ(y.shape, (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(dw.shape, weight.shape);
  for (std::size_t n = 0; n < 3; ++n)
    for (std::size_t o = 0; o < 2; ++o) {
      double sum = bias.values[o];
      for (std::size_t i = 0; i < 4; ++i) sum += double{weight.values[o * 4 + i]} * kX[n * 4 + i];
      EXPECT_NEAR(y.values[n * 2 + o], sum, 1e-5);
      EXPECT_NEAR(dy.values[n * 2 + o], 2 * (sum - kTargets[n * 2 + o]) / 6, 1e-5);
    }
  const Tensor after = trainer.read("fc.weight");
  for (std::size_t o = 0; o < 2; ++o)
    for (std::size_t i = 0; i < 4; ++i) {
      double sum = 0;
      for (std::size_t n = 0; n < 3; ++n) sum += double{dy.values[n * 2 + o]} * kX[n * 4 + i];
      EXPECT_NEAR(dw.values[o * 4 + i], sum, 1e-5);
      EXPECT_EQ(after.values[o * 4 + i], weight.values[o * 4 + i] - kRate * dw.values[o * 4 + i]);
    }
}

TEST(Trainer, WhatIsReadableChangesNoBits) {
  const std::vector<float> photos = numbers(kPhotos);
  const auto hash = [&](const std::string& schedule, const std::vector<std::string>& readable) {
    RunSpec spec = plain_spec();
    spec.schedule = schedule;
    spec.momentum = 0.9;
    Trainer trainer(image_model(), spec, {.readable = readable});
    for (int step = 0; step < 3; ++step) trainer.step({{"photo", photos}, {"labels", kLabels}}, 0.1f);
    for (const std::string& name : readable) EXPECT_FALSE(trainer.read(name).values.empty()) << name;
    return trainer.weights_hash();
  };
  const std::vector<std::string> readable = {"conv", "conv.weight.grad", "conv.grad", "head", "head.bias.grad"};
  EXPECT_EQ(hash("in-order", {}), hash("in-order", readable));
  EXPECT_EQ(hash("in-order", {}), hash("ooo", readable));
}

TEST(Trainer, KnowsWhatLivesAcrossSteps) {
  RunSpec spec = plain_spec();
  spec.momentum = 0.9;
  const Trainer trainer(line_model(), spec);
  EXPECT_EQ(trainer.parameters(),
            (std::vector<std::string>{"fc.weight", "fc.bias", "fc.weight.momentum", "fc.bias.momentum"}));
  EXPECT_EQ(trainer.read("fc.bias.momentum").values, (std::vector<float>{0, 0}));
  EXPECT_EQ(trainer.batch(), 3);
}

TEST(Trainer, TakesTheLearningRateOfTheSpec) {
  RunSpec spec = plain_spec();
  spec.lr = 0.25;
  spec.lr_schedule = "step:1:0.5";
  Trainer by_spec(line_model(), spec), by_hand = line_trainer();
  for (const float rate : {0.25f, 0.125f, 0.0625f}) {
    by_spec.step(line_inputs());
    by_hand.step(line_inputs(), rate);
  }
  EXPECT_EQ(by_spec.weights_hash(), by_hand.weights_hash());
  spec.lr_schedule = "cosine";
  Trainer endless(line_model(), spec);
  EXPECT_EQ(caught([&] { endless.step(line_inputs()); }).field(), "lr_schedule");
  endless.step(line_inputs(), kRate);
}

TEST(Trainer, TracesEveryTask) {
  Trainer trainer = line_trainer();
  EXPECT_EQ(trainer.step_traced(line_inputs(), kRate).trace.spans.size(), trainer.plan().graph.tasks.size());
}

TEST(Trainer, AdoptsProgramsBetweenSteps) {
  const std::vector<float> photos = numbers(kPhotos);
  const RunSpec spec = plain_spec();
  std::mt19937 random(5);
  const auto own = [&](const Graph& step) { return random_plan(step, 2, random); };
  Trainer straight(image_model(), spec), changing(image_model(), spec);
  for (int step = 0; step < 4; ++step) {
    for (Trainer* t : {&straight, &changing}) t->step({{"photo", photos}, {"labels", kLabels}}, kRate);
    changing.adopt(compile(image_model(), spec, machine_of(spec), {.own_order = own}));
    EXPECT_EQ(changing.program().choice().name, "random");
  }
  EXPECT_EQ(straight.weights_hash(), changing.weights_hash());
  EXPECT_EQ(changing.steps_done(), 4u);
}

// A constant is part of the model, and of the text.
TEST(Trainer, RunsProgramsThatWereReadFromText) {
  Model m("scaled", 3);
  const std::vector<float> scale = {1, 2};
  const Value y = m.linear(m.input({4}), {.out = 2}, "fc");
  m.mean_squared_error(m.mul(y, m.expand(m.constant({1, 2}, scale, "scale"), {3, 2})));
  const RunSpec spec = plain_spec();
  const Program program = compile(std::move(m).finish(), spec, machine_of(spec));
  Trainer a(program, spec), b(load_program_json(save_json(program), "the text"), spec);
  for (Trainer* t : {&a, &b}) t->step(line_inputs(), kRate);
  EXPECT_EQ(a.weights_hash(), b.weights_hash());
}

TEST(TrainerErrors, OfInputs) {
  Trainer trainer = line_trainer();
  const std::uint64_t hash = trainer.weights_hash();
  const std::vector<float> short_of_one(kX.begin(), kX.end() - 1);
  const std::vector<std::int32_t> whole_numbers(kX.size());
  const auto value = [&](const std::vector<Input>& inputs) {
    const UserError e = caught([&] { trainer.step(inputs, kRate); });
    EXPECT_EQ(e.field(), "input") << e.what();
    return e.value();
  };
  EXPECT_EQ(value({{"input", kX}}), "targets") << "it is missing";
  EXPECT_EQ(value({{"input", short_of_one}, {"targets", kTargets}}), "input") << "it is too short";
  EXPECT_EQ(value({{"input", whole_numbers}, {"targets", kTargets}}), "input") << "it is of another type";
  EXPECT_EQ(value({{"input", kX}, {"targets", kTargets}, {"labels", kLabels}}), "labels") << "there is none";
  EXPECT_EQ(trainer.weights_hash(), hash);
  EXPECT_EQ(trainer.steps_done(), 0u);
  trainer.step(line_inputs(), kRate);
}

TEST(TrainerErrors, OfStepsUnderWay) {
  Trainer trainer(line_model(), plain_spec());
  caught([&] { trainer.finish_step(); });
  for (std::size_t i = 0; i < trainer.most_under_way(); ++i) trainer.start_step(line_inputs());
  caught([&] { trainer.start_step(line_inputs()); });
  caught([&] { trainer.evaluate(line_inputs()); });
  caught([&] { trainer.step_traced(line_inputs()); });
  for (std::size_t i = 0; i < trainer.most_under_way(); ++i) EXPECT_GT(trainer.finish_step().loss, 0);
  caught([&] { trainer.finish_step(); });
  EXPECT_GT(trainer.evaluate(line_inputs()).loss, 0);
  EXPECT_EQ(trainer.steps_done(), trainer.most_under_way());
}

// What a spec says of files is not for a trainer, whose model is given.
TEST(Trainer, LooksAtNoPlanFile) {
  RunSpec spec = plain_spec();
  spec.plan = "none.plan";
  EXPECT_EQ(Trainer(line_model(), spec).batch(), 3);
}

TEST(TrainerErrors, OfReading) {
  Trainer trainer = line_trainer({.readable = {"fc"}});
  EXPECT_EQ(caught([&] { trainer.read("fc.grad"); }).value(), "fc.grad") << "it is not kept";
  EXPECT_EQ(caught([&] { trainer.read("fc2.weight"); }).field(), "read");
  trainer.start_step(line_inputs(), kRate);
  EXPECT_EQ(caught([&] { trainer.read("fc.weight"); }).remedy(), "finish them first");
  trainer.finish_step();
  trainer.read("fc.weight");
}

TEST(TrainerErrors, OfReadableNames) {
  const UserError e = caught([&] { line_trainer({.readable = {"fc", "fc3"}}); });
  EXPECT_EQ(e.field(), "readable");
  EXPECT_EQ(e.value(), "fc3");
  RunSpec in_pieces = plain_spec();
  in_pieces.micro_batches = 2;
  EXPECT_EQ(caught([&] { Trainer(line_model(), in_pieces, {.readable = {"fc"}}); }).field(), "readable");
}

TEST(TrainerErrors, OfAdopting) {
  const RunSpec spec = plain_spec();
  Trainer trainer = line_trainer();
  Model m("other", 3);
  m.mean_squared_error(m.linear(m.input({4}), {.out = 2}, "fc2"));
  const Program other = compile(std::move(m).finish(), spec, machine_of(spec));
  EXPECT_EQ(caught([&] { trainer.adopt(other); }).field(), "program");
  RunSpec with_momentum = spec;
  with_momentum.momentum = 0.9;
  const Program keeps_more = compile(line_model(), with_momentum, machine_of(spec));
  EXPECT_EQ(caught([&] { trainer.adopt(keeps_more); }).value(), "line");
  const Program same = compile(line_model(), spec, machine_of(spec));
  trainer.start_step(line_inputs(), kRate);
  EXPECT_EQ(caught([&] { trainer.adopt(same); }).remedy(), "finish them first");
  trainer.finish_step();
  trainer.adopt(same);
}

TEST(TrainerErrors, OfProgramsThatDoNotFit) {
  const RunSpec spec = plain_spec();
  const Program program = compile(line_model(), spec, machine_of(spec));
  RunSpec other = spec;
  other.clip_norm = 1;
  EXPECT_EQ(caught([&] { Trainer(program, other); }).field(), "clip_norm");
  RunSpec on_gpus = spec;
  on_gpus.machine = "h200";
  on_gpus.precision = "f32";
  const Program for_gpus = compile(line_model(), on_gpus, machine_of(on_gpus));
  EXPECT_EQ(caught([&] { Trainer(for_gpus, on_gpus); }).field(), "program") << "its kernels are of GPUs";
}

}  // namespace
}  // namespace overtake
