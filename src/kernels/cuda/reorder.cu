#include "kernels/cuda/reorder.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/move.h"
#include "kernels/cuda/permute.cuh"

namespace overtake::cuda {

template <class From, class To>
void reorder(cudaStream_t stream, const From* from, const Layout& from_layout, To* to, const Layout& to_layout,
             std::span<const std::int64_t> dims) {
  const bool unblocked = from_layout.blocks == 0 && to_layout.blocks == 0;
  access::require(unblocked && from_layout.rank == to_layout.rank, "reorder: blocked layouts, or of different rank");
  const std::size_t rank = from_layout.rank;
  std::array<std::int64_t, kMaxLayoutRank> from_dims{};  // in the order of memory
  std::array<int, kMaxLayoutRank> permutation{};         // dim i of `to`'s memory is dim permutation[i] of `from`'s
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    from_dims[d] = dims[from_layout.order[d]];
    elements *= from_dims[d];
    const auto* begin = from_layout.order.begin();
    permutation[d] = static_cast<int>(std::find(begin, begin + rank, to_layout.order[d]) - begin);
  }
  if (from_layout == to_layout) {
    cast(stream, from, to, elements);
    return;
  }
  const kernels::PermutePlan plan =
      kernels::make_permute_plan(std::span(from_dims).first(rank), std::span(permutation).first(rank));
  access::launch_permute(stream, "reorder", plan, from, to);
}

namespace {

constexpr int kPadThreads = 256, kPadWidth = 8;

template <class From, class To>
__global__ void __launch_bounds__(kPadThreads)
    pad_channels_kernel(const From* x, int channels, std::int64_t channel_stride, std::int64_t pixel_stride,
                        std::int64_t pixels, std::int64_t all_pixels, To* y) {
  const std::int64_t pixel = std::int64_t{blockIdx.x} * kPadThreads + threadIdx.x;
  if (pixel >= all_pixels) return;
  const From* from = x + pixel / pixels * pixels * channels + pixel % pixels * pixel_stride;
  To row[kPadWidth];
#pragma unroll
  for (int c = 0; c < kPadWidth; ++c) {
    row[c] = c < channels ? access::convert<To>(from[c * channel_stride]) : access::narrow<To>(0.0f);
  }
  constexpr int words = static_cast<int>(sizeof(row) / sizeof(uint4));
  uint4 packed[words];
  __builtin_memcpy(packed, row, sizeof(row));
#pragma unroll
  for (int w = 0; w < words; ++w) reinterpret_cast<uint4*>(y + pixel * kPadWidth)[w] = packed[w];
}

}  // namespace

template <class From, class To>
void pad_channels(cudaStream_t stream, const From* x, bool is_channels_last, std::int64_t images, std::int64_t channels,
                  std::int64_t pixels, To* y) {
  require_aligned("pad_channels", {x, y});
  access::require(channels >= 1 && channels <= kPadWidth, "pad_channels: more channels than the padded pixel has");
  const unsigned blocks = grid_blocks("pad_channels", (images * pixels + kPadThreads - 1) / kPadThreads);
  pad_channels_kernel<<<blocks, kPadThreads, 0, stream>>>(x, static_cast<int>(channels), is_channels_last ? 1 : pixels,
                                                          is_channels_last ? channels : 1, pixels, images * pixels, y);
  check_launch("pad_channels");
}

template void pad_channels(cudaStream_t, const float*, bool, std::int64_t, std::int64_t, std::int64_t, bf16*);
template void pad_channels(cudaStream_t, const bf16*, bool, std::int64_t, std::int64_t, std::int64_t, bf16*);
template void reorder(cudaStream_t, const float*, const Layout&, float*, const Layout&, std::span<const std::int64_t>);
template void reorder(cudaStream_t, const float*, const Layout&, bf16*, const Layout&, std::span<const std::int64_t>);
template void reorder(cudaStream_t, const bf16*, const Layout&, float*, const Layout&, std::span<const std::int64_t>);
template void reorder(cudaStream_t, const bf16*, const Layout&, bf16*, const Layout&, std::span<const std::int64_t>);

}  // namespace overtake::cuda
