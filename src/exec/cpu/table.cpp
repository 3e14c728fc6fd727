// Which kernels do which op, in the order of Op.

#include <array>

#include "exec/cpu/bindings.h"

namespace overtake {

const CpuBinding& cpu_binding(Op op) {
  static const std::array<CpuBinding, kOpCount> table = {
      bind_linear(),        bind_matmul(),       bind_conv2d(),        bind_batch_norm(), bind_batch_moments(),
      bind_layer_norm(),    bind_group_norm(),   bind_activation(),    bind_add(),        bind_mul(),
      bind_chain(),         bind_concat(),       bind_slice(),         bind_reshape(),    bind_transpose(),
      bind_expand(),        bind_reduce(),       bind_max_pool(),      bind_avg_pool(),   bind_global_pool(),
      bind_adaptive_pool(), bind_softmax(),      bind_attention(),     bind_embedding(),  bind_dropout(),
      bind_lstm(),          bind_gru(),          bind_cross_entropy(), bind_mse(),        bind_sum(),
      bind_reorder(),       bind_squared_norm(), bind_clip_norm(),     bind_sgd(),        bind_adamw(),
      bind_transfer()};  // blocks are not run
  return table[static_cast<std::size_t>(op)];
}

}  // namespace overtake
