// Which kernels do which op.

#include "exec/cpu/bindings.h"
#include "exec/op_rows.h"

namespace overtake {
namespace {

constexpr auto kCpuRows = std::to_array<OpRow<CpuBinding>>({
    {Op::linear, bind_linear},
    {Op::matmul, bind_matmul},
    {Op::conv2d, bind_conv2d},
    {Op::batch_norm, bind_batch_norm},
    {Op::batch_moments, bind_batch_moments},
    {Op::layer_norm, bind_layer_norm},
    {Op::group_norm, bind_group_norm},
    {Op::activation, bind_activation},
    {Op::add, bind_add},
    {Op::mul, bind_mul},
    {Op::chain, bind_chain},
    {Op::concat, bind_concat},
    {Op::slice, bind_slice},
    {Op::reshape, bind_reshape},
    {Op::stop_gradient, bind_stop_gradient},
    {Op::transpose, bind_transpose},
    {Op::expand, bind_expand},
    {Op::reduce, bind_reduce},
    {Op::max_pool, bind_max_pool},
    {Op::avg_pool, bind_avg_pool},
    {Op::global_pool, bind_global_pool},
    {Op::adaptive_pool, bind_adaptive_pool},
    {Op::softmax, bind_softmax},
    {Op::attention, bind_attention},
    {Op::embedding, bind_embedding},
    {Op::dropout, bind_dropout},
    {Op::lstm, bind_lstm},
    {Op::gru, bind_gru},
    {Op::cross_entropy, bind_cross_entropy},
    {Op::mse, bind_mse},
    {Op::sum, bind_sum},
    {Op::reorder, bind_reorder},
    {Op::squared_norm, bind_squared_norm},
    {Op::clip_norm, bind_clip_norm},
    {Op::sgd, bind_sgd},
    {Op::adamw, bind_adamw},
    {Op::transfer, bind_transfer},
});
static_assert(has_each_op_once(kCpuRows), "an op has no row, or two");

}  // namespace

const CpuBinding& cpu_binding(Op op) {
  static const std::array<CpuBinding, kOpCount> table = by_op(kCpuRows);
  return table[static_cast<std::size_t>(op)];
}

}  // namespace overtake
