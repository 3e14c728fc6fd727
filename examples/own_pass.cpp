// A pass of your own: freeze the first convolution. Its weight gradient and its update leave the graph; everything that
// only they needed leaves with them. Nothing else changes.

#include <overtake/overtake.h>

#include <cstdio>

using namespace overtake;

namespace {

// A pass is a pure function Graph -> Graph; compiling names, times and verifies it.
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

}  // namespace

int main() {
  RunSpec spec;
  spec.schedule = "in-order";
  Trainer trainer(build_model("lenet", ModelSettings::parse("batch=8")), spec, {.extra_passes = {freeze("conv1")}});
  const std::vector<std::string> names = {"conv1.weight", "conv1.bias", "conv2.weight", "fc3.bias"};
  std::vector<Tensor> before;
  for (const std::string& name : names) before.push_back(trainer.read(name));

  const std::vector<float> images(8 * 28 * 28, 0.5f);
  const std::vector<std::int32_t> labels = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int i = 0; i < 5; ++i) trainer.step({{"input", images}, {"labels", labels}}, /*learning_rate=*/0.1f);

  bool is_right = true;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool moved = trainer.read(names[i]).values != before[i].values;
    std::printf("%-13s %s\n", names[i].c_str(), moved ? "trained" : "frozen");
    is_right = is_right && moved == !names[i].starts_with("conv1.");
  }
  return is_right ? 0 : 1;
}
