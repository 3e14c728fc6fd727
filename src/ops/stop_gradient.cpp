// y = x, and no gradient goes back: PyTorch's detach()
// forward: reads x   writes y

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs&) {
  return {.parameters = {}, .outputs = {{"", inputs[0].shape, inputs[0].dtype}}};
}

std::vector<InPlace> in_place(const Task&) { return {{0, 0}}; }

double flops(const Graph&, const Task&) { return 0; }

constexpr TaskRule kTasks[] = {{kForward, "x -> y"}};

}  // namespace

OpTraits stop_gradient_traits() {
  return {.op = Op::stop_gradient, .form = form, .flops = flops, .in_place = in_place, .tasks = kTasks};
}

}  // namespace overtake
