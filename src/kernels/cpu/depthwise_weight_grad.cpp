#include "kernels/cpu/depthwise_weight_grad.h"

#include <algorithm>

#include "base/bf16.h"
#include "base/error.h"
#include "kernels/cpu/simd.h"

namespace overtake::kernels {
namespace {

// Input rows the kernel window spans, which are held packed while the window passes over them.
std::int64_t window_rows(const ConvShape& s) { return (s.kernel_h - 1) * s.dilation_h + 1; }

// A packed input row holds the padding too: every column that a tap of some output column touches.
std::int64_t packed_width(const ConvShape& s) {
  return (s.out_w - 1) * s.stride_w + (s.kernel_w - 1) * s.dilation_w + 1;
}

// Copies `count` pixels of one row, channels [0, width) of each, into full vectors; missing channels become zero.
template <class T>
void pack(const T* row, std::int64_t count, std::int64_t pixel_stride, std::int64_t width, Lanes* packed) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T* pixel = row + i * pixel_stride;
    packed[i] = width == kLanes ? load_lanes(pixel) : load_lanes(pixel, width);
  }
}

// sums[s] += dy[q] * x[q * stride + s * dilation] over the output columns q of one row, for one row of the kernel.
template <std::size_t kernel_w>
void add_row(const Lanes* x, const Lanes* dy, std::int64_t columns, std::int64_t stride, std::size_t dilation,
             Lanes* sums) {
  Lanes sum[kernel_w];
  for (std::size_t s = 0; s < kernel_w; ++s) sum[s] = sums[s];
  for (std::int64_t q = 0; q < columns; ++q) {
    const Lanes* taps = x + q * stride;
#pragma GCC unroll 16
    for (std::size_t s = 0; s < kernel_w; ++s) sum[s] += dy[q] * taps[s * dilation];
  }
  for (std::size_t s = 0; s < kernel_w; ++s) sums[s] = sum[s];
}

// Everything of one block of 16 channels, one image after another.
template <class T, std::size_t kernel_w>
class ChannelBlock {
 public:
  ChannelBlock(const ConvShape& shape, void* scratch)
      : s_(shape),
        ring_(static_cast<Lanes*>(scratch)),
        dy_row_(ring_ + window_rows(shape) * packed_width(shape)),
        image_sums_(dy_row_ + shape.out_w) {
    // The padding columns of the ring stay zero.
    std::fill(ring_, dy_row_, Lanes{});
  }

  // x, dy: first channel of the block in the first image; sums: [kernel_h][kernel_w][kLanes], dbias: [width].
  void run(const T* x, const T* dy, std::int64_t width, float* sums, float* dbias) {
    const std::int64_t taps = s_.kernel_h * s_.kernel_w;
    std::fill(sums, sums + taps * kLanes, 0.0f);
    Lanes bias_sum{};
    for (std::int64_t n = 0; n < s_.batch; ++n) {
      std::fill(image_sums_, image_sums_ + taps, Lanes{});
      add_image(x + n * s_.in_h * s_.in_w * s_.groups, dy + n * s_.out_h * s_.out_w * s_.groups, width, bias_sum);
      const float* image = reinterpret_cast<const float*>(image_sums_);
      for (std::int64_t i = 0; i < taps * kLanes; ++i) sums[i] += image[i];
    }
    if (dbias != nullptr) {
      for (std::int64_t c = 0; c < width; ++c) dbias[c] = bias_sum[c];
    }
  }

 private:
  void add_image(const T* x, const T* dy, std::int64_t width, Lanes& bias_sum) {
    std::int64_t next = 0;  // the first input row not yet in the ring
    for (std::int64_t p = 0; p < s_.out_h; ++p) {
      const std::int64_t top = p * s_.stride_h - s_.pad_top;
      next = std::max(next, top);
      for (; next < std::min(top + window_rows(s_), s_.in_h); ++next) pack_input_row(x, next, width);

      pack(dy + p * s_.out_w * s_.groups, s_.out_w, s_.groups, width, dy_row_);
      Lanes row_sum{};
      for (std::int64_t q = 0; q < s_.out_w; ++q) row_sum += dy_row_[q];
      bias_sum += row_sum;
      for (std::int64_t r = 0; r < s_.kernel_h; ++r) {
        const std::int64_t row = top + r * s_.dilation_h;
        if (row < 0 || row >= s_.in_h) continue;
        add_row<kernel_w>(ring_row(row), dy_row_, s_.out_w, s_.stride_w, static_cast<std::size_t>(s_.dilation_w),
                          image_sums_ + r * s_.kernel_w);
      }
    }
  }

  Lanes* ring_row(std::int64_t row) const { return ring_ + row % window_rows(s_) * packed_width(s_); }

  void pack_input_row(const T* x, std::int64_t row, std::int64_t width) {
    const std::int64_t columns = std::min(s_.in_w, packed_width(s_) - s_.pad_left);
    if (columns <= 0) return;
    pack(x + row * s_.in_w * s_.groups, columns, s_.groups, width, ring_row(row) + s_.pad_left);
  }

  const ConvShape& s_;
  Lanes* ring_;        // [window_rows][packed_width]
  Lanes* dy_row_;      // [out_w]
  Lanes* image_sums_;  // [kernel_h][kernel_w]
};

template <class T, std::size_t kernel_w>
void all_blocks(const ConvShape& s, const T* x, const T* dy, float* dw, float* dbias, void* scratch) {
  ChannelBlock<T, kernel_w> block(s, scratch);
  for (std::int64_t c = 0; c < s.groups; c += kLanes) {
    block.run(x + c, dy + c, std::min(kLanes, s.groups - c), dw + c * s.kernel_h * s.kernel_w,
              dbias == nullptr ? nullptr : dbias + c);
  }
}

}  // namespace

bool depthwise_weight_grad_handles(const ConvShape& s) {
  const bool depthwise = s.groups > 1 && s.in_channels == s.groups && s.out_channels == s.groups;
  return depthwise && s.kernel_w % 2 == 1 && s.kernel_w >= 3 && s.kernel_w <= 11;
}

Layout depthwise_weight_grad_layout() { return layout_from_string("Abcde16a"); }

std::size_t depthwise_weight_grad_scratch_bytes(const ConvShape& s) {
  const std::int64_t vectors = window_rows(s) * packed_width(s) + s.out_w + s.kernel_h * s.kernel_w;
  return static_cast<std::size_t>(vectors) * sizeof(Lanes);
}

template <class T>
void depthwise_weight_grad(const ConvShape& s, const T* x, const T* dy, float* dw, float* dbias, void* scratch) {
  switch (s.kernel_w) {
    case 3:
      return all_blocks<T, 3>(s, x, dy, dw, dbias, scratch);
    case 5:
      return all_blocks<T, 5>(s, x, dy, dw, dbias, scratch);
    case 7:
      return all_blocks<T, 7>(s, x, dy, dw, dbias, scratch);
    case 9:
      return all_blocks<T, 9>(s, x, dy, dw, dbias, scratch);
    case 11:
      return all_blocks<T, 11>(s, x, dy, dw, dbias, scratch);
    default:
      OVERTAKE_CHECK(false, "depthwise weight_grad: kernel width {}", s.kernel_w);
  }
}

template void depthwise_weight_grad(const ConvShape&, const float*, const float*, float*, float*, void*);
template void depthwise_weight_grad(const ConvShape&, const bf16*, const bf16*, float*, float*, void*);

}  // namespace overtake::kernels
