#include "kernels/cpu/move.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/block.h"

namespace overtake::kernels {

namespace {

constexpr std::int64_t kMoveBlock = 16384;

template <class T>
void copy_run(const T* from, T* to, std::int64_t size) {
  if (size <= 0) return;
  std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(size) * sizeof(T));
}

template <class T>
void zero_run(T* to, std::int64_t size) {
  if (size <= 0) return;
  std::memset(static_cast<void*>(to), 0, static_cast<std::size_t>(size) * sizeof(T));  // zero bits are 0 in every T
}

// Calls body(outer index, first element, past the last element of the destination row) for each unit.
template <class Body>
void for_each_row_block(std::int64_t row, std::int64_t begin, std::int64_t end, const Body& body) {
  const std::int64_t blocks = parts_of(row, kMoveBlock);
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t first = unit % blocks * kMoveBlock;
    body(unit / blocks, first, std::min(row, first + kMoveBlock));
  }
}

}  // namespace

std::int64_t row_move_units(std::int64_t outer, std::int64_t row) { return outer * parts_of(row, kMoveBlock); }

template <class T>
void concat(std::span<const T* const> in, std::span<const std::int64_t> extents, std::int64_t inner, T* out,
            std::int64_t begin, std::int64_t end) {
  std::int64_t axis = 0;
  for (const std::int64_t extent : extents) axis += extent;
  for_each_row_block(axis * inner, begin, end, [&](std::int64_t o, std::int64_t first, std::int64_t last) {
    std::int64_t start = 0;  // of input i in the destination row
    for (std::size_t i = 0; i < in.size() && start < last; ++i) {
      const std::int64_t size = extents[i] * inner;
      const std::int64_t from = std::max(first, start), to = std::min(last, start + size);
      copy_run(in[i] + o * size + (from - start), out + o * axis * inner + from, to - from);
      start += size;
    }
  });
}

template <class T>
void slice(const T* x, T* y, std::int64_t axis, std::int64_t offset, std::int64_t extent, std::int64_t inner,
           std::int64_t begin, std::int64_t end) {
  for_each_row_block(extent * inner, begin, end, [&](std::int64_t o, std::int64_t first, std::int64_t last) {
    copy_run(x + (o * axis + offset) * inner + first, y + o * extent * inner + first, last - first);
  });
}

template <class T>
void slice_backward(const T* dy, T* dx, std::int64_t axis, std::int64_t offset, std::int64_t extent, std::int64_t inner,
                    std::int64_t begin, std::int64_t end) {
  const std::int64_t row = axis * inner;
  for_each_row_block(row, begin, end, [&](std::int64_t o, std::int64_t first, std::int64_t last) {
    const std::int64_t from = std::clamp(offset * inner, first, last);
    const std::int64_t to = std::clamp((offset + extent) * inner, first, last);
    zero_run(dx + o * row + first, from - first);
    copy_run(dy + o * extent * inner + (from - offset * inner), dx + o * row + from, to - from);
    zero_run(dx + o * row + to, last - to);
  });
}

template <class T>
void fill(T* out, float value, std::int64_t count, std::int64_t block_begin, std::int64_t block_end) {
  const T element = from_float<T>(value);
  const std::int64_t first = block_begin * kBlock, last = std::min(count, block_end * kBlock);
#pragma omp simd
  for (std::int64_t i = first; i < last; ++i) out[i] = element;
}

template <class From, class To>
void cast(const From* x, To* y, std::int64_t count, std::int64_t block_begin, std::int64_t block_end) {
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    const From* in = x + first;
    To* out = y + first;
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) out[i] = from_float<To>(to_float(in[i]));
  });
}

template void concat(std::span<const float* const>, std::span<const std::int64_t>, std::int64_t, float*, std::int64_t,
                     std::int64_t);
template void concat(std::span<const bf16* const>, std::span<const std::int64_t>, std::int64_t, bf16*, std::int64_t,
                     std::int64_t);
template void concat(std::span<const std::int32_t* const>, std::span<const std::int64_t>, std::int64_t, std::int32_t*,
                     std::int64_t, std::int64_t);
template void slice(const float*, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                    std::int64_t);
template void slice(const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                    std::int64_t);
template void slice(const std::int32_t*, std::int32_t*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                    std::int64_t, std::int64_t);
template void slice_backward(const float*, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                             std::int64_t);
template void slice_backward(const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                             std::int64_t);
template void fill(float*, float, std::int64_t, std::int64_t, std::int64_t);
template void fill(bf16*, float, std::int64_t, std::int64_t, std::int64_t);
template void cast(const float*, float*, std::int64_t, std::int64_t, std::int64_t);
template void cast(const float*, bf16*, std::int64_t, std::int64_t, std::int64_t);
template void cast(const bf16*, float*, std::int64_t, std::int64_t, std::int64_t);
template void cast(const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
