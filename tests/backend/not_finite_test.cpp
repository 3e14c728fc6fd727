// A gradient that is not finite in a task that runs a step late: it shows in the next step's loss or, if there is none,
// in an error of whoever looks at the weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "overtake/model.h"
#include "passes/training_passes.h"
#include "plan/in_order.h"
#include "plan/memory.h"
#include "random_plan.h"
#include "test_device.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

// Two linear layers: a of 1e38 and b of 1e-38, so that values and losses are of a sensible size, but the gradient of b
// (1e38 times about 100) is beyond float32.
class NotFinite : public ::testing::Test {
 protected:
  void SetUp() override {
    Model m("overflow", 2);
    const Value hidden = m.linear(m.input({4}), {.out = 4, .bias = false}, "a");
    m.mean_squared_error(m.linear(hidden, {.out = 4, .bias = false}, "b"));
    PassRunner runner({.skip = {"group_updates"}, .print = {}});  // so that one weight's update can be late
    graph_ = build_training_graph(std::move(m).finish(), backend_->target(),
                                  {.optimizer = {.momentum = 0}, .parts = 1, .extra = {}}, runner);
    for (Task& t : graph_.tasks) {
      const bool is_b = graph_.layer_name(t.layer).starts_with("b");
      t.is_delayed = is_b && (t.kind == Kind::weight_grad || t.kind == Kind::update);
    }
    EXPECT_EQ(std::ranges::count_if(graph_.tasks, &Task::is_delayed), 2);
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
  EXPECT_TRUE(says(user_error([&] { read("a.weight"); }), {"step 5", "not finite", "`lr`"}));
  EXPECT_EQ(read("b.weight"), std::vector<float>(16, 1e-38f)) << "said once; the weight was not touched";
}

TEST_F(NotFinite, EvaluatingIsAUserErrorToo) {
  EXPECT_TRUE(std::isfinite(loss_of(4)));
  EXPECT_TRUE(says(user_error([&] { loss_of(5, 1); }), {"step 5", "not finite", "`clip_norm`"}));
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

}  // namespace
}  // namespace overtake
