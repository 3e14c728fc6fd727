#include "kernels/cuda/activation.h"

#include "kernels/cuda/activation_functions.cuh"
#include "kernels/cuda/map.cuh"

namespace overtake::cuda {

namespace {

template <class F>
struct Value {
  F f;
  __device__ float operator()(float x) const { return f.value(x); }
};

template <class F>
struct SlopeTimes {
  F f;
  __device__ float operator()(float saved, float dy) const { return f.slope(saved) * dy; }
};

}  // namespace

template <class T>
void activation_forward(cudaStream_t stream, const ActivationFunction& function, const T* x, T* y, std::int64_t count) {
  functions::dispatch(function,
                      [&](auto f) { access::map(stream, "activation_forward", Value<decltype(f)>{f}, x, y, count); });
}

template <class T>
void activation_backward(cudaStream_t stream, const ActivationFunction& function, const T* x, const T* y, const T* dy,
                         T* dx, std::int64_t count) {
  functions::dispatch(function, [&](auto f) {
    using F = decltype(f);
    access::map2(stream, "activation_backward", SlopeTimes<F>{f}, F::kFromOutput ? y : x, dy, dx, count);
  });
}

template void activation_forward(cudaStream_t, const ActivationFunction&, const float*, float*, std::int64_t);
template void activation_forward(cudaStream_t, const ActivationFunction&, const bf16*, bf16*, std::int64_t);
template void activation_backward(cudaStream_t, const ActivationFunction&, const float*, const float*, const float*,
                                  float*, std::int64_t);
template void activation_backward(cudaStream_t, const ActivationFunction&, const bf16*, const bf16*, const bf16*, bf16*,
                                  std::int64_t);

}  // namespace overtake::cuda
