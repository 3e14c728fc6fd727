// The tasks of the update.
// clip_norm: reads all weight gradients   writes factor [2] = their global norm n, min(1, max_norm / (n + 1e-6))
//            attributes: max_norm
// sgd:       reads w, dw, factor?, momentum?   writes w, momentum?
//            attributes: momentum, nesterov, weight_decay
// adamw:     reads w, dw, factor?, m, v        writes w, m, v
//            attributes: beta1, beta2, eps, weight_decay
// The learning rate and the number of the step come with each step.

#include "ops/rules.h"

namespace overtake {

OpTraits clip_norm_traits() { return {.op = Op::clip_norm}; }
OpTraits sgd_traits() { return {.op = Op::sgd}; }
OpTraits adamw_traits() { return {.op = Op::adamw}; }

}  // namespace overtake
