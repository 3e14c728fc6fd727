#include "kernels/cpu/pool.h"

#include <algorithm>
#include <vector>

#include "base/bf16.h"
#include "base/error.h"
#include "kernels/cpu/simd.h"

namespace overtake::kernels {
namespace {

struct Range {
  std::int64_t begin, end;
};

// Places of a window's axis that lie inside the image, for the output position.
Range taps_inside(std::int64_t position, std::int64_t stride, std::int64_t pad, std::int64_t kernel, std::int64_t in) {
  const std::int64_t start = position * stride - pad;
  return {std::max<std::int64_t>(0, -start), std::min(kernel, in - start)};
}

// Output positions whose windows cover the input position.
Range windows_over(std::int64_t position, std::int64_t stride, std::int64_t pad, std::int64_t kernel,
                   std::int64_t out) {
  const std::int64_t last = (position + pad) / stride;
  const std::int64_t past = position + pad - kernel;  // windows that start here or before end too early
  const std::int64_t first = past < 0 ? 0 : past / stride + 1;
  return {first, std::min(last + 1, out)};
}

// What the sum along one axis of the window at the output position counts: the places inside the image or its padding.
std::int64_t counted(std::int64_t position, std::int64_t stride, std::int64_t pad_begin, std::int64_t pad_end,
                     std::int64_t kernel, std::int64_t in, bool include_pad) {
  const Range inside = taps_inside(position, stride, pad_begin, kernel, in);
  if (!include_pad) return inside.end - inside.begin;
  return std::min(kernel, in + pad_end - (position * stride - pad_begin));
}

// One over what each window of average pooling counts: [out_h][out_w].
std::vector<float> inverse_counts(const PoolShape& s, bool include_pad) {
  std::vector<float> inverse;
  for (std::int64_t p = 0; p < s.out_h; ++p) {
    const std::int64_t rows = counted(p, s.stride_h, s.pad_top, s.pad_bottom, s.kernel_h, s.in_h, include_pad);
    for (std::int64_t q = 0; q < s.out_w; ++q) {
      const std::int64_t columns = counted(q, s.stride_w, s.pad_left, s.pad_right, s.kernel_w, s.in_w, include_pad);
      inverse.push_back(1.0f / static_cast<float>(rows * columns));
    }
  }
  return inverse;
}

// What is the same for all images: the places inside the image of every window, and the windows over every pixel.
struct Windows {
  std::vector<Range> row_taps, column_taps;    // [out_h], [out_w]
  std::vector<Range> rows_over, columns_over;  // [in_h], [in_w]

  explicit Windows(const PoolShape& s) {
    for (std::int64_t p = 0; p < s.out_h; ++p) {
      row_taps.push_back(taps_inside(p, s.stride_h, s.pad_top, s.kernel_h, s.in_h));
    }
    for (std::int64_t q = 0; q < s.out_w; ++q) {
      column_taps.push_back(taps_inside(q, s.stride_w, s.pad_left, s.kernel_w, s.in_w));
    }
    for (std::int64_t h = 0; h < s.in_h; ++h) {
      rows_over.push_back(windows_over(h, s.stride_h, s.pad_top, s.kernel_h, s.out_h));
    }
    for (std::int64_t w = 0; w < s.in_w; ++w) {
      columns_over.push_back(windows_over(w, s.stride_w, s.pad_left, s.kernel_w, s.out_w));
    }
  }
};

// Calls body(p, q, rows[p], columns[q]) for every pixel (p, q).
template <class Body>
void for_each_pixel(const std::vector<Range>& rows, const std::vector<Range>& columns, const Body& body) {
  for (std::size_t p = 0; p < rows.size(); ++p) {
    for (std::size_t q = 0; q < columns.size(); ++q) {
      body(static_cast<std::int64_t>(p), static_cast<std::int64_t>(q), rows[p], columns[q]);
    }
  }
}

template <class T>
void max_pool_image(const PoolShape& s, const Windows& windows, const T* x, T* y, std::uint8_t* argmax) {
  for_each_pixel(windows.row_taps, windows.column_taps, [&](std::int64_t p, std::int64_t q, Range rows, Range columns) {
    const T* window = x + ((p * s.stride_h - s.pad_top) * s.in_w + q * s.stride_w - s.pad_left) * s.channels;
    const std::int64_t out = (p * s.out_w + q) * s.channels;
    for_each_channel_block(s.channels, [&](std::int64_t c, auto access) {
      Lanes largest = access.load(window + (rows.begin * s.in_w + columns.begin) * s.channels + c);
      IntLanes place = IntLanes{} + static_cast<std::int32_t>(rows.begin * s.kernel_w + columns.begin);
      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
        for (std::int64_t t = columns.begin; t < columns.end; ++t) {
          const Lanes value = access.load(window + (r * s.in_w + t) * s.channels + c);
          const IntLanes better = (value > largest) | (value != value);
          largest = better ? value : largest;
          place = better ? IntLanes{} + static_cast<std::int32_t>(r * s.kernel_w + t) : place;
        }
      }
      access.store(y + out + c, largest);
      access.store(argmax + out + c, place);
    });
  });
}

// Each input pixel gathers from the windows over it, in their order: one write, sums in float.
template <class T>
void max_pool_grad_image(const PoolShape& s, const Windows& windows, const T* dy, const std::uint8_t* argmax, T* dx) {
  for_each_pixel(
      windows.rows_over, windows.columns_over, [&](std::int64_t h, std::int64_t w, Range rows, Range columns) {
        for_each_channel_block(s.channels, [&](std::int64_t c, auto access) {
          Lanes sum{};
          for (std::int64_t p = rows.begin; p < rows.end; ++p) {
            for (std::int64_t q = columns.begin; q < columns.end; ++q) {
              const std::int64_t r = h - (p * s.stride_h - s.pad_top), t = w - (q * s.stride_w - s.pad_left);
              const std::int64_t out = (p * s.out_w + q) * s.channels + c;
              const IntLanes chosen = access.load(argmax + out) == static_cast<std::int32_t>(r * s.kernel_w + t);
              sum += chosen ? access.load(dy + out) : Lanes{};
            }
          }
          access.store(dx + (h * s.in_w + w) * s.channels + c, sum);
        });
      });
}

// scales: [out_h][out_w], one over what each window counts.
template <class T>
void average_pool_image(const PoolShape& s, const Windows& windows, const std::vector<float>& scales, const T* x,
                        T* y) {
  for_each_pixel(windows.row_taps, windows.column_taps, [&](std::int64_t p, std::int64_t q, Range rows, Range columns) {
    const T* window = x + ((p * s.stride_h - s.pad_top) * s.in_w + q * s.stride_w - s.pad_left) * s.channels;
    const std::int64_t out = p * s.out_w + q;
    for_each_channel_block(s.channels, [&](std::int64_t c, auto access) {
      Lanes sum{};
      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
        for (std::int64_t t = columns.begin; t < columns.end; ++t) {
          sum += access.load(window + (r * s.in_w + t) * s.channels + c);
        }
      }
      access.store(y + out * s.channels + c, sum * scales[static_cast<std::size_t>(out)]);
    });
  });
}

template <class T>
void average_pool_grad_image(const PoolShape& s, const Windows& windows, const std::vector<float>& scales, const T* dy,
                             T* dx) {
  for_each_pixel(windows.rows_over, windows.columns_over,
                 [&](std::int64_t h, std::int64_t w, Range rows, Range columns) {
                   for_each_channel_block(s.channels, [&](std::int64_t c, auto access) {
                     Lanes sum{};
                     for (std::int64_t p = rows.begin; p < rows.end; ++p) {
                       for (std::int64_t q = columns.begin; q < columns.end; ++q) {
                         const std::int64_t out = p * s.out_w + q;
                         sum += access.load(dy + out * s.channels + c) * scales[static_cast<std::size_t>(out)];
                       }
                     }
                     access.store(dx + (h * s.in_w + w) * s.channels + c, sum);
                   });
                 });
}

std::int64_t in_size(const PoolShape& s) { return s.in_h * s.in_w * s.channels; }
std::int64_t out_size(const PoolShape& s) { return s.out_h * s.out_w * s.channels; }

}  // namespace

void check_pool(const PoolShape& s) {
  const auto touches = [](std::int64_t out, std::int64_t stride, std::int64_t pad, std::int64_t kernel,
                          std::int64_t in) { return pad < kernel && (out - 1) * stride - pad < in; };
  OVERTAKE_CHECK(s.kernel_h * s.kernel_w <= 256 && touches(s.out_h, s.stride_h, s.pad_top, s.kernel_h, s.in_h) &&
                     touches(s.out_w, s.stride_w, s.pad_left, s.kernel_w, s.in_w),
                 "pool: window {}x{} stride {}x{} padding {} {} over {}x{} to {}x{}", s.kernel_h, s.kernel_w,
                 s.stride_h, s.stride_w, s.pad_top, s.pad_left, s.in_h, s.in_w, s.out_h, s.out_w);
}

template <class T>
void max_pool_forward(const PoolShape& s, const T* x, T* y, std::uint8_t* argmax, std::int64_t begin,
                      std::int64_t end) {
  const Windows windows(s);
  for (std::int64_t n = begin; n < end; ++n) {
    max_pool_image(s, windows, x + n * in_size(s), y + n * out_size(s), argmax + n * out_size(s));
  }
}

template <class T>
void max_pool_input_grad(const PoolShape& s, const T* dy, const std::uint8_t* argmax, T* dx, std::int64_t begin,
                         std::int64_t end) {
  const Windows windows(s);
  for (std::int64_t n = begin; n < end; ++n) {
    max_pool_grad_image(s, windows, dy + n * out_size(s), argmax + n * out_size(s), dx + n * in_size(s));
  }
}

template <class T>
void average_pool_forward(const PoolShape& s, bool count_include_pad, const T* x, T* y, std::int64_t begin,
                          std::int64_t end) {
  const Windows windows(s);
  const std::vector<float> scales = inverse_counts(s, count_include_pad);
  for (std::int64_t n = begin; n < end; ++n) {
    average_pool_image(s, windows, scales, x + n * in_size(s), y + n * out_size(s));
  }
}

template <class T>
void average_pool_input_grad(const PoolShape& s, bool count_include_pad, const T* dy, T* dx, std::int64_t begin,
                             std::int64_t end) {
  const Windows windows(s);
  const std::vector<float> scales = inverse_counts(s, count_include_pad);
  for (std::int64_t n = begin; n < end; ++n) {
    average_pool_grad_image(s, windows, scales, dy + n * out_size(s), dx + n * in_size(s));
  }
}

template <class T>
void global_average_pool_forward(const T* x, std::int64_t pixels, std::int64_t channels, T* y, std::int64_t begin,
                                 std::int64_t end) {
  const float scale = 1.0f / static_cast<float>(pixels);
  for (std::int64_t n = begin; n < end; ++n) {
    for_each_channel_block(channels, [&](std::int64_t c, auto access) {
      Lanes sum{};
      for (std::int64_t p = 0; p < pixels; ++p) sum += access.load(x + (n * pixels + p) * channels + c);
      access.store(y + n * channels + c, sum * scale);
    });
  }
}

template <class T>
void global_average_pool_input_grad(const T* dy, std::int64_t pixels, std::int64_t channels, T* dx, std::int64_t begin,
                                    std::int64_t end) {
  const float scale = 1.0f / static_cast<float>(pixels);
  for (std::int64_t n = begin; n < end; ++n) {
    const T* gradient = dy + n * channels;
    for (std::int64_t p = 0; p < pixels; ++p) {
      T* pixel = dx + (n * pixels + p) * channels;
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) pixel[c] = from_float<T>(to_float(gradient[c]) * scale);
    }
  }
}

template void max_pool_forward(const PoolShape&, const float*, float*, std::uint8_t*, std::int64_t, std::int64_t);
template void max_pool_forward(const PoolShape&, const bf16*, bf16*, std::uint8_t*, std::int64_t, std::int64_t);
template void max_pool_input_grad(const PoolShape&, const float*, const std::uint8_t*, float*, std::int64_t,
                                  std::int64_t);
template void max_pool_input_grad(const PoolShape&, const bf16*, const std::uint8_t*, bf16*, std::int64_t,
                                  std::int64_t);
template void average_pool_forward(const PoolShape&, bool, const float*, float*, std::int64_t, std::int64_t);
template void average_pool_forward(const PoolShape&, bool, const bf16*, bf16*, std::int64_t, std::int64_t);
template void average_pool_input_grad(const PoolShape&, bool, const float*, float*, std::int64_t, std::int64_t);
template void average_pool_input_grad(const PoolShape&, bool, const bf16*, bf16*, std::int64_t, std::int64_t);
template void global_average_pool_forward(const float*, std::int64_t, std::int64_t, float*, std::int64_t, std::int64_t);
template void global_average_pool_forward(const bf16*, std::int64_t, std::int64_t, bf16*, std::int64_t, std::int64_t);
template void global_average_pool_input_grad(const float*, std::int64_t, std::int64_t, float*, std::int64_t,
                                             std::int64_t);
template void global_average_pool_input_grad(const bf16*, std::int64_t, std::int64_t, bf16*, std::int64_t,
                                             std::int64_t);

}  // namespace overtake::kernels
