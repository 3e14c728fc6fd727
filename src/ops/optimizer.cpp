// The tasks of the update.
// clip_norm: reads all weight gradients   writes factor [2] = their global norm n, min(1, max_norm / (n + 1e-6))
//            attributes: max_norm
// sgd:       reads w, dw, factor?, momentum?, copy?   writes w, momentum?, copy?
//            attributes: momentum, nesterov, weight_decay
// adamw:     reads w, dw, factor?, m, v, copy?        writes w, m, v, copy?
//            attributes: beta1, beta2, eps, weight_decay
// copy: the weight in another element type, for the kernels that read it. An update of several weights has all these
// operands of the first, then those of the second, and so on.
// The learning rate and the number of the step come with each step.

#include "ops/rules.h"

namespace overtake {

OpTraits clip_norm_traits() { return {.op = Op::clip_norm}; }
OpTraits sgd_traits() { return {.op = Op::sgd}; }
OpTraits adamw_traits() { return {.op = Op::adamw}; }

}  // namespace overtake
