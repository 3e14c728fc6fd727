#pragma once
// Random training steps, and times for their tasks.

#include <random>
#include <vector>

#include "machine/profile.h"
#include "overtake/graph.h"

namespace overtake::tests {

// Layers of forward, input_grad, weight_grad and update, each with a skip now and then.
inline Graph random_training_graph(std::mt19937& random) {
  Graph g;
  const LayerId layer = g.add_layer("layer");
  const auto buffer = [&](Role role) { return g.add_buffer("b", {8}, DType::f32, role); };
  const std::size_t layers = 1 + random() % 12;
  std::vector<BufferId> a = {buffer(Role::input)}, w, dw;
  for (std::size_t l = 0; l < layers; ++l) {
    w.push_back(buffer(Role::weight));
    a.push_back(buffer(Role::activation));
    const BufferId other = random() % 3 == 0 ? a[random() % (l + 1)] : kNone;
    g.add_task(Kind::forward, Op::linear, layer, 0, {a[l], w[l], other}, {a[l + 1]});
  }
  BufferId dy = buffer(Role::gradient);
  g.add_task(Kind::input_grad, Op::mse, layer, 0, {a[layers]}, {dy});
  for (std::size_t l = layers; l-- > 0;) {
    dw.push_back(buffer(Role::weight_gradient));
    g.add_task(Kind::weight_grad, Op::linear, layer, 0, {dy, a[l]}, {dw.back()});
    const BufferId dx = buffer(Role::gradient);
    if (l > 0) g.add_task(Kind::input_grad, Op::linear, layer, 0, {dy, w[l]}, {dx});
    dy = dx;
    if (random() % 2 == 0) g.add_task(Kind::update, Op::sgd, layer, 0, {w[l], dw.back()}, {w[l]});
  }
  verify(g);
  return g;
}

inline Profile random_profile(std::size_t tasks, std::mt19937& random) {
  Profile p;
  for (std::size_t t = 0; t < tasks; ++t) {
    p.alone_ns.push_back(random() % 6 == 0 ? 0 : 1000 + static_cast<std::int64_t>(random() % 99'000));
    p.load.push_back(0.05 + 0.01 * static_cast<double>(random() % 120));
  }
  return p;
}

}  // namespace overtake::tests
