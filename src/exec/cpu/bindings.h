#pragma once
// The bindings of each op to its kernels, defined in the bind_*.cpp files and gathered in table.cpp.

#include "exec/cpu/binding.h"

namespace overtake {

CpuBinding bind_linear();
CpuBinding bind_matmul();
CpuBinding bind_attention();
CpuBinding bind_lstm();
CpuBinding bind_gru();
CpuBinding bind_conv2d();
CpuBinding bind_batch_norm();
CpuBinding bind_batch_moments();
CpuBinding bind_layer_norm();
CpuBinding bind_group_norm();
CpuBinding bind_max_pool();
CpuBinding bind_avg_pool();
CpuBinding bind_global_pool();
CpuBinding bind_adaptive_pool();
CpuBinding bind_activation();
CpuBinding bind_dropout();
CpuBinding bind_add();
CpuBinding bind_mul();
CpuBinding bind_chain();
CpuBinding bind_sum();
CpuBinding bind_softmax();
CpuBinding bind_concat();
CpuBinding bind_slice();
CpuBinding bind_reshape();
CpuBinding bind_stop_gradient();
CpuBinding bind_transpose();
CpuBinding bind_expand();
CpuBinding bind_reduce();
CpuBinding bind_reorder();
CpuBinding bind_embedding();
CpuBinding bind_cross_entropy();
CpuBinding bind_mse();
CpuBinding bind_squared_norm();
CpuBinding bind_clip_norm();
CpuBinding bind_sgd();
CpuBinding bind_adamw();
CpuBinding bind_transfer();

}  // namespace overtake
