// A program outside Overtake: it trains a network on samples of its own, with a schedule and a cost model of its own.

#include <overtake/overtake.h>

#include <cinttypes>
#include <cstdio>

using namespace overtake;

// A task takes as long as it has bytes to read and write.
class BytesAreTime final : public CostModel {
  std::vector<TaskCost> costs(const Graph& step, std::uint32_t) const override {
    std::vector<TaskCost> costs(step.tasks.size());
    for (TaskId t = 0; t < costs.size(); ++t)
      for (const auto& operands : {step.reads(t), step.writes(t)})
        for (const BufferId b : operands) costs[t].ns += b == kNone ? 0 : step.bytes(b);
    return costs;
  }
};

// Weight gradients and updates have a lane of their own, beside everything else.
Plan beside(const Graph& step) {
  Plan plan;
  plan.graph = step;
  plan.schedule = "beside";
  plan.lanes.resize(2);
  for (TaskId t = 0; t < step.tasks.size(); ++t) plan.lanes[step.tasks[t].kind >= Kind::weight_grad].tasks.push_back(t);
  return plan;
}

int main() {
  Model m("lenet", /*batch=*/8);
  Value x = m.relu(m.conv2d(m.input({1, 28, 28}), {.out = 6, .kernel = 5, .padding = 2}, "conv1"));
  x = m.relu(m.conv2d(m.max_pool(x), {.out = 16, .kernel = 5}, "conv2"));
  x = m.relu(m.linear(m.flatten(m.max_pool(x)), {.out = 120}, "fc1"));
  m.cross_entropy(m.linear(m.relu(m.linear(x, {.out = 84}, "fc2")), {.out = 10}, "fc3"));

  RunSpec spec;
  spec.parts = 2;
  spec.seed = 7;
  Machine machine = machine_of(spec);
  machine.costs = std::make_shared<BytesAreTime>();
  const Program program = compile(std::move(m).finish(), spec, machine, {.own_order = beside});
  Trainer trainer(program, spec);

  std::vector<float> images(8 * 28 * 28);
  std::vector<std::int32_t> labels(8);
  for (std::size_t step = 0; step < 6; ++step) {
    for (std::size_t i = 0; i < images.size(); ++i)
      images[i] = static_cast<float>((step * images.size() + i) * 37 % 128) / 128;
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int>((step * labels.size() + i) % 10);
    trainer.step({{"input", images}, {"labels", labels}});
  }
  std::printf("order %s\n", trainer.plan().schedule.c_str());
  std::printf("predicted_ns %" PRId64 "\n", simulate(program).trace.step_ns);
  std::printf("weights_hash %016" PRIx64 "\n", trainer.weights_hash());
}
