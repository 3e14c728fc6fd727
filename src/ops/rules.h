#pragma once
// The traits of each op, defined in the op's own file and gathered in table.cpp.

#include "ops/op.h"

namespace overtake {

OpTraits linear_traits();
OpTraits matmul_traits();
OpTraits conv2d_traits();
OpTraits batch_norm_traits();
OpTraits batch_moments_traits();
OpTraits layer_norm_traits();
OpTraits group_norm_traits();
OpTraits activation_traits();
OpTraits add_traits();
OpTraits mul_traits();
OpTraits chain_traits();
OpTraits concat_traits();
OpTraits slice_traits();
OpTraits reshape_traits();
OpTraits stop_gradient_traits();
OpTraits transpose_traits();
OpTraits expand_traits();
OpTraits reduce_traits();
OpTraits max_pool_traits();
OpTraits avg_pool_traits();
OpTraits global_pool_traits();
OpTraits adaptive_pool_traits();
OpTraits softmax_traits();
OpTraits attention_traits();
OpTraits embedding_traits();
OpTraits dropout_traits();
OpTraits lstm_traits();
OpTraits gru_traits();
OpTraits cross_entropy_traits();
OpTraits mse_traits();
OpTraits sum_traits();
OpTraits reorder_traits();
OpTraits squared_norm_traits();
OpTraits clip_norm_traits();
OpTraits sgd_traits();
OpTraits adamw_traits();
OpTraits transfer_traits();
OpTraits block_traits();

}  // namespace overtake
