// A model of your own on data of your own: overtake::Model builds a small residual network, overtake::Trainer trains
// it.

#include <overtake/overtake.h>

#include <cstdio>
#include <random>

using namespace overtake;

namespace {

constexpr std::size_t kBatch = 32, kSize = 16;

// Dark images with a bright square in one of their four quarters; the label says in which.
struct Batch {
  std::vector<float> images = std::vector<float>(kBatch * kSize * kSize);  // [N, 1, H, W]
  std::vector<std::int32_t> labels = std::vector<std::int32_t>(kBatch);
};

Batch make_batch(std::mt19937& random) {
  Batch batch;
  std::uniform_real_distribution<float> noise(0, 0.5f);
  for (float& pixel : batch.images) pixel = noise(random);
  for (std::size_t n = 0; n < batch.labels.size(); ++n) {
    const std::size_t quarter = random() % 4, top = 2 + quarter / 2 * 8, left = 2 + quarter % 2 * 8;
    for (std::size_t y = top; y < top + 4; ++y)
      for (std::size_t x = left; x < left + 4; ++x) batch.images[(n * kSize + y) * kSize + x] += 0.5f;
    batch.labels[n] = static_cast<std::int32_t>(quarter);
  }
  return batch;
}

Graph make_network() {
  Model m("my-net", kBatch);
  Value x = m.input({1, kSize, kSize});
  x = m.relu(m.batch_norm(m.conv2d(x, {.out = 8, .kernel = 3, .stride = 2, .padding = 1, .bias = false})));
  Value y = m.relu(m.batch_norm(m.conv2d(x, {.out = 8, .kernel = 3, .padding = 1, .bias = false})));
  x = m.max_pool(m.add(x, y));
  m.cross_entropy(m.linear(m.flatten(x), {.out = 4}), {.smoothing = 0.05});
  return std::move(m).finish();
}

}  // namespace

int main() try {
  RunSpec spec;           // what you want of the run; everything else is found out
  spec.schedule = "ooo";  // weight gradients on a lane of their own
  spec.optimizer = "adamw";
  spec.lr = 3e-3;
  Trainer trainer(make_network(), spec);

  std::mt19937 random(1);
  for (int step = 1; step <= 100; ++step) {
    const Batch batch = make_batch(random);
    const StepResult result = trainer.step({{"input", batch.images}, {"labels", batch.labels}});
    if (step % 10 == 0) std::printf("step %3d  loss %.4f\n", step, static_cast<double>(result.loss));
  }

  const Batch unseen = make_batch(random);
  const StepResult test = trainer.evaluate({{"input", unseen.images}, {"labels", unseen.labels}});
  std::printf("test accuracy %.1f %%\n", 100.0 * static_cast<double>(test.correct / test.counted));
  return test.correct > 0.9f * test.counted ? 0 : 1;
} catch (const UserError& e) {
  std::fprintf(stderr, "own_model: %s\n", e.what());
  return 2;
}
