// y = x in another layout or element type
// any kind: reads x   writes y

#include "ops/rules.h"

namespace overtake {
namespace {

void gradient(Gradient& g) { g.emit(Kind::input_grad, {g.grad_out(0)}, {g.grad_in(0)}); }

}  // namespace

OpTraits reorder_traits() { return {.op = Op::reorder, .gradient = gradient}; }

}  // namespace overtake
