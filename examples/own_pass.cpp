// A pass of your own in under 60 lines: freeze the first convolution. Its weight gradient and its update leave the
// graph; everything that only they needed leaves with them. Nothing else changes.

#include <fmt/format.h>

#include <overtake/overtake.h>

#include <algorithm>

#include "passes/pass.h"
#include "train/run.h"

using namespace overtake;

namespace {

// A pass is a pure function Graph -> Graph; the runner names, times and verifies it.
Pass<Graph> freeze(const std::string& layer) {
  return {"freeze " + layer, [layer](Graph graph) {
            const Graph old = graph;
            graph.tasks.clear();
            graph.operands.clear();
            for (TaskId t = 0; t < old.tasks.size(); ++t) {
              const Task& task = old.tasks[t];
              const std::string& name = old.layer_name(task.layer);
              const bool is_gradient = task.kind == Kind::weight_grad && name == layer;
              const bool is_update = task.kind == Kind::update && name.starts_with(layer + ".");
              if (!is_gradient && !is_update)
                graph.add_task(task.kind, task.op, task.layer, task.attrs, old.reads(t), old.writes(t));
            }
            return graph;
          }};
}

std::vector<NamedTensor> weights_after(int steps, std::vector<Pass<Graph>> passes) {
  RunSpec spec;
  spec.schedule = "in-order";
  RunOptions options;
  options.planner.compile.extra_passes = std::move(passes);
  TrainingRun run(build_model("lenet", ModelSettings::parse("batch=8")), spec, options);
  run.fill_inputs(/*seed=*/1);
  for (int i = 0; i < steps; ++i) run.step(/*learning_rate=*/0.1f);
  return run.tensors();
}

}  // namespace

int main() {
  const auto before = weights_after(0, {}), after = weights_after(5, {freeze("conv1")});
  bool is_right = true;
  for (const std::string name : {"conv1.weight", "conv1.bias", "conv2.weight", "fc3.bias"}) {
    const bool moved = !std::ranges::equal(find_tensor(before, name)->bytes, find_tensor(after, name)->bytes);
    fmt::print("{:<13} {}\n", name, moved ? "trained" : "frozen");
    is_right = is_right && moved == !name.starts_with("conv1.");
  }
  return is_right ? 0 : 1;
}
