#pragma once
// The same tensor in another layout, and in another element type on the way, on the GPU: kernels/cpu/reorder.h without
// blocked layouts, which only CPU kernels use.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "base/bf16.h"
#include "overtake/layout.h"

namespace overtake::cuda {

// to = from in another layout, neither of them blocked. From, To: float or bf16. Only enqueues; arrays start at 16-byte
// boundaries.
template <class From, class To>
void reorder(cudaStream_t stream, const From* from, const Layout& from_layout, To* to, const Layout& to_layout,
             std::span<const std::int64_t> dims);

// y [images, pixels, 8] = x, an image [images, pixels, channels] or [images, channels, pixels]; zeros beyond the
// channels. Only enqueues; arrays start at 16-byte boundaries.
template <class From, class To>
void pad_channels(cudaStream_t stream, const From* x, bool is_channels_last, std::int64_t images, std::int64_t channels,
                  std::int64_t pixels, To* y);

}  // namespace overtake::cuda
