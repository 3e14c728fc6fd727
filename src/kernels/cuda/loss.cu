#include "kernels/cuda/loss.h"

#include <cfloat>
#include <climits>
#include <type_traits>

#include "kernels/cuda/exponential.cuh"
#include "kernels/cuda/group_reduce.cuh"
#include "kernels/cuda/held_row.cuh"
#include "kernels/cuda/launch.h"

namespace overtake::cuda {

namespace {

constexpr int kChunk = 4;              // packs of a row that a thread has on their way at a time
constexpr int kCombineThreads = 1024;  // the second phase is one block

// What the kernels know of a cross entropy.
struct Target {
  int classes, width, ignore_index;
  float smoothing;

  explicit Target(const CrossEntropy& loss)
      : classes(static_cast<int>(loss.classes)),
        width(static_cast<int>(loss.width)),
        ignore_index(loss.ignore_index),
        smoothing(loss.smoothing) {}
  __device__ bool in_range(int label) const { return label >= 0 && label < classes; }
  __device__ bool counts(int label) const { return label != ignore_index && in_range(label); }
};

// Calls body(RowPlan) for rows of `width` elements of T that are read once: a warp or a block per row.
template <class T, class Body>
void with_stream_plan(std::int64_t width, const Body& body) {
  with_vector_width<T>(width, [&](auto vector) {
    constexpr int V = vector;
    if (width <= std::int64_t{32} * V * 2 * kChunk) {
      body(RowPlan<V, 32, 0>{});
    } else {
      body(RowPlan<V, kBlockRowThreads, 0>{});
    }
  });
}

// Elements from `count` on become -inf.
template <class T, int V>
__device__ inline void mask_from(Packed<T, V>& pack, int count) {
  using Bits = std::conditional_t<sizeof(T) == 4, unsigned, unsigned short>;
  Bits elements[V];
  __builtin_memcpy(elements, &pack.word, sizeof(elements));
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (i >= count) elements[i] = static_cast<Bits>(sizeof(T) == 4 ? 0xff800000u : 0xff80u);
  }
  __builtin_memcpy(&pack.word, elements, sizeof(elements));
}

// kChunk packs of a row: those of this thread from chunk `chunk` on.
template <class T, class Plan>
struct Chunk {
  static constexpr int V = Plan::V;
  Packed<T, V> packs[kChunk];
  int first, columns;  // column of the first pack; columns of the row that count

  // What is beyond `columns` is -inf. The row's memory ends with a whole pack.
  __device__ Chunk(const T* row, int chunk, int row_columns)
      : first((chunk * kChunk * Plan::G + Plan::lane()) * V), columns(row_columns) {
#pragma unroll
    for (int u = 0; u < kChunk; ++u) {
      packs[u].word = {};
      if (count(u) > 0) packs[u] = load_packed<V>(row + column(u));
    }
#pragma unroll
    for (int u = 0; u < kChunk; ++u) {  // once all loads are on their way
      if (count(u) < V) mask_from(packs[u], count(u));
    }
  }
  __device__ int column(int u) const { return first + u * Plan::G * V; }
  // Elements of a pack that count; V or more, and 0 or less, mean all and none.
  __device__ int count(int u) const { return columns - column(u); }
  __device__ static int chunks(int width) { return (width + Plan::G * V * kChunk - 1) / (Plan::G * V * kChunk); }
};

// What a thread learns of its part of a row: the largest element and the chunk it first came in, the sum of e^(x -
// largest), and the sum of x.
struct RowPart {
  float largest = -FLT_MAX;  // not -inf: a chunk of -inf then adds 0 and not NaN
  float exponentials = 0, sum = 0;
  int chunk = 0;
};

template <class T, class Plan, bool smooths>
__device__ RowPart part_of_row(const T* row, int classes) {
  constexpr int V = Plan::V;
  RowPart part;
  for (int c = 0; c < Chunk<T, Plan>::chunks(classes); ++c) {
    const Chunk<T, Plan> chunk(row, c, classes);
    float largest = -FLT_MAX;
#pragma unroll
    for (int u = 0; u < kChunk; ++u) {
      float values[V];
      unpack(chunk.packs[u], values);
#pragma unroll
      for (int i = 0; i < V; ++i) largest = fmaxf(largest, values[i]);
    }
    if (largest > part.largest) {
      part.exponentials *= exp_fast(part.largest - largest);
      part.largest = largest;
      part.chunk = c;
    }
#pragma unroll
    for (int u = 0; u < kChunk; ++u) {
      float values[V];
      unpack(chunk.packs[u], values);
      float exponentials = 0, sum = 0;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        exponentials += exp_fast(values[i] - part.largest);
        if (smooths && i < chunk.count(u)) sum += values[i];
      }
      part.exponentials += exponentials;
      part.sum += sum;
    }
  }
  return part;
}

// The first column of this thread's chunk whose element is `value`, INT_MAX if there is none.
template <class T, class Plan>
__device__ int first_equal(const T* row, int classes, int chunk_index, float value) {
  constexpr int V = Plan::V;
  const Chunk<T, Plan> chunk(row, chunk_index, classes);
  int column = INT_MAX;
#pragma unroll
  for (int u = 0; u < kChunk; ++u) {
    float values[V];
    unpack(chunk.packs[u], values);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (values[i] == value) column = min(column, chunk.column(u) + i);
    }
  }
  return column;
}

// One pass over each row, with the sum of exponentials scaled anew when a larger element comes. row_loss, row_correct:
// [rows], 0 for rows that do not count.
template <class T, class Plan, bool smooths>
__global__ void __launch_bounds__(Plan::threads)
    cross_entropy_rows_kernel(const Target target, const T* logits, const std::int32_t* labels, std::int64_t rows,
                              float* row_lse, float* row_loss, float* row_correct) {
  const std::int64_t row = Plan::row();
  if (row >= rows) return;
  const int classes = target.classes, label = __ldg(labels + row);
  const T* x = logits + row * target.width;
  const bool counts = target.counts(label);
  float at_label[1] = {0.0f};
  if (counts) unpack(load_packed<1>(x + label), at_label);

  const RowPart part = part_of_row<T, Plan, smooths>(x, classes);
  const float largest = group_reduce<Plan::G>(part.largest, [](float a, float b) { return fmaxf(a, b); });
  const float exponentials = group_sum<Plan::G>(part.exponentials * exp_fast(part.largest - largest));
  double sum = 0;
  if constexpr (smooths) sum = group_sum<Plan::G>(static_cast<double>(part.sum));
  bool is_correct = counts && at_label[0] == largest;
  if (is_correct) {  // unless the same number comes before
    const int column = part.largest == largest ? first_equal<T, Plan>(x, classes, part.chunk, largest) : INT_MAX;
    is_correct = group_reduce<Plan::G>(column, [](int a, int b) { return min(a, b); }) == label;
  }
  if (Plan::lane() != 0) return;
  const double lse = static_cast<double>(largest) + log(static_cast<double>(exponentials));
  const auto smoothing = static_cast<double>(target.smoothing);
  double expected = (1.0 - smoothing) * static_cast<double>(at_label[0]);  // mean logit under the target
  if constexpr (smooths) expected += smoothing * sum / static_cast<double>(classes);
  row_lse[row] = static_cast<float>(lse);
  row_loss[row] = counts ? static_cast<float>(lse - expected) : 0.0f;
  row_correct[row] = is_correct ? 1.0f : 0.0f;
}

// One block: thread t adds rows t, t + 1024, ...
__global__ void __launch_bounds__(kCombineThreads)
    cross_entropy_combine_kernel(const Target target, const std::int32_t* labels, const float* row_loss,
                                 const float* row_correct, int rows, float* metrics, std::int64_t* first_bad) {
  double2 loss_and_counted = {0, 0};
  double correct = 0;
  int bad = INT_MAX;
#pragma unroll 4
  for (int row = static_cast<int>(threadIdx.x); row < rows; row += kCombineThreads) {
    const int label = labels[row];
    loss_and_counted.x += static_cast<double>(row_loss[row]);
    loss_and_counted.y += target.counts(label) ? 1.0 : 0.0;
    correct += static_cast<double>(row_correct[row]);
    if (label != target.ignore_index && !target.in_range(label)) bad = min(bad, row);
  }
  loss_and_counted = group_sum<kCombineThreads>(loss_and_counted);
  correct = group_sum<kCombineThreads>(correct);
  bad = group_reduce<kCombineThreads>(bad, [](int a, int b) { return min(a, b); });
  if (threadIdx.x > 0) return;
  const double counted = loss_and_counted.y;
  metrics[0] = counted > 0 ? static_cast<float>(loss_and_counted.x / counted) : 0.0f;
  metrics[1] = static_cast<float>(counted);
  metrics[2] = static_cast<float>(correct);
  *first_bad = bad == INT_MAX ? -1 : bad;
}

template <class T, class Plan>
__global__ void __launch_bounds__(Plan::threads)
    cross_entropy_input_grad_kernel(const Target target, const T* logits, const std::int32_t* labels,
                                    const float* row_lse, const float* count, float scale, std::int64_t rows,
                                    T* dlogits) {
  constexpr int V = Plan::V;
  const std::int64_t row = Plan::row();
  if (row >= rows) return;
  const int classes = target.classes, width = target.width, label = __ldg(labels + row);
  const T* x = logits + row * width;
  T* dx = dlogits + row * width;
  if (!target.counts(label)) {
    float zeros[V];
    fill(zeros, 0.0f);
    Plan::for_each_pack(width, [&](int, int column) { store_values(dx + column, zeros); });
    return;
  }
  const float lse = __ldg(row_lse + row), counted = __ldg(count);
  const float row_scale = counted > 0.0f ? scale / counted : 0.0f;
  const float floor = target.smoothing / static_cast<float>(classes);  // the target of every other class
  for (int c = 0; c < Chunk<T, Plan>::chunks(width); ++c) {
    const Chunk<T, Plan> chunk(x, c, classes);
#pragma unroll
    for (int u = 0; u < kChunk; ++u) {
      if (chunk.column(u) >= width) continue;
      float values[V];
      unpack(chunk.packs[u], values);
#pragma unroll
      for (int i = 0; i < V; ++i) values[i] = (exp_fast(values[i] - lse) - floor) * row_scale;
      const int place = label - chunk.column(u);
      if (place >= 0 && place < V) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
          if (i == place) values[i] -= (1.0f - target.smoothing) * row_scale;
        }
      }
      if (chunk.count(u) < V) {  // padding
#pragma unroll
        for (int i = 0; i < V; ++i) {
          if (i >= chunk.count(u)) values[i] = 0.0f;
        }
      }
      store_values(dx + chunk.column(u), values);
    }
  }
}

}  // namespace

std::size_t cross_entropy_scratch_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(rows) * 2 * sizeof(float);
}

template <class T>
void cross_entropy_forward(cudaStream_t stream, const CrossEntropy& loss, const T* logits, const std::int32_t* labels,
                           std::int64_t rows, float* lse, float* metrics, std::int64_t* first_bad, void* scratch) {
  constexpr const char* name = "cross_entropy_forward";
  require_aligned(name, {logits, scratch});
  auto* row_loss = static_cast<float*>(scratch);
  float* row_correct = row_loss + rows;
  const Target target(loss);
  with_stream_plan<T>(loss.width, [&]<class Plan>(Plan) {
    const unsigned grid = grid_blocks(name, (rows + Plan::rows_per_block - 1) / Plan::rows_per_block);
    const auto kernel =
        loss.smoothing > 0.0f ? cross_entropy_rows_kernel<T, Plan, true> : cross_entropy_rows_kernel<T, Plan, false>;
    kernel<<<grid, Plan::threads, 0, stream>>>(target, logits, labels, rows, lse, row_loss, row_correct);
  });
  check_launch(name);
  cross_entropy_combine_kernel<<<1, kCombineThreads, 0, stream>>>(target, labels, row_loss, row_correct,
                                                                  static_cast<int>(rows), metrics, first_bad);
  check_launch(name);
}

template <class T>
void cross_entropy_input_grad(cudaStream_t stream, const CrossEntropy& loss, const T* logits,
                              const std::int32_t* labels, const float* lse, const float* count, float scale,
                              std::int64_t rows, T* dlogits) {
  constexpr const char* name = "cross_entropy_input_grad";
  require_aligned(name, {logits, dlogits});
  with_stream_plan<T>(loss.width, [&]<class Plan>(Plan) {
    const unsigned grid = grid_blocks(name, (rows + Plan::rows_per_block - 1) / Plan::rows_per_block);
    cross_entropy_input_grad_kernel<T, Plan>
        <<<grid, Plan::threads, 0, stream>>>(Target(loss), logits, labels, lse, count, scale, rows, dlogits);
  });
  check_launch(name);
}

template void cross_entropy_forward(cudaStream_t, const CrossEntropy&, const float*, const std::int32_t*, std::int64_t,
                                    float*, float*, std::int64_t*, void*);
template void cross_entropy_forward(cudaStream_t, const CrossEntropy&, const bf16*, const std::int32_t*, std::int64_t,
                                    float*, float*, std::int64_t*, void*);
template void cross_entropy_input_grad(cudaStream_t, const CrossEntropy&, const float*, const std::int32_t*,
                                       const float*, const float*, float, std::int64_t, float*);
template void cross_entropy_input_grad(cudaStream_t, const CrossEntropy&, const bf16*, const std::int32_t*,
                                       const float*, const float*, float, std::int64_t, bf16*);
}  // namespace overtake::cuda
