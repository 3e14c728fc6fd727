#include "kernels/cuda/permute.cuh"

#include "kernels/cuda/move.h"

namespace overtake::cuda {

template <class T>
void permute(cudaStream_t stream, const PermutePlan& plan, const T* x, T* y) {
  access::launch_permute(stream, "permute", plan, x, y);
}

template void permute(cudaStream_t, const PermutePlan&, const float*, float*);
template void permute(cudaStream_t, const PermutePlan&, const bf16*, bf16*);
template void permute(cudaStream_t, const PermutePlan&, const std::int32_t*, std::int32_t*);

}  // namespace overtake::cuda
