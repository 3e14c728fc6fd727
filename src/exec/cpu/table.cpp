// Which kernels do which op, in the order of Op.

#include <array>

#include "exec/cpu/bindings.h"

namespace overtake {

const CpuBinding& cpu_binding(Op op) {
  static const std::array<CpuBinding, kOpCount> table = {
      bind_linear(),        bind_matmul(),     bind_conv2d(),      bind_batch_norm(),    bind_layer_norm(),
      bind_group_norm(),    bind_activation(), bind_add(),         bind_mul(),           bind_concat(),
      bind_slice(),         bind_reshape(),    bind_transpose(),   bind_expand(),        bind_reduce(),
      bind_max_pool(),      bind_avg_pool(),   bind_global_pool(), bind_adaptive_pool(), bind_softmax(),
      bind_attention(),     bind_embedding(),  bind_dropout(),     bind_lstm(),          bind_gru(),
      bind_cross_entropy(), bind_mse(),        bind_sum(),         bind_reorder(),       bind_clip_norm(),
      bind_sgd(),           bind_adamw()};
  return table[static_cast<std::size_t>(op)];
}

std::vector<std::int64_t> physical_dims(const Buffer& b) {
  OVERTAKE_CHECK(b.layout.blocks == 0, "a blocked layout has no simple order of dimensions");
  std::vector<std::int64_t> dims;
  for (std::size_t i = 0; i < b.shape.rank; ++i) dims.push_back(b.shape[b.layout.order[i]]);
  return dims;
}

std::size_t physical_axis(const Buffer& b, std::int64_t axis) {
  for (std::size_t i = 0; i < b.shape.rank; ++i)
    if (b.layout.order[i] == axis) return i;
  OVERTAKE_CHECK(false, "axis {} of a buffer {}", axis, to_string(b.shape));
}

}  // namespace overtake
