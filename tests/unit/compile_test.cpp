// Compiling and simulating as programs outside do it, with cost models, orders and passes of their own.

#include <numeric>

#include "caught_error.h"
#include "overtake/overtake.h"

namespace overtake {
namespace {

Graph lenet() { return build_model("lenet", ModelSettings::parse("batch=4")); }

RunSpec plain_spec() {
  RunSpec spec;
  spec.parts = 2;
  return spec;
}

// Every task takes as long, and leaves so much of the device to others.
class Equal final : public CostModel {
 public:
  explicit Equal(double load, std::size_t too_many = 0) : load_(load), too_many_(too_many) {}
  std::vector<TaskCost> costs(const Graph& step, std::uint32_t) const override {
    return std::vector<TaskCost>(step.tasks.size() + too_many_, TaskCost{.ns = 1000, .load = load_});
  }

 private:
  double load_;
  std::size_t too_many_;
};

Machine machine_with(const RunSpec& spec, std::shared_ptr<const CostModel> costs) {
  Machine machine = machine_of(spec);
  machine.costs = std::move(costs);
  machine.most_lanes = 2;
  return machine;
}

std::int64_t tasks_of(const Program& program) { return std::ssize(program.step.tasks); }

TEST(Compile, FollowsAnOwnCostModel) {
  const RunSpec spec = plain_spec();
  const Program full = compile(lenet(), spec, machine_with(spec, std::make_shared<Equal>(1.0)));
  EXPECT_EQ(full.choice().name, "in order") << "nothing can run beside anything";
  EXPECT_EQ(full.choice().predicted_ns, 1000 * tasks_of(full));
  const Program half = compile(lenet(), spec, machine_with(spec, std::make_shared<Equal>(0.5)));
  EXPECT_GT(half.choice().order.lanes.size(), 1u) << half.reason;
  EXPECT_LT(half.choice().predicted_ns, full.choice().predicted_ns);
}

TEST(Compile, PredictsAnOwnOrder) {
  const RunSpec spec = plain_spec();
  const auto order = [](const Graph& step) {
    Plan plan;
    plan.graph = step;
    plan.lanes.resize(1);
    plan.lanes[0].tasks.resize(step.tasks.size());
    std::iota(plan.lanes[0].tasks.begin(), plan.lanes[0].tasks.end(), TaskId{0});
    return plan;
  };
  const Program program =
      compile(lenet(), spec, machine_with(spec, std::make_shared<Equal>(1.0)), {.own_order = order});
  EXPECT_EQ(program.choice().name, "own");
  EXPECT_EQ(program.choice().predicted_ns, 1000 * tasks_of(program));
  EXPECT_GT(program.choice().most_bytes(), 0u);
  EXPECT_EQ(compile(lenet(), spec, machine_of(spec), {.own_order = order}).choice().predicted_ns, 0) << "not known";
}

TEST(Compile, RunsPassesOfTheUser) {
  const RunSpec spec = plain_spec();
  std::vector<std::string> texts;
  const Pass<Graph> renames = {"rename", [](Graph g) {
                                 g.model = "renamed";
                                 return g;
                               }};
  const Program program =
      compile(lenet(), spec, machine_of(spec),
              {.extra_passes = {renames}, .print_passes = [&](const std::string& text) { texts.push_back(text); }});
  EXPECT_EQ(program.step.model, "renamed");
  EXPECT_EQ(program.model.model, "lenet");
  EXPECT_TRUE(std::ranges::any_of(texts, [](const std::string& t) { return t.starts_with("after rename "); }));
}

TEST(Compile, SaysWhatAMachineMustKnow) {
  RunSpec spec = plain_spec();
  const auto field = [&](const Machine& machine) { return caught([&] { compile(lenet(), spec, machine); }).field(); };
  EXPECT_EQ(field(Machine{}), "target");
  EXPECT_EQ(field(machine_with(spec, std::make_shared<Equal>(1.0, 1))), "costs") << "one too many";
  EXPECT_EQ(field(machine_with(spec, std::make_shared<Equal>(-1.0))), "costs") << "a negative load";
  spec.schedule = "ooo";
  EXPECT_EQ(field(machine_of(spec)), "costs") << "there are none";
  spec = plain_spec();
  spec.stages = 2;
  EXPECT_EQ(field(machine_of(spec)), "costs") << "there are none";
}

TEST(Compile, MeasuredTimesAreOfOneStep) {
  RunSpec spec = plain_spec();
  spec.schedule = "ooo";
  spec.plan_seconds = 0.1;
  const Machine machine = measured_machine(lenet(), spec);
  EXPECT_GT(simulate(compile(lenet(), spec, machine)).trace.step_ns, 0);
  const Graph other = build_model("ffnn", ModelSettings::parse("batch=4"));
  EXPECT_EQ(caught([&] { compile(other, spec, machine); }).field(), "costs");
}

TEST(Simulate, OfOneDeviceIsTaskByTask) {
  const RunSpec spec = plain_spec();
  const Program program = compile(lenet(), spec, machine_with(spec, std::make_shared<Equal>(1.0)));
  const Simulation step = simulate(program);
  EXPECT_EQ(step.trace.step_ns, program.choice().predicted_ns);
  EXPECT_EQ(std::ssize(step.trace.spans), tasks_of(program));
  for (const Span& s : step.trace.spans) EXPECT_EQ(s.end_ns - s.begin_ns, 1000) << step.plan.graph.task_name(s.task);
  ASSERT_EQ(step.peak_bytes.size(), 1u);
  EXPECT_EQ(step.peak_bytes[0], static_cast<std::int64_t>(program.choice().most_bytes()));
}

TEST(Simulate, OfSeveralDevicesIsWhatWasPredicted) {
  RunSpec spec = plain_spec();
  spec.machine = "cpu-hosts:4";
  spec.stages = 2;
  spec.replicas = 2;
  spec.micro_batches = 4;
  const Program program = compile(lenet(), spec, machine_of(spec));
  const Simulation step = simulate(program);
  EXPECT_EQ(step.trace.step_ns, program.choice().predicted_ns);
  EXPECT_EQ(step.peak_bytes.size(), 4u);
  EXPECT_EQ(std::ranges::max(step.peak_bytes), static_cast<std::int64_t>(program.choice().most_bytes()));
}

// Times that were measured are of the step as it was then.
class MeasuredBefore final : public CostModel {
 public:
  explicit MeasuredBefore(Graph step) : step_(std::move(step)) {}
  std::vector<TaskCost> costs(const Graph& step, std::uint32_t) const override {
    return std::vector<TaskCost>(step.tasks.size(), TaskCost{.ns = 1000});
  }
  std::optional<Graph> measured_step(const Graph&, const RunSpec&, std::span<const std::uint32_t>) const override {
    return step_;
  }

 private:
  Graph step_;
};

TEST(Compile, TakesNoPassesWhereTheStepWasMeasured) {
  const RunSpec spec = plain_spec();
  const Program plain = compile(lenet(), spec, machine_of(spec));
  const Machine machine = machine_with(spec, std::make_shared<MeasuredBefore>(plain.step));
  EXPECT_EQ(compile(lenet(), spec, machine).step.tasks.size(), plain.step.tasks.size());
  const CompileOptions own_pass{.extra_passes = {{"own", [](Graph g) { return g; }}}};
  EXPECT_EQ(caught([&] { compile(lenet(), spec, machine, own_pass); }).field(), "extra_passes");
  EXPECT_EQ(caught([&] { compile(lenet(), spec, machine, {.readable = {"fc1"}}); }).field(), "readable");
}

TEST(Simulate, NeedsCosts) {
  const RunSpec spec = plain_spec();
  const Program program = compile(lenet(), spec, machine_of(spec));
  EXPECT_EQ(caught([&] { simulate(program); }).field(), "program");
}

}  // namespace
}  // namespace overtake
