#include "kernels/cuda/attention_mask.h"

#include <limits>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/group_reduce.cuh"
#include "kernels/cuda/launch.h"

namespace overtake::cuda {
namespace {

using kernels::AttentionShape;

constexpr int kThreads = 256;
constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr float kFar = 1e30f;  // far from every score, but differences stay finite

constexpr int kPack = access::kPackWidth<bf16>;
constexpr int kRowsPerBlock = 64;  // of the bias of all queries

// A block for each batch entry.
__global__ void __launch_bounds__(kThreads)
    mask_bias_kernel(AttentionShape s, const std::uint8_t* key_mask, std::int64_t bias_stride, bf16* bias,
                     std::int32_t* first_shown) {
  const std::int64_t entry = blockIdx.x;
  int first = static_cast<int>(s.keys);
  for (std::int64_t j = threadIdx.x; j < bias_stride; j += kThreads) {
    const bool shown = j < s.keys && key_mask[entry * s.keys + j] != 0;
    if (shown) first = min(first, static_cast<int>(j));
    bias[entry * bias_stride + j] = access::narrow<bf16>(shown ? 0.0f : -kFar);
  }
  first = group_reduce<kThreads>(first, [](int a, int b) { return min(a, b); });
  if (threadIdx.x == 0) first_shown[entry] = first;
}

// Block (b, i): kRowsPerBlock queries of batch entry b. Its 32 x 8 threads are packs of keys, and queries.
__global__ void __launch_bounds__(kThreads)
    mask_bias_backward_kernel(AttentionShape s, const std::uint8_t* key_mask, std::int64_t bias_stride,
                              const float* lse, bf16* bias, float* finite_lse) {
  const std::int64_t entry = blockIdx.x, first = static_cast<std::int64_t>(blockIdx.y) * kRowsPerBlock;
  const std::int64_t last = min(first + kRowsPerBlock, s.queries);
  for (std::int64_t j = static_cast<std::int64_t>(threadIdx.x) * kPack; j < bias_stride; j += 32 * kPack) {
    access::Pack<bf16, kPack> pack;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const bool shown = j + i < s.keys && key_mask[entry * s.keys + j + i] != 0;
      pack.at[i] = access::narrow<bf16>(shown ? 0.0f : -kFar);
    }
    for (std::int64_t query = first + threadIdx.y; query < last; query += kThreads / 32) {
      access::store_pack(bias + (entry * s.queries + query) * bias_stride + j, pack);
    }
  }
  const std::int64_t thread = threadIdx.y * 32 + threadIdx.x;
  for (std::int64_t i = thread; i < s.heads * kRowsPerBlock; i += kThreads) {
    const std::int64_t head = i / kRowsPerBlock, query = first + i % kRowsPerBlock;
    if (query >= last) continue;
    const std::int64_t at = (entry * s.heads + head) * s.queries + query;
    finite_lse[at] = lse[at] == kNothing ? kFar : lse[at];
  }
}

// A warp for each query of a batch entry, all heads.
__global__ void __launch_bounds__(kThreads)
    clear_blind_kernel(AttentionShape s, const std::int32_t* first_shown, bf16* o, float* lse) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= s.batch * s.queries) return;
  const std::int64_t entry = row / s.queries, query = row % s.queries;
  const std::int64_t seen = s.causal ? min(query + 1 + s.keys - s.queries, s.keys) : s.keys;
  if (first_shown[entry] < seen) return;
  for (std::int64_t d = lane; d < s.heads * s.head_dim; d += 32) o[row * s.o_stride + d] = bf16{0};
  for (std::int64_t h = lane; h < s.heads; h += 32) lse[(entry * s.heads + h) * s.queries + query] = kNothing;
}

}  // namespace

std::int64_t attention_bias_stride(std::int64_t keys) { return access::parts(keys, kPack) * kPack; }

void attention_mask_bias(cudaStream_t stream, const AttentionShape& shape, const std::uint8_t* key_mask, bf16* bias,
                         std::int32_t* first_shown) {
  constexpr const char* name = "attention_mask_bias";
  mask_bias_kernel<<<grid_blocks(name, shape.batch), kThreads, 0, stream>>>(
      shape, key_mask, attention_bias_stride(shape.keys), bias, first_shown);
  check_launch(name);
}

void attention_mask_bias_backward(cudaStream_t stream, const AttentionShape& shape, const std::uint8_t* key_mask,
                                  const float* lse, bf16* bias, float* finite_lse) {
  constexpr const char* name = "attention_mask_bias_backward";
  require_aligned(name, {bias});
  const dim3 grid(grid_blocks(name, shape.batch), grid_blocks(name, access::parts(shape.queries, kRowsPerBlock)));
  mask_bias_backward_kernel<<<grid, dim3(32, kThreads / 32), 0, stream>>>(
      shape, key_mask, attention_bias_stride(shape.keys), lse, bias, finite_lse);
  check_launch(name);
}

void attention_clear_blind(cudaStream_t stream, const AttentionShape& shape, const std::int32_t* first_shown, bf16* o,
                           float* lse) {
  constexpr const char* name = "attention_clear_blind";
  const unsigned grid = grid_blocks(name, access::parts(shape.batch * shape.queries, kThreads / 32));
  clear_blind_kernel<<<grid, kThreads, 0, stream>>>(shape, first_shown, o, lse);
  check_launch(name);
}

}  // namespace overtake::cuda
