// Which kernels do which op, in the order of Op.

#include <array>

#include "exec/cuda/bindings.h"

namespace overtake {

const CudaBinding& cuda_binding(Op op) {
  using namespace cuda_bindings;
  static const std::array<CudaBinding, kOpCount> table = {
      linear(),    matmul(),   conv2d(),   batch_norm(),    batch_moments(), layer_norm(), group_norm(), activation(),
      add(),       mul(),      chain(),    concat(),        slice(),         reshape(),    transpose(),  expand(),
      reduce(),    max_pool(), avg_pool(), global_pool(),   adaptive_pool(), softmax(),    attention(),  embedding(),
      dropout(),   lstm(),     gru(),      cross_entropy(), mse(),           sum(),        reorder(),    squared_norm(),
      clip_norm(), sgd(),      adamw(),    transfer()};  // blocks are for simulation only
  return table[static_cast<std::size_t>(op)];
}

std::int64_t* CudaProgramData::add_check(std::function<void(std::int64_t)> raise) {
  const std::int64_t well = -1;
  const std::int64_t* device = upload(std::span(&well, 1));
  checks_.push_back({const_cast<std::int64_t*>(device), std::move(raise)});
  return checks_.back().device;
}

}  // namespace overtake
