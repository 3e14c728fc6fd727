// The tasks of the update.
// squared_norm: reads weight gradients  writes sums, the sum of squares of each, as bytes of doubles; there may be room
//            for more
// clip_norm: reads sums                   writes factor [2] = the global norm n, min(1, max_norm / (n + 1e-6)); NaN
//            where n is not finite
//            attributes: max_norm, order? (places in sums, in the order of the model's parameters, in which they are
//            added on every device; absent: all, as they lie)
// sgd:       reads w, dw, factor?, momentum?, copy?   writes w, momentum?, copy?
//            attributes: momentum, nesterov, weight_decay
// adamw:     reads w, dw, factor?, m, v, copy?        writes w, m, v, copy?
//            attributes: beta1, beta2, eps, weight_decay
// copy: the weight in another element type, for the kernels that read it. An update of several weights has all these
// operands of the first, then those of the second, and so on.
// The learning rate and the number of the step come with each step.

#include "ops/rules.h"

namespace overtake {

OpTraits squared_norm_traits() { return {.op = Op::squared_norm}; }
OpTraits clip_norm_traits() { return {.op = Op::clip_norm}; }
OpTraits sgd_traits() { return {.op = Op::sgd}; }
OpTraits adamw_traits() { return {.op = Op::adamw}; }

}  // namespace overtake
