#include "kernels/cpu/embedding.h"

#include <algorithm>

#include "kernels/cpu/block.h"

namespace overtake::kernels {

namespace {

constexpr std::int64_t kColumnBlock = 256;

// sum [size] = dy[i * width, ...] for i in [first, last), left to right.
template <class T>
void sum_positions(const std::int32_t* first, const std::int32_t* last, const T* __restrict dy, std::int64_t width,
                   float* __restrict sum, std::int64_t size) {
  const T* row = dy + *first * width;
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) sum[i] = to_float(row[i]);
  for (const std::int32_t* position = first + 1; position < last; ++position) {
    row = dy + *position * width;
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) sum[i] += to_float(row[i]);
  }
}

bool is_good(std::int32_t token, std::int64_t vocabulary) { return token >= 0 && token < vocabulary; }

}  // namespace

template <class W, class T>
std::int64_t embedding_forward(const std::int32_t* tokens, const W* table, T* y, std::int64_t vocabulary,
                               std::int64_t width, std::int64_t begin, std::int64_t end) {
  std::int64_t first_bad = -1;
  for (std::int64_t position = begin; position < end; ++position) {
    T* out = y + position * width;
    if (!is_good(tokens[position], vocabulary)) [[unlikely]] {
      if (first_bad < 0) first_bad = position;
      std::fill(out, out + width, from_float<T>(0.0f));
      continue;
    }
    const W* in = table + tokens[position] * width;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) out[i] = from_float<T>(to_float(in[i]));
  }
  return first_bad;
}

void embedding_index(const std::int32_t* tokens, std::int64_t n, std::int64_t vocabulary, std::int32_t padding,
                     std::int32_t* offsets, std::int32_t* positions) {
  const auto counts = [&](std::int32_t token) { return is_good(token, vocabulary) && token != padding; };
  std::fill(offsets, offsets + vocabulary + 1, 0);
  for (std::int64_t i = 0; i < n; ++i) {
    if (counts(tokens[i])) ++offsets[tokens[i]];
  }
  for (std::int64_t v = 1; v <= vocabulary; ++v) offsets[v] += offsets[v - 1];  // now where each token's list ends
  for (std::int64_t i = n - 1; i >= 0; --i) {  // backwards: ends become starts, and positions increase
    if (counts(tokens[i])) positions[--offsets[tokens[i]]] = static_cast<std::int32_t>(i);
  }
}

std::int64_t embedding_backward_units(std::int64_t vocabulary, std::int64_t width) {
  return vocabulary * parts_of(width, kColumnBlock);
}

template <class T>
void embedding_backward(const std::int32_t* offsets, const std::int32_t* positions, const T* dy, float* dtable,
                        std::int64_t vocabulary, std::int64_t width, std::int64_t begin, std::int64_t end) {
  const std::int64_t blocks = parts_of(width, kColumnBlock);
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t token = unit / blocks, column = unit % blocks * kColumnBlock;
    if (offsets[token] != offsets[token + 1]) continue;
    float* row = dtable + token * width;
    std::fill(row + column, row + std::min(width, column + kColumnBlock), 0.0f);
  }
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t token = unit % vocabulary, column = unit / vocabulary * kColumnBlock;
    if (offsets[token] == offsets[token + 1]) continue;
    sum_positions(positions + offsets[token], positions + offsets[token + 1], dy + column, width,
                  dtable + token * width + column, std::min(kColumnBlock, width - column));
  }
}

template std::int64_t embedding_forward(const std::int32_t*, const float*, float*, std::int64_t, std::int64_t,
                                        std::int64_t, std::int64_t);
template std::int64_t embedding_forward(const std::int32_t*, const float*, bf16*, std::int64_t, std::int64_t,
                                        std::int64_t, std::int64_t);
template std::int64_t embedding_forward(const std::int32_t*, const bf16*, bf16*, std::int64_t, std::int64_t,
                                        std::int64_t, std::int64_t);
template void embedding_backward(const std::int32_t*, const std::int32_t*, const float*, float*, std::int64_t,
                                 std::int64_t, std::int64_t, std::int64_t);
template void embedding_backward(const std::int32_t*, const std::int32_t*, const bf16*, float*, std::int64_t,
                                 std::int64_t, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
