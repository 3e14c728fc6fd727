#include <algorithm>
#include <vector>

#include "kernels/cuda/map.cuh"
#include "kernels/cuda/move.h"

namespace overtake::cuda {

namespace {

using namespace access;

constexpr int kThreads = 256;           // eight blocks fill an SM
constexpr int kUnits = 4;               // copied by a thread, all in flight
constexpr std::size_t kMaxCopies = 64;  // of one launch: what its arguments hold

// A block of rows copied from one pitch to another; all in units of the copy's word.
struct RowCopy {
  const void* from;
  void* to;
  std::int64_t from_pitch, to_pitch;
  Divisor row;          // units of a row
  std::uint32_t units;  // of all rows
};

struct RowCopies {
  RowCopy at[kMaxCopies];
};

// blockIdx.y is the copy.
template <class Word>
__global__ void __launch_bounds__(kThreads) copy_rows_kernel(const __grid_constant__ RowCopies copies) {
  const RowCopy& copy = copies.at[blockIdx.y];
  const std::uint32_t first = blockIdx.x * (kThreads * kUnits) + threadIdx.x;
  Word held[kUnits];
#pragma unroll
  for (int k = 0; k < kUnits; ++k) {
    const std::uint32_t index = first + k * kThreads;
    if (index >= copy.units) continue;
    const auto [row, unit] = copy.row.divide(index);
    held[k] = static_cast<const Word*>(copy.from)[row * copy.from_pitch + unit];
  }
#pragma unroll
  for (int k = 0; k < kUnits; ++k) {
    const std::uint32_t index = first + k * kThreads;
    if (index >= copy.units) continue;
    const auto [row, unit] = copy.row.divide(index);
    static_cast<Word*>(copy.to)[row * copy.to_pitch + unit] = held[k];
  }
}

// to [outer, row] = from [outer, size] at `offset`, 0 elsewhere; in units of the word.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    place_rows_kernel(const Word* from, Word* to, Divisor row, std::uint32_t units, std::uint32_t offset,
                      std::uint32_t size) {
  const std::uint32_t first = blockIdx.x * (kThreads * kUnits) + threadIdx.x;
  Word held[kUnits];
#pragma unroll
  for (int k = 0; k < kUnits; ++k) {
    const std::uint32_t index = first + k * kThreads;
    held[k] = Word{};
    if (index >= units) continue;
    const auto [outer, unit] = row.divide(index);
    // Before the offset the difference is huge.
    if (unit - offset < size) held[k] = from[static_cast<std::int64_t>(outer) * size + (unit - offset)];
  }
#pragma unroll
  for (int k = 0; k < kUnits; ++k) {
    const std::uint32_t index = first + k * kThreads;
    if (index < units) to[index] = held[k];
  }
}

// Calls body with a value of the largest word (16, 4 or 2 bytes) that divides `bytes`.
template <class Body>
void with_word(std::int64_t bytes, const Body& body) {
  if (bytes % 16 == 0) {
    body(uint4{});
  } else if (bytes % 4 == 0) {
    body(std::uint32_t{});
  } else {
    body(std::uint16_t{});
  }
}

// The number that divides all of them, as far as with_word cares.
constexpr std::int64_t low_bits(std::int64_t a, std::int64_t b) { return a | b; }

std::uint32_t checked(std::int64_t units) {
  require(units < (std::int64_t{1} << 31), "move: more than 2^31 words");
  return static_cast<std::uint32_t>(units);
}

// A copy in bytes; pitches and rows are multiples of the word.
struct ByteCopy {
  const std::byte* from;
  std::byte* to;
  std::int64_t from_pitch, to_pitch, row;
};

// All copies, of `outer` rows each, with words that divide `granule`.
void copy_rows(cudaStream_t stream, const char* name, std::span<const ByteCopy> all, std::int64_t outer,
               std::int64_t granule) {
  with_word(granule, [&](auto word) {
    using Word = decltype(word);
    constexpr auto bytes = static_cast<std::int64_t>(sizeof(Word));
    RowCopies copies{};
    unsigned count = 0;
    std::int64_t most = 0;
    const auto launch = [&] {
      if (most == 0) return;
      const dim3 grid(grid_blocks(name, parts(most, kThreads * kUnits)), count);
      copy_rows_kernel<Word><<<grid, kThreads, 0, stream>>>(copies);
      check_launch(name);
      count = 0;
      most = 0;
    };
    for (const ByteCopy& c : all) {
      if (c.row == 0) continue;
      const std::int64_t units = outer * (c.row / bytes);
      copies.at[count++] = {
          c.from, c.to, c.from_pitch / bytes, c.to_pitch / bytes, Divisor(checked(c.row / bytes)), checked(units)};
      most = std::max(most, units);
      if (count == kMaxCopies) launch();
    }
    launch();
  });
}

// Matrices side by side in the rows of a wider one; all in bytes, of which an element of the extents has so many.
struct SideBySide {
  SideBySide(std::span<const std::int64_t> extents, std::int64_t bytes, const ConcatPitches& elements,
             std::int64_t element) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const std::int64_t own = i < elements.parts.size() ? elements.parts[i] * element : 0;
      offsets.push_back(pitch);
      rows.push_back(extents[i] * bytes);
      pitches.push_back(own == 0 ? rows[i] : own);
      pitch += rows[i];
      granule = low_bits(granule, low_bits(rows[i], pitches[i]));
    }
    if (elements.whole != 0) pitch = elements.whole * element;
    granule = low_bits(granule, pitch);
  }
  std::vector<std::int64_t> offsets, rows, pitches;
  std::int64_t pitch = 0, granule = 0;  // pitch: of the wider one
};

struct Same {
  __device__ float operator()(float x) const { return x; }
};

template <class T>
__global__ void __launch_bounds__(kMapThreads) fill_kernel(T* out, T value, std::int64_t count) {
  constexpr int width = kPackWidth<T>, step = kMapThreads * width;
  const std::int64_t tile = std::int64_t{blockIdx.x} * (step * kMapPacks);
  if (tile + step * kMapPacks <= count) {
    Pack<T, width> pack;
#pragma unroll
    for (int i = 0; i < width; ++i) pack.at[i] = value;
#pragma unroll
    for (int k = 0; k < kMapPacks; ++k) store_pack(out + tile + threadIdx.x * width + k * step, pack);
  } else {
    for (std::int64_t i = tile + threadIdx.x; i < count; i += kMapThreads) out[i] = value;
  }
}

}  // namespace

template <class T>
void concat(cudaStream_t stream, std::span<const T* const> in, std::span<const std::int64_t> extents,
            std::int64_t inner, T* out, std::int64_t outer, const ConcatPitches& pitches) {
  require_aligned("concat", {out});
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  const SideBySide sides(extents, inner * bytes, pitches, bytes);
  std::vector<ByteCopy> copies;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i] == nullptr) continue;
    require_aligned("concat", {in[i]});
    copies.push_back({reinterpret_cast<const std::byte*>(in[i]), reinterpret_cast<std::byte*>(out) + sides.offsets[i],
                      sides.pitches[i], sides.pitch, sides.rows[i]});
  }
  copy_rows(stream, "concat", copies, outer, sides.granule);
}

template <class T>
void split(cudaStream_t stream, const T* x, std::span<T* const> out, std::span<const std::int64_t> extents,
           std::int64_t inner, std::int64_t outer, const ConcatPitches& pitches) {
  require_aligned("split", {x});
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  const SideBySide sides(extents, inner * bytes, pitches, bytes);
  std::vector<ByteCopy> copies;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] == nullptr) continue;
    require_aligned("split", {out[i]});
    copies.push_back({reinterpret_cast<const std::byte*>(x) + sides.offsets[i], reinterpret_cast<std::byte*>(out[i]),
                      sides.pitch, sides.pitches[i], sides.rows[i]});
  }
  copy_rows(stream, "split", copies, outer, sides.granule);
}

template <class T>
void slice(cudaStream_t stream, const T* x, T* y, std::int64_t axis, std::int64_t offset, std::int64_t extent,
           std::int64_t inner, std::int64_t outer) {
  require_aligned("slice", {x, y});
  const std::int64_t bytes = inner * static_cast<std::int64_t>(sizeof(T));
  const ByteCopy copy{reinterpret_cast<const std::byte*>(x) + offset * bytes, reinterpret_cast<std::byte*>(y),
                      axis * bytes, extent * bytes, extent * bytes};
  copy_rows(stream, "slice", {&copy, 1}, outer, low_bits(axis * bytes, low_bits(offset * bytes, extent * bytes)));
}

template <class T>
void slice_backward(cudaStream_t stream, const T* dy, T* dx, std::int64_t axis, std::int64_t offset,
                    std::int64_t extent, std::int64_t inner, std::int64_t outer) {
  require_aligned("slice_backward", {dy, dx});
  const std::int64_t step = inner * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t granule = low_bits(axis * step, low_bits(offset * step, extent * step));
  with_word(granule, [&](auto word) {
    using Word = decltype(word);
    constexpr auto bytes = static_cast<std::int64_t>(sizeof(Word));
    const std::uint32_t units = checked(outer * (axis * step / bytes));
    if (units == 0) return;
    const unsigned blocks = grid_blocks("slice_backward", parts(units, kThreads * kUnits));
    place_rows_kernel<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<const Word*>(dy), reinterpret_cast<Word*>(dx),
                                                       Divisor(checked(axis * step / bytes)), units,
                                                       checked(offset * step / bytes), checked(extent * step / bytes));
    check_launch("slice_backward");
  });
}

template <class T>
void fill(cudaStream_t stream, T* out, float value, std::int64_t count) {
  if (count == 0) return;
  require_aligned("fill", {out});
  const unsigned blocks = grid_blocks("fill", parts(count, kMapThreads * kMapPacks * kPackWidth<T>));
  fill_kernel<<<blocks, kMapThreads, 0, stream>>>(out, from_float<T>(value), count);
  check_launch("fill");
}

template <class From, class To>
void cast(cudaStream_t stream, const From* x, To* y, std::int64_t count) {
  map(stream, "cast", Same{}, x, y, count);
}

void copy(cudaStream_t stream, const void* x, void* y, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  if (cudaMemcpyAsync(y, x, size, cudaMemcpyDeviceToDevice, stream) != cudaSuccess) check_launch("copy");
}

template void concat(cudaStream_t, std::span<const float* const>, std::span<const std::int64_t>, std::int64_t, float*,
                     std::int64_t, const ConcatPitches&);
template void concat(cudaStream_t, std::span<const bf16* const>, std::span<const std::int64_t>, std::int64_t, bf16*,
                     std::int64_t, const ConcatPitches&);
template void concat(cudaStream_t, std::span<const std::int32_t* const>, std::span<const std::int64_t>, std::int64_t,
                     std::int32_t*, std::int64_t, const ConcatPitches&);
template void split(cudaStream_t, const float*, std::span<float* const>, std::span<const std::int64_t>, std::int64_t,
                    std::int64_t, const ConcatPitches&);
template void split(cudaStream_t, const bf16*, std::span<bf16* const>, std::span<const std::int64_t>, std::int64_t,
                    std::int64_t, const ConcatPitches&);
template void split(cudaStream_t, const std::int32_t*, std::span<std::int32_t* const>, std::span<const std::int64_t>,
                    std::int64_t, std::int64_t, const ConcatPitches&);
template void slice(cudaStream_t, const float*, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                    std::int64_t);
template void slice(cudaStream_t, const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                    std::int64_t);
template void slice(cudaStream_t, const std::int32_t*, std::int32_t*, std::int64_t, std::int64_t, std::int64_t,
                    std::int64_t, std::int64_t);
template void slice_backward(cudaStream_t, const float*, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                             std::int64_t);
template void slice_backward(cudaStream_t, const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                             std::int64_t);
template void fill(cudaStream_t, float*, float, std::int64_t);
template void fill(cudaStream_t, bf16*, float, std::int64_t);
template void cast(cudaStream_t, const float*, float*, std::int64_t);
template void cast(cudaStream_t, const float*, bf16*, std::int64_t);
template void cast(cudaStream_t, const bf16*, float*, std::int64_t);
template void cast(cudaStream_t, const bf16*, bf16*, std::int64_t);

}  // namespace overtake::cuda
