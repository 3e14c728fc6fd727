// Which kernels do which op.

#include "exec/cuda/bindings.h"
#include "exec/op_rows.h"

namespace overtake {
namespace {

constexpr auto kCudaRows = std::to_array<OpRow<CudaBinding>>({
    {Op::linear, cuda_bindings::linear},
    {Op::matmul, cuda_bindings::matmul},
    {Op::conv2d, cuda_bindings::conv2d},
    {Op::batch_norm, cuda_bindings::batch_norm},
    {Op::batch_moments, cuda_bindings::batch_moments},
    {Op::layer_norm, cuda_bindings::layer_norm},
    {Op::group_norm, cuda_bindings::group_norm},
    {Op::activation, cuda_bindings::activation},
    {Op::add, cuda_bindings::add},
    {Op::mul, cuda_bindings::mul},
    {Op::chain, cuda_bindings::chain},
    {Op::concat, cuda_bindings::concat},
    {Op::slice, cuda_bindings::slice},
    {Op::reshape, cuda_bindings::reshape},
    {Op::stop_gradient, cuda_bindings::stop_gradient},
    {Op::transpose, cuda_bindings::transpose},
    {Op::expand, cuda_bindings::expand},
    {Op::reduce, cuda_bindings::reduce},
    {Op::max_pool, cuda_bindings::max_pool},
    {Op::avg_pool, cuda_bindings::avg_pool},
    {Op::global_pool, cuda_bindings::global_pool},
    {Op::adaptive_pool, cuda_bindings::adaptive_pool},
    {Op::softmax, cuda_bindings::softmax},
    {Op::attention, cuda_bindings::attention},
    {Op::embedding, cuda_bindings::embedding},
    {Op::dropout, cuda_bindings::dropout},
    {Op::lstm, cuda_bindings::lstm},
    {Op::gru, cuda_bindings::gru},
    {Op::cross_entropy, cuda_bindings::cross_entropy},
    {Op::mse, cuda_bindings::mse},
    {Op::sum, cuda_bindings::sum},
    {Op::reorder, cuda_bindings::reorder},
    {Op::squared_norm, cuda_bindings::squared_norm},
    {Op::clip_norm, cuda_bindings::clip_norm},
    {Op::sgd, cuda_bindings::sgd},
    {Op::adamw, cuda_bindings::adamw},
    {Op::transfer, cuda_bindings::transfer},
});
static_assert(has_each_op_once(kCudaRows), "an op has no row, or two");

}  // namespace

const CudaBinding& cuda_binding(Op op) {
  static const std::array<CudaBinding, kOpCount> table = by_op(kCudaRows);
  return table[static_cast<std::size_t>(op)];
}

std::int64_t* BoundPlanData::add_check(std::function<void(std::int64_t)> raise) {
  const std::int64_t well = -1;
  const std::int64_t* device = upload(std::span(&well, 1));
  checks_.push_back({const_cast<std::int64_t*>(device), std::move(raise)});
  return checks_.back().device;
}

}  // namespace overtake
