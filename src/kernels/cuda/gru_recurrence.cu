#include "kernels/cuda/rnn.h"
#include "kernels/cuda/rnn_recurrence.cuh"

namespace overtake::cuda {
namespace {

using namespace rnn_detail;

// Carries h, as it is rounded to T.
template <class T>
struct GruForward : CellShape {
  using Type = T;
  static constexpr int kRows = 3;  // r, z, and the term of n before the reset
  static constexpr bool kNeighbours = true;
  const T* w_hh;
  const float *b_ih, *b_hh, *pre;
  std::int64_t pre_stride;
  T* y;
  float* gates;

  struct Known {
    float reset, update, candidate, term;  // biases
  };
  struct Loaded {
    float pre[3];
  };
  struct Saved {
    float reset, update, candidate, term;
  };

  __host__ __device__ int depth() const { return hidden; }
  __device__ int time(int step) const { return step; }
  __device__ const T* exchanged(int b, int t) const { return y + row(b, t) * hidden; }
  __device__ int column(int k) const { return k; }
  __device__ const T* weight(int gate, int unit, int k) const {
    return w_hh + (static_cast<std::int64_t>(gate) * hidden + unit) * hidden + k;
  }
  __device__ Known known(int unit) const {
    return {both_biases(b_ih, b_hh, unit), both_biases(b_ih, b_hh, hidden + unit),
            both_biases(b_ih, nullptr, 2 * hidden + unit), both_biases(nullptr, b_hh, 2 * hidden + unit)};
  }
  __device__ Loaded load(int b, int t, int unit) const {
    const float* from = pre + row(b, t) * pre_stride + unit;
    return {from[0], from[hidden], from[2 * hidden]};
  }
  __device__ Saved finish(const Known& bias, const Loaded& loaded, const float (&sums)[3], float& h, int b, int t,
                          int unit) const {
    const float reset = sigmoid(loaded.pre[0] + bias.reset + sums[0]);
    const float update = sigmoid(loaded.pre[1] + bias.update + sums[1]);
    const float term = sums[2] + bias.term;
    const float candidate = tanhf(loaded.pre[2] + bias.candidate + reset * term);
    const T rounded = access::narrow<T>((1.0f - update) * candidate + update * h);
    h = access::widen(rounded);
    y[row(b, t) * hidden + unit] = rounded;
    return {reset, update, candidate, term};
  }
  __device__ void save(const Saved& saved, int b, int t, int unit) const {
    float* to = gates + row(b, t) * 4 * hidden + unit;
    to[0] = saved.reset;
    to[hidden] = saved.update;
    to[2 * hidden] = saved.candidate;
    to[3 * hidden] = saved.term;
  }
};

// Carries the part of h's gradient that passes by the gates; the sum is the part through the gates of the step after.
template <class T>
struct GruBackward : CellShape {
  using Type = T;
  static constexpr int kRows = 1;
  static constexpr bool kNeighbours = false;
  const T* w_hh;
  const float* gates;
  const T *y, *dy;
  T* dgates;

  struct Known {};
  struct Saved {};
  struct Loaded {
    float reset, update, candidate, term, before, dy;
  };

  __host__ __device__ int depth() const { return 3 * hidden; }
  __device__ int time(int step) const { return steps - 1 - step; }
  __device__ const T* exchanged(int b, int t) const { return dgates + row(b, t) * 4 * hidden; }
  // The rows n of w_hh belong to the term before the reset.
  __device__ int column(int k) const { return k < 2 * hidden ? k : k + hidden; }
  __device__ const T* weight(int, int unit, int k) const { return w_hh + static_cast<std::int64_t>(k) * hidden + unit; }
  __device__ Known known(int) const { return {}; }
  __device__ Loaded load(int b, int t, int unit) const {
    const std::int64_t at = row(b, t) * hidden + unit;
    const float* from = gates + row(b, t) * 4 * hidden + unit;
    return {from[0],
            from[hidden],
            from[2 * hidden],
            from[3 * hidden],
            t > 0 ? access::widen(y[at - hidden]) : 0.0f,
            access::widen(dy[at])};
  }
  __device__ Saved finish(const Known&, const Loaded& loaded, const float (&sums)[1], float& passed, int b, int t,
                          int unit) const {
    const auto& [reset, update, candidate, term, before, grad_y] = loaded;
    const float grad_h = passed + sums[0] + grad_y;
    const float grad_n = grad_h * (1.0f - update) * (1.0f - candidate * candidate);
    T* to = dgates + row(b, t) * 4 * hidden + unit;
    to[0] = access::narrow<T>(grad_n * term * reset * (1.0f - reset));
    to[hidden] = access::narrow<T>(grad_h * (before - candidate) * update * (1.0f - update));
    to[2 * hidden] = access::narrow<T>(grad_n);
    to[3 * hidden] = access::narrow<T>(grad_n * reset);
    passed = grad_h * update;
    return {};
  }
  __device__ void save(const Saved&, int, int, int) const {}
};

}  // namespace

template <class T>
void gru_forward(cudaStream_t stream, const RnnShape& shape, const T* w_hh, const float* b_ih, const float* b_hh,
                 const float* pre, std::int64_t pre_stride, T* y, float* gates, void* scratch, int multiprocessors) {
  constexpr const char* name = "gru_forward";
  require_aligned(name, {w_hh, b_ih, b_hh, pre, y, gates, scratch});
  const GruForward<T> cell{CellShape(shape), w_hh, b_ih, b_hh, pre, pre_stride, y, gates};
  run_recurrence(stream, name, cell, scratch, multiprocessors);
}

template <class T>
void gru_input_grad(cudaStream_t stream, const RnnShape& shape, const T* w_hh, const float* gates, const T* y,
                    const T* dy, T* dgates, void* scratch, int multiprocessors) {
  constexpr const char* name = "gru_input_grad";
  require_aligned(name, {w_hh, gates, y, dy, dgates, scratch});
  const GruBackward<T> cell{CellShape(shape), w_hh, gates, y, dy, dgates};
  run_recurrence(stream, name, cell, scratch, multiprocessors);
}

template void gru_forward(cudaStream_t, const RnnShape&, const float*, const float*, const float*, const float*,
                          std::int64_t, float*, float*, void*, int);
template void gru_forward(cudaStream_t, const RnnShape&, const bf16*, const float*, const float*, const float*,
                          std::int64_t, bf16*, float*, void*, int);
template void gru_input_grad(cudaStream_t, const RnnShape&, const float*, const float*, const float*, const float*,
                             float*, void*, int);
template void gru_input_grad(cudaStream_t, const RnnShape&, const bf16*, const float*, const bf16*, const bf16*, bf16*,
                             void*, int);

}  // namespace overtake::cuda
