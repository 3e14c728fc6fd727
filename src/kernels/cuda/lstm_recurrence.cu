#include "kernels/cuda/rnn.h"
#include "kernels/cuda/rnn_recurrence.cuh"

namespace overtake::cuda {
namespace {

using namespace rnn_detail;

// Carries the cell state.
template <class T>
struct LstmForward : CellShape {
  using Type = T;
  static constexpr int kRows = 4;  // i, f, g, o
  static constexpr bool kNeighbours = true;
  const T* w_hh;
  const float *b_ih, *b_hh, *pre;
  T* y;
  float *gates, *cells;

  struct Known {
    float bias[4];
  };
  struct Loaded {
    float pre[4];
  };
  struct Saved {
    float in, forget, candidate, out, cell;
  };

  __host__ __device__ int depth() const { return hidden; }
  __device__ int time(int step) const { return step; }
  __device__ const T* exchanged(int b, int t) const { return y + row(b, t) * hidden; }
  __device__ int column(int k) const { return k; }
  __device__ const T* weight(int gate, int unit, int k) const {
    return w_hh + (static_cast<std::int64_t>(gate) * hidden + unit) * hidden + k;
  }
  __device__ Known known(int unit) const {
    Known known;
#pragma unroll
    for (int g = 0; g < 4; ++g) known.bias[g] = both_biases(b_ih, b_hh, g * hidden + unit);
    return known;
  }
  __device__ Loaded load(int b, int t, int unit) const {
    const float* from = pre + row(b, t) * 4 * hidden + unit;
    return {from[0], from[hidden], from[2 * hidden], from[3 * hidden]};
  }
  __device__ Saved finish(const Known& known, const Loaded& loaded, const float (&sums)[4], float& cell, int b, int t,
                          int unit) const {
    float sum[4];
#pragma unroll
    for (int g = 0; g < 4; ++g) sum[g] = loaded.pre[g] + known.bias[g] + sums[g];
    const float in = sigmoid(sum[0]), forget = sigmoid(sum[1]), candidate = tanhf(sum[2]), out = sigmoid(sum[3]);
    cell = forget * cell + in * candidate;
    y[row(b, t) * hidden + unit] = access::narrow<T>(out * tanhf(cell));
    return {in, forget, candidate, out, cell};
  }
  __device__ void save(const Saved& saved, int b, int t, int unit) const {
    cells[row(b, t) * hidden + unit] = saved.cell;
    float* to = gates + row(b, t) * 4 * hidden + unit;
    to[0] = saved.in;
    to[hidden] = saved.forget;
    to[2 * hidden] = saved.candidate;
    to[3 * hidden] = saved.out;
  }
};

// Carries the gradient of the cell state; the sum is that of h from the step after.
template <class T>
struct LstmBackward : CellShape {
  using Type = T;
  static constexpr int kRows = 1;
  static constexpr bool kNeighbours = false;
  const T* w_hh;
  const float *gates, *cells;
  const T* dy;
  T* dgates;

  struct Known {};
  struct Saved {};
  struct Loaded {
    float in, forget, candidate, out, cell, cell_before, dy;
  };

  __host__ __device__ int depth() const { return 4 * hidden; }
  __device__ int time(int step) const { return steps - 1 - step; }
  __device__ const T* exchanged(int b, int t) const { return dgates + row(b, t) * 4 * hidden; }
  __device__ int column(int k) const { return k; }
  __device__ const T* weight(int, int unit, int k) const { return w_hh + static_cast<std::int64_t>(k) * hidden + unit; }
  __device__ Known known(int) const { return {}; }
  __device__ Loaded load(int b, int t, int unit) const {
    const std::int64_t at = row(b, t) * hidden + unit;
    const float* from = gates + row(b, t) * 4 * hidden + unit;
    return {from[0],
            from[hidden],
            from[2 * hidden],
            from[3 * hidden],
            cells[at],
            t > 0 ? cells[at - hidden] : 0.0f,
            access::widen(dy[at])};
  }
  __device__ Saved finish(const Known&, const Loaded& loaded, const float (&sums)[1], float& dcell, int b, int t,
                          int unit) const {
    const auto& [in, forget, candidate, out, cell, cell_before, grad_y] = loaded;
    const float grad_h = sums[0] + grad_y, tanh_cell = tanhf(cell);
    const float grad_cell = dcell + grad_h * out * (1.0f - tanh_cell * tanh_cell);
    T* to = dgates + row(b, t) * 4 * hidden + unit;
    to[0] = access::narrow<T>(grad_cell * candidate * in * (1.0f - in));
    to[hidden] = access::narrow<T>(grad_cell * cell_before * forget * (1.0f - forget));
    to[2 * hidden] = access::narrow<T>(grad_cell * in * (1.0f - candidate * candidate));
    to[3 * hidden] = access::narrow<T>(grad_h * tanh_cell * out * (1.0f - out));
    dcell = grad_cell * forget;
    return {};
  }
  __device__ void save(const Saved&, int, int, int) const {}
};

}  // namespace

template <class T>
void lstm_forward(cudaStream_t stream, const RnnShape& shape, const T* w_hh, const float* b_ih, const float* b_hh,
                  const float* pre, T* y, float* gates, float* cells, void* scratch, int multiprocessors) {
  constexpr const char* name = "lstm_forward";
  require_aligned(name, {w_hh, b_ih, b_hh, pre, y, gates, cells, scratch});
  const LstmForward<T> cell{CellShape(shape), w_hh, b_ih, b_hh, pre, y, gates, cells};
  run_recurrence(stream, name, cell, scratch, multiprocessors);
}

template <class T>
void lstm_input_grad(cudaStream_t stream, const RnnShape& shape, const T* w_hh, const float* gates, const float* cells,
                     const T* dy, T* dgates, void* scratch, int multiprocessors) {
  constexpr const char* name = "lstm_input_grad";
  require_aligned(name, {w_hh, gates, cells, dy, dgates, scratch});
  const LstmBackward<T> cell{CellShape(shape), w_hh, gates, cells, dy, dgates};
  run_recurrence(stream, name, cell, scratch, multiprocessors);
}

template void lstm_forward(cudaStream_t, const RnnShape&, const float*, const float*, const float*, const float*,
                           float*, float*, float*, void*, int);
template void lstm_forward(cudaStream_t, const RnnShape&, const bf16*, const float*, const float*, const float*, bf16*,
                           float*, float*, void*, int);
template void lstm_input_grad(cudaStream_t, const RnnShape&, const float*, const float*, const float*, const float*,
                              float*, void*, int);
template void lstm_input_grad(cudaStream_t, const RnnShape&, const bf16*, const float*, const float*, const bf16*,
                              bf16*, void*, int);

}  // namespace overtake::cuda
