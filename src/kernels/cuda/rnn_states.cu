#include <algorithm>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/rnn.h"
#include "kernels/cuda/rnn_plan.h"

namespace overtake::cuda {
namespace {

constexpr int kThreads = 256;

// Rows (b, t) of packs; a row is `packs` of them.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    shifted_states_kernel(const T* y, T* out, access::Divisor packs, access::Divisor steps, std::uint32_t count) {
  const std::uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) return;
  const auto [row, pack] = packs.divide(index);
  const bool is_first = steps.divide(row).remainder == 0;
  const std::int64_t at = static_cast<std::int64_t>(index) * V;
  const auto states =
      is_first ? access::Pack<T, V>{} : access::load_pack<V>(y + at - static_cast<std::int64_t>(packs.divisor) * V);
  access::store_pack(out + at, states);
}

// The sum of each column; the second sum is not used.
template <class T, int V>
struct ColumnSums {
  const T* dgates;

  struct Columns {};
  using Loaded = Packed<T, V>;

  __device__ Columns columns(int, int) const { return {}; }
  __device__ Loaded load(std::int64_t, std::int64_t at) const { return load_packed<V>(dgates + at); }
  __device__ void add(const Columns&, const Loaded& loaded, std::int64_t, float (&sum)[V], float (&)[V]) const {
    float values[V];
    unpack(loaded, values);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] += values[i];
  }
};

// finish of the sums; db_ih, db_hh: null if not wanted.
struct StoreLstm {
  float *db_ih, *db_hh;

  __device__ void operator()(int column, double sum, double) const {
    if (db_ih != nullptr) db_ih[column] = static_cast<float>(sum);
    if (db_hh != nullptr) db_hh[column] = static_cast<float>(sum);
  }
};

// Columns: r, z, n, and the term of n before the reset.
struct StoreGru {
  int hidden;
  float *db_ih, *db_hh;

  __device__ void operator()(int column, double sum, double) const {
    if (db_ih != nullptr && column < 3 * hidden) db_ih[column] = static_cast<float>(sum);
    if (db_hh == nullptr) return;
    if (column < 2 * hidden) db_hh[column] = static_cast<float>(sum);
    if (column >= 3 * hidden) db_hh[column - hidden] = static_cast<float>(sum);
  }
};

template <class T, class Finish>
void bias_grad(cudaStream_t stream, const char* name, const RnnShape& s, const T* dgates, const Finish& finish,
               void* scratch) {
  require_aligned(name, {dgates, scratch});
  const std::int64_t rows = s.batch * s.steps, columns = 4 * s.hidden;
  auto* partials = static_cast<float*>(scratch);
  with_vector_width<T>(columns, [&](auto vector) {
    column_sums<vector>(stream, name, ColumnSums<T, vector>{dgates}, 1, rows, columns, partials);
  });
  combine_columns(stream, name, partials, column_chunks(1, rows, columns), columns, finish);
}

}  // namespace

std::size_t rnn_scratch_bytes(const RnnShape& shape) {
  const std::int64_t counters = rnn_detail::most_groups(shape.batch) * rnn_detail::kCounterBytes;
  const std::int64_t carried = shape.batch * shape.hidden * static_cast<std::int64_t>(sizeof(float));
  return static_cast<std::size_t>(std::max(counters, carried));
}

template <class T>
void shifted_states(cudaStream_t stream, const RnnShape& shape, const T* y, T* out) {
  constexpr const char* name = "shifted_states";
  require_aligned(name, {y, out});
  with_vector_width<T>(shape.hidden, [&](auto vector) {
    const std::int64_t packs = shape.hidden / vector, count = shape.batch * shape.steps * packs;
    if (count == 0) return;
    access::require(count < (std::int64_t{1} << 31), "shifted_states: more than 2^31 packs of elements");
    shifted_states_kernel<T, vector><<<grid_blocks(name, access::parts(count, kThreads)), kThreads, 0, stream>>>(
        y, out, access::Divisor(static_cast<std::uint32_t>(packs)),
        access::Divisor(static_cast<std::uint32_t>(shape.steps)), static_cast<std::uint32_t>(count));
    check_launch(name);
  });
}

std::size_t rnn_bias_grad_scratch_bytes(const RnnShape& shape) {
  return static_cast<std::size_t>(column_partials(1, shape.batch * shape.steps, 4 * shape.hidden)) * sizeof(float);
}

template <class T>
void lstm_bias_grad(cudaStream_t stream, const RnnShape& shape, const T* dgates, float* db_ih, float* db_hh,
                    void* scratch) {
  bias_grad(stream, "lstm_bias_grad", shape, dgates, StoreLstm{db_ih, db_hh}, scratch);
}

template <class T>
void gru_bias_grad(cudaStream_t stream, const RnnShape& shape, const T* dgates, float* db_ih, float* db_hh,
                   void* scratch) {
  bias_grad(stream, "gru_bias_grad", shape, dgates, StoreGru{static_cast<int>(shape.hidden), db_ih, db_hh}, scratch);
}

template void shifted_states(cudaStream_t, const RnnShape&, const float*, float*);
template void shifted_states(cudaStream_t, const RnnShape&, const bf16*, bf16*);
template void lstm_bias_grad(cudaStream_t, const RnnShape&, const float*, float*, float*, void*);
template void lstm_bias_grad(cudaStream_t, const RnnShape&, const bf16*, float*, float*, void*);
template void gru_bias_grad(cudaStream_t, const RnnShape&, const float*, float*, float*, void*);
template void gru_bias_grad(cudaStream_t, const RnnShape&, const bf16*, float*, float*, void*);

}  // namespace overtake::cuda
