// Programs: compiled from a model, a spec and a machine, saved, loaded and compared.

#include "plan/program.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "exec/described_target.h"
#include "machine/kernel_times/kernel_times.h"
#include "overtake/zoo.h"
#include "plan/compile.h"
#include "plan/detail_of.h"
#include "plan/memory.h"
#include "plan/simulated_step.h"
#include "train/planner.h"

namespace overtake {
namespace {

struct Layout {
  const char* name;
  std::uint32_t replicas, stages, micro_batches;
  const char *pipeline, *reduce;
};
constexpr Layout kLayouts[] = {{"one device", 1, 1, 1, "1f1b", "buckets"},
                               {"micro-batches", 1, 1, 4, "1f1b", "buckets"},
                               {"data parallel", 2, 1, 1, "1f1b", "auto"},
                               {"pipeline", 1, 2, 4, "search", "buckets"},
                               {"hybrid", 2, 2, 2, "zb-h1", "by-layer"}};

RunSpec spec_of(const Layout& layout) {
  RunSpec spec;
  spec.model = "cnn";
  spec.machine = "cpu-hosts:4";
  spec.parts = 2;
  spec.replicas = layout.replicas;
  spec.stages = layout.stages;
  spec.micro_batches = layout.micro_batches;
  spec.pipeline = layout.pipeline;
  spec.reduce = layout.reduce;
  spec.search_tries = 500;
  return spec;
}

// Tasks of which every second leaves half of the device to others.
class HalfLoads final : public CostModel {
 public:
  std::vector<TaskCost> costs(const Graph& step, std::uint32_t) const override {
    std::vector<TaskCost> costs;
    for (TaskId t = 0; t < step.tasks.size(); ++t)
      costs.push_back({.ns = 1000 + 10 * std::int64_t{t}, .load = t % 2 == 0 ? 0.5 : 1.0});
    return costs;
  }
};

Program compiled(const RunSpec& given, std::shared_ptr<const CostModel> costs = {}) {
  Machine machine = machine_of(given);
  if (costs) machine.costs = std::move(costs);
  PassRunner runner;
  return compile(build_model("cnn", ModelSettings::parse("batch=2,width=4")), completed_for(given, machine, 2), machine,
                 runner);
}

TEST(Program, IsTheSameFromTheSameThree) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    const std::string first = save_json(compiled(spec_of(layout)));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(save_json(compiled(spec_of(layout))), first);
  }
}

TEST(Program, IsTheSameAfterATripThroughAFile) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    Program program = compiled(spec_of(layout), std::make_shared<HalfLoads>());
    const std::string text = save_json(program);
    Program again = load_program_json(text, "it");
    EXPECT_EQ(save_json(again), text);
    again.machine.target = program.machine.target;
    const Plan plan = detail_of(program).plan, plan_again = detail_of(again).plan;
    EXPECT_EQ(print(plan_again.graph), print(plan.graph));
    ASSERT_EQ(plan_again.lanes.size(), plan.lanes.size());
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) EXPECT_EQ(plan_again.lanes[l].tasks, plan.lanes[l].tasks) << l;
    EXPECT_EQ(simulated_step(again).step.step_ns(), simulated_step(program).step.step_ns());
  }
}

TEST(Program, OfRankZeroIsThatOfAllRanks) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    const Program program = compiled(spec_of(layout));
    Program other = program;
    other.choices.clear();
    other.costs.clear();
    take_choices(other, save_choices(program));
    EXPECT_EQ(save_json(other), save_json(program));
    ASSERT_EQ(other.choices.size(), program.choices.size());
    for (std::size_t i = 0; i < other.choices.size(); ++i) {
      EXPECT_EQ(other.choices[i].schedule.orders, program.choices[i].schedule.orders);
      EXPECT_EQ(other.choices[i].order, program.choices[i].order);
    }
  }
}

TEST(Program, PutsTasksOnLanesWhereTheyGain) {
  RunSpec spec = spec_of(kLayouts[1]);
  const Program alone = compiled(spec);
  EXPECT_EQ(alone.choice().order.lanes.size(), 0u) << "by rates no task gains from another beside it";
  const Program beside = compiled(spec, std::make_shared<HalfLoads>());
  EXPECT_GT(beside.choice().order.lanes.size(), 1u) << beside.reason;
  EXPECT_LT(beside.choice().predicted_ns, beside.choices[0].predicted_ns);
  EXPECT_NO_THROW(verify(place_memory(detail_of(beside).plan)));
  spec.schedule = "in-order";
  EXPECT_EQ(compiled(spec, std::make_shared<HalfLoads>()).choices.size(), 1u);
}

TEST(Program, SaysInWhatAnotherDiffers) {
  RunSpec spec = spec_of(kLayouts[3]);
  spec.pipeline = "1f1b";
  const Program one = compiled(spec);
  EXPECT_EQ(difference(one, compiled(spec)), "");
  spec.pipeline = "gpipe";
  spec.lr = 0.5;
  const std::string text = difference(one, compiled(spec));
  EXPECT_NE(text.find("pipeline: \"1f1b\" | \"gpipe\"\n"), std::string::npos) << text;
  EXPECT_NE(text.find("another order on devices 0"), std::string::npos) << text;
  EXPECT_EQ(text.find("network"), std::string::npos) << text;
  EXPECT_EQ(text.find("lr:"), std::string::npos) << "it decides no plan: " << text;
  spec = spec_of(kLayouts[3]);
  spec.pipeline = "1f1b";
  spec.optimizer = "adamw";
  EXPECT_NE(difference(one, compiled(spec)).find("step: "), std::string::npos);
  EXPECT_NE(difference(one, compiled(spec_of(kLayouts[0]))).find("pp: 2 | 1"), std::string::npos);
}

TEST(Program, HasSideLanesOnEveryDeviceWhereTheyGain) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    if (layout.replicas * layout.stages == 1) continue;
    RunSpec spec = spec_of(layout);
    spec.schedule = "ooo";
    Program aside = compiled(spec, std::make_shared<HalfLoads>());
    EXPECT_FALSE(aside.choice().side.tasks.empty());
    const Plan plan = detail_of(aside).plan;
    EXPECT_NO_THROW(verify(place_memory(plan)));
    EXPECT_GT(std::ranges::count(plan.lanes, false, &Lane::is_asynchronous), layout.replicas * layout.stages);
    spec.schedule = "in-order";
    const Program one_lane = compiled(spec, std::make_shared<HalfLoads>());
    EXPECT_TRUE(one_lane.choice().side.tasks.empty());
    EXPECT_LT(aside.choice().predicted_ns, one_lane.choice().predicted_ns);
    // Its file keeps the side lanes.
    const std::string text = save_json(aside);
    EXPECT_EQ(save_json(load_program_json(text, "it")), text);
    EXPECT_EQ(load_program_json(text, "it").choice().side, aside.choice().side);
    aside.choices[aside.chosen].side.tasks[0] = 0;
    EXPECT_THROW(load_program_json(save_json(aside), "it"), UserError) << "forwards are on first lanes";
    aside.choices[aside.chosen].side = {.tasks = {}, .waits = {{1'000'000, 0}}};
    EXPECT_THROW(load_program_json(save_json(aside), "it"), UserError);
  }
}

TEST(Program, IsPredictedWithTheMemoryOfItsDevices) {
  const Program program = compiled(spec_of(kLayouts[3]));
  EXPECT_GT(program.choice().predicted_ns, 0);
  ASSERT_EQ(program.choice().peak_bytes.size(), 2u);
  EXPECT_GT(std::ranges::min(program.choice().peak_bytes), 0u);
  EXPECT_NE(print(program).find("memory"), std::string::npos);
  for (const PlanChoice& c : program.choices) EXPECT_GE(c.predicted_ns, program.choice().predicted_ns) << c.name;
}

TEST(Program, FilesThatAreNoPlansAreRefused) {
  const auto refused = [](const std::string& text) {
    try {
      load_program_json(text, "x.plan");
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_NE(refused("").find("x.plan: it is damaged"), std::string::npos);
  EXPECT_NE(refused("{}").find("no plan of Overtake's"), std::string::npos);
  // What a plan over several devices cannot do without.
  Program divided = compiled(spec_of(kLayouts[3]));
  divided.costs.clear();
  EXPECT_NE(refused(save_json(divided)).find("what tasks take"), std::string::npos);
  divided = compiled(spec_of(kLayouts[3]));
  divided.choices[divided.chosen].schedule.orders.clear();
  const std::string said = refused(save_json(divided));
  EXPECT_NE(said.find("does not hold together"), std::string::npos) << said;
  EXPECT_EQ(said.find("report"), std::string::npos) << "it is no fault of the program's: " << said;
  const std::string good = save_json(compiled(spec_of(kLayouts[0])));
  EXPECT_NE(refused(good.substr(0, good.size() / 2)).find("damaged"), std::string::npos);
  std::string other = good;
  const std::size_t at = other.find("\"version\":\"");
  ASSERT_NE(at, std::string::npos);
  other.replace(at, 12, "\"version\":\"9");
  EXPECT_NE(refused(other).find("was written by Overtake"), std::string::npos);
  // Whatever byte is missing: refused or read, and nothing worse.
  for (const std::string& whole : {good, save_json(compiled(spec_of(kLayouts[4])))})
    for (std::size_t cut = 0; cut < whole.size(); cut += 1 + whole.size() / 200) {
      std::string damaged = whole;
      damaged.erase(cut, 1);
      refused(damaged);
    }
}

}  // namespace
}  // namespace overtake
