#pragma once
// Random training steps that are small enough to be scheduled in every possible way.

#include <cstdint>
#include <random>
#include <vector>

#include "machine/profile.h"
#include "overtake/graph.h"

namespace overtake {

// A chain of layers with a weight each, some of which read an earlier activation too, functions without weights
// between them; forward, a loss, then gradients from the last to the first, and the updates in the end. Tasks take 1 to
// 100 us (updates to 21 us) and have loads of 0.2 to 1.1.
class SmallTraining {
 public:
  SmallTraining(std::size_t weights, bool has_updates, std::mt19937& random) : random_(random) {
    graph.model = "small";
    layer_ = graph.add_layer("layer");
    activation_.push_back(buffer(Role::input));
    while (weights > 0) {
      const bool has_weight = random_() % 4 != 0;
      add_forward(has_weight);
      weights -= has_weight ? 1 : 0;
    }
    std::vector<BufferId> gradient(activation_.size(), kNone);
    gradient.back() = buffer(Role::gradient);
    graph.add_task(Kind::input_grad, Op::mse, layer_, 0, {activation_.back()}, {gradient.back()});
    for (std::size_t l = layers_.size(); l-- > 0;) add_backward(layers_[l], gradient);
    for (const Layer& l : layers_)
      if (has_updates && l.weight != kNone)
        graph.add_task(Kind::update, Op::sgd, layer_, 0, {l.weight, l.gradient}, {l.weight});
    verify(graph);
    for (const Task& t : graph.tasks) {
      const std::uint32_t most = t.kind == Kind::update ? 20'000 : 99'001;
      profile.alone_ns.push_back(1000 + static_cast<std::int64_t>(random_() % most));
      profile.load.push_back(0.2 + 0.001 * static_cast<double>(random_() % 901));
      profile.in_order_ns += profile.alone_ns.back();
    }
  }

  Graph graph;
  Profile profile;

 private:
  struct Layer {
    BufferId weight = kNone, gradient = kNone;
    std::size_t in = 0, other_in = 0, out = 0;  // activations; other_in: 0 if there is none
  };

  BufferId buffer(Role role) {
    return graph.add_buffer("b", {1 + static_cast<std::int64_t>(random_() % 4096)}, DType::f32, role);
  }

  void add_forward(bool has_weight) {
    Layer l;
    l.in = activation_.size() - 1;
    l.other_in = random_() % 4 == 0 ? random_() % activation_.size() : 0;
    l.out = activation_.size();
    if (l.other_in == l.in) l.other_in = 0;
    if (has_weight) l.weight = buffer(Role::weight);
    activation_.push_back(buffer(Role::activation));
    graph.add_task(Kind::forward, Op::linear, layer_, 0,
                   {activation_[l.in], l.weight, l.other_in > 0 ? activation_[l.other_in] : kNone},
                   {activation_[l.out]});
    layers_.push_back(l);
  }

  void add_backward(Layer& l, std::vector<BufferId>& gradient) {
    const BufferId dy = gradient[l.out];
    const auto add_weight_grad = [&] {
      if (l.weight == kNone) return;
      l.gradient = buffer(Role::weight_gradient);
      graph.add_task(Kind::weight_grad, Op::linear, layer_, 0, {dy, activation_[l.in]}, {l.gradient});
    };
    const bool is_weight_first = random_() % 2 == 0;
    if (is_weight_first) add_weight_grad();
    for (const std::size_t to : {l.in, l.other_in}) {
      if (to == 0) continue;
      const BufferId dx = buffer(Role::gradient);
      graph.add_task(Kind::input_grad, Op::linear, layer_, 0, {dy, l.weight, gradient[to]}, {dx});
      gradient[to] = dx;  // what was there is added in
    }
    if (!is_weight_first) add_weight_grad();
  }

  std::mt19937& random_;
  LayerId layer_ = 0;
  std::vector<Layer> layers_;
  std::vector<BufferId> activation_;
};

}  // namespace overtake
