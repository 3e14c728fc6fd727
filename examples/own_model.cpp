// A model of your own, trained in under 40 lines: overtake::Model builds it, run_training does the rest.

#include <fmt/format.h>

#include <overtake/overtake.h>

#include "train/loop.h"
#include "train/run.h"

using namespace overtake;

int main() try {
  Model m("my-net", /*batch=*/32);
  Value x = m.input({1, 28, 28});
  x = m.relu(m.batch_norm(m.conv2d(x, {.out = 8, .kernel = 3, .stride = 2, .padding = 1, .bias = false})));
  Value y = m.relu(m.batch_norm(m.conv2d(x, {.out = 8, .kernel = 3, .padding = 1, .bias = false})));
  x = m.max_pool(m.add(x, y));
  m.cross_entropy(m.linear(m.flatten(x), {.out = 10}), {.smoothing = 0.05});

  RunSpec spec;
  spec.schedule = "ooo";  // weight gradients on a lane of their own
  spec.optimizer = "adamw";
  TrainingRun run(std::move(m).finish(), spec);

  LoopOptions loop;
  loop.data = "synthetic";
  loop.steps = 100;
  loop.learning_rate = 3e-3;
  const LoopResult result = run_training(
      run, loop, [](const Progress& p) { fmt::print("step {:3}  loss {:.4f}\n", p.step, p.loss); },
      [] { return false; });
  fmt::print("test accuracy {:.1f} %\n", 100 * result.test.accuracy);
  return result.test.accuracy > 0.5 ? 0 : 1;
} catch (const UserError& e) {
  fmt::print(stderr, "own_model: {}\n", e.what());
  return 2;
}
