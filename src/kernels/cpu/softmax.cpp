#include "kernels/cpu/softmax.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/block.h"
#include "kernels/cpu/blocked_sum.h"
#include "kernels/cpu/vector_math.h"

namespace overtake::kernels {

namespace {

constexpr std::int64_t kColumns = 64;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// y = e^(x - largest) where it can hold it exactly, so that the exponential need not be computed again to scale it.
template <class T>
constexpr bool kHoldsExponential = sizeof(T) == 4;

template <class T>
void forward_row(const T* x, T* y, std::int64_t axis) {
  float largest = kLowest;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < axis; ++i) {
    const float v = to_float(x[i]);
    largest = v > largest ? v : largest;
  }
  const double sum = blocked_sum(axis, [=](std::int64_t i) {
    const float e = exp_fast(to_float(x[i]) - largest);
    if constexpr (kHoldsExponential<T>) y[i] = e;
    return e;
  });
  const float scale = static_cast<float>(1.0 / sum);
#pragma omp simd
  for (std::int64_t i = 0; i < axis; ++i) {
    const float e = kHoldsExponential<T> ? to_float(y[i]) : exp_fast(to_float(x[i]) - largest);
    y[i] = from_float<T>(e * scale);
  }
}

template <class T>
void backward_row(const T* y, const T* dy, T* dx, std::int64_t axis) {
  const auto dot =
      static_cast<float>(blocked_sum(axis, [=](std::int64_t i) { return to_float(y[i]) * to_float(dy[i]); }));
#pragma omp simd
  for (std::int64_t i = 0; i < axis; ++i) dx[i] = from_float<T>(to_float(y[i]) * (to_float(dy[i]) - dot));
}

// `columns` neighbouring columns at once, each `inner` apart from one step of the axis to the next.
template <class T>
void forward_columns(const T* x, T* y, std::int64_t axis, std::int64_t inner, std::int64_t columns) {
  float largest[kColumns], sum[kColumns];
  std::fill(largest, largest + columns, kLowest);
  std::fill(sum, sum + columns, 0.0f);
  for (std::int64_t i = 0; i < axis; ++i) {
    const T* in = x + i * inner;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) {
      const float v = to_float(in[c]);
      largest[c] = v > largest[c] ? v : largest[c];
    }
  }
  for (std::int64_t i = 0; i < axis; ++i) {
    const T* in = x + i * inner;
    T* out = y + i * inner;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) {
      const float e = exp_fast(to_float(in[c]) - largest[c]);
      if constexpr (kHoldsExponential<T>) out[c] = e;
      sum[c] += e;
    }
  }
  for (std::int64_t c = 0; c < columns; ++c) sum[c] = 1.0f / sum[c];
  for (std::int64_t i = 0; i < axis; ++i) {
    const T* in = x + i * inner;
    T* out = y + i * inner;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) {
      const float e = kHoldsExponential<T> ? to_float(out[c]) : exp_fast(to_float(in[c]) - largest[c]);
      out[c] = from_float<T>(e * sum[c]);
    }
  }
}

template <class T>
void backward_columns(const T* y, const T* dy, T* dx, std::int64_t axis, std::int64_t inner, std::int64_t columns) {
  float dot[kColumns];
  std::fill(dot, dot + columns, 0.0f);
  for (std::int64_t i = 0; i < axis; ++i) {
    const T *values = y + i * inner, *grads = dy + i * inner;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) dot[c] += to_float(values[c]) * to_float(grads[c]);
  }
  for (std::int64_t i = 0; i < axis; ++i) {
    const T *values = y + i * inner, *grads = dy + i * inner;
    T* out = dx + i * inner;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) {
      out[c] = from_float<T>(to_float(values[c]) * (to_float(grads[c]) - dot[c]));
    }
  }
}

// Calls body(offset of the first column of the unit, number of columns) for each unit.
template <class Body>
void for_each_column_group(std::int64_t axis, std::int64_t inner, std::int64_t begin, std::int64_t end,
                           const Body& body) {
  const std::int64_t groups = parts_of(inner, kColumns);
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t column = unit % groups * kColumns;
    body(unit / groups * axis * inner + column, std::min(kColumns, inner - column));
  }
}

}  // namespace

std::int64_t softmax_units(std::int64_t outer, std::int64_t inner) { return outer * parts_of(inner, kColumns); }

template <class T>
void softmax_forward(const T* x, T* y, std::int64_t axis, std::int64_t inner, std::int64_t begin, std::int64_t end) {
  if (inner == 1) {
    for (std::int64_t row = begin; row < end; ++row) forward_row(x + row * axis, y + row * axis, axis);
    return;
  }
  for_each_column_group(axis, inner, begin, end, [&](std::int64_t offset, std::int64_t columns) {
    forward_columns(x + offset, y + offset, axis, inner, columns);
  });
}

template <class T>
void softmax_backward(const T* y, const T* dy, T* dx, std::int64_t axis, std::int64_t inner, std::int64_t begin,
                      std::int64_t end) {
  if (inner == 1) {
    for (std::int64_t row = begin; row < end; ++row) {
      backward_row(y + row * axis, dy + row * axis, dx + row * axis, axis);
    }
    return;
  }
  for_each_column_group(axis, inner, begin, end, [&](std::int64_t offset, std::int64_t columns) {
    backward_columns(y + offset, dy + offset, dx + offset, axis, inner, columns);
  });
}

template void softmax_forward(const float*, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t);
template void softmax_forward(const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t);
template void softmax_backward(const float*, const float*, float*, std::int64_t, std::int64_t, std::int64_t,
                               std::int64_t);
template void softmax_backward(const bf16*, const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
