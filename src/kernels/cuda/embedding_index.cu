// The positions of each token by a stable sort of (token, position) pairs: counting sorts by eight bits of the token at
// a time, lowest first. Every step is integer arithmetic of fixed result.

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/launch.h"

namespace overtake::cuda {

namespace {

using namespace access;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kBits = 8, kDigits = 1 << kBits;  // a digit per thread
constexpr int kRounds = 8;                      // keys per thread
constexpr int kTile = kThreads * kRounds;       // keys per block
constexpr int kScanThreads = 1024;
static_assert(kDigits == kThreads);

// What a pass reads: the tokens themselves in the first, sorted pairs after that.
struct Keys {
  const std::int32_t* tokens;  // null after the first pass
  const std::uint32_t* keys;
  const std::int32_t* positions;
  std::uint32_t vocabulary;
  std::int32_t padding;

  // Bad ids, negative ones too, and padding get the key `vocabulary` and come last.
  __device__ std::uint32_t key(std::int32_t i) const {
    if (tokens == nullptr) return keys[i];
    return tokens[i] == padding ? vocabulary : min(static_cast<std::uint32_t>(tokens[i]), vocabulary);
  }
  __device__ std::int32_t position(std::int32_t i) const { return tokens != nullptr ? i : positions[i]; }
};

// counts [kDigits][blocks]: how often each digit occurs in each tile.
__global__ void __launch_bounds__(kThreads) count_kernel(Keys in, std::int32_t n, int shift, std::uint32_t* counts) {
  __shared__ std::uint32_t histogram[kDigits];
  histogram[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t tile = std::int64_t{blockIdx.x} * kTile;
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const std::int64_t i = tile + r * kThreads + threadIdx.x;
    if (i < n) atomicAdd(&histogram[in.key(static_cast<std::int32_t>(i)) >> shift & (kDigits - 1)], 1u);
  }
  __syncthreads();
  counts[threadIdx.x * gridDim.x + blockIdx.x] = histogram[threadIdx.x];
}

// counts [count] become the sums of all before them. One block; each thread has a segment.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(std::uint32_t* counts, std::uint32_t count) {
  __shared__ std::uint32_t sums[kScanThreads];
  const std::uint32_t segment = (count + kScanThreads - 1) / kScanThreads;
  const std::uint32_t begin = min(count, threadIdx.x * segment), end = min(count, begin + segment);
  std::uint32_t sum = 0;
  for (std::uint32_t i = begin; i < end; ++i) sum += counts[i];
  sums[threadIdx.x] = sum;
  for (int distance = 1; distance < kScanThreads; distance *= 2) {
    __syncthreads();
    const std::uint32_t before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
  }
  std::uint32_t running = sums[threadIdx.x] - sum;
  for (std::uint32_t i = begin; i < end; ++i) {
    const std::uint32_t own = counts[i];
    counts[i] = running;
    running += own;
  }
}

// Moves each pair to starts[digit][block] plus its rank among the equal digits of the tile. A warp has 256 neighbours
// of the tile, 32 at a time, so that ranks follow the order of the keys.
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(Keys in, std::int32_t n, int shift, const std::uint32_t* starts, std::uint32_t* keys_out,
                   std::int32_t* positions_out) {
  __shared__ std::uint32_t next[kWarps][kDigits];  // first counts, then where each warp's next key of a digit goes
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int w = 0; w < kWarps; ++w) next[w][threadIdx.x] = 0;
  __syncthreads();

  const std::int64_t first = std::int64_t{blockIdx.x} * kTile + warp * (32 * kRounds) + lane;
  std::uint32_t keys[kRounds], ranks[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const std::int64_t i = first + r * 32;
    keys[r] = i < n ? in.key(static_cast<std::int32_t>(i)) : 0;
    // Lanes past the end keep to themselves under a digit that does not exist.
    const std::uint32_t digit = i < n ? keys[r] >> shift & (kDigits - 1) : kDigits;
    const unsigned equal = __match_any_sync(0xffffffffu, digit);
    const unsigned before = equal & ((1u << lane) - 1);
    ranks[r] = i < n ? next[warp][digit] + __popc(before) : 0;
    __syncwarp();  // all have read before one counts
    if (i < n && before == 0) next[warp][digit] += __popc(equal);
    __syncwarp();
  }
  __syncthreads();

  std::uint32_t running = starts[threadIdx.x * gridDim.x + blockIdx.x];
  for (int w = 0; w < kWarps; ++w) {
    const std::uint32_t own = next[w][threadIdx.x];
    next[w][threadIdx.x] = running;
    running += own;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const std::int64_t i = first + r * 32;
    if (i >= n) continue;
    const std::uint32_t to = next[warp][keys[r] >> shift & (kDigits - 1)] + ranks[r];
    keys_out[to] = keys[r];
    positions_out[to] = in.position(static_cast<std::int32_t>(i));
  }
}

// offsets[v] = how many of the sorted keys [n] are below v, for v <= vocabulary.
__global__ void __launch_bounds__(kThreads)
    offsets_kernel(const std::uint32_t* keys, std::int32_t n, std::int64_t vocabulary, std::int32_t* offsets) {
  const std::int64_t v = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (v > vocabulary) return;
  std::int32_t low = 0, high = n;  // keys before low are below v, those from high on are not
  while (low < high) {
    const std::int32_t middle = low + (high - low) / 2;
    if (keys[middle] < v) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  offsets[v] = low;
}

// The scratch: two arrays of keys, one of positions (the other is the result), counts; each at a 16-byte boundary.
struct Scratch {
  std::int64_t blocks, array;  // tiles; bytes of an array of n numbers
  Scratch(std::int64_t n) : blocks(parts(n, kTile)), array(parts(n * 4, 16) * 16) {}
  std::int64_t bytes() const { return 3 * array + kDigits * blocks * 4; }
};

}  // namespace

std::size_t embedding_index_scratch_bytes(std::int64_t n, std::int64_t) {
  return static_cast<std::size_t>(Scratch(n).bytes());
}

void embedding_index(cudaStream_t stream, const std::int32_t* tokens, std::int64_t n, std::int64_t vocabulary,
                     std::int32_t padding, std::int32_t* offsets, std::int32_t* positions, void* scratch) {
  constexpr const char* name = "embedding_index";
  require(n < (std::int64_t{1} << 31) && vocabulary < (std::int64_t{1} << 31), "embedding_index: too many numbers");
  const auto count = static_cast<std::int32_t>(n);
  const Scratch sizes(n);
  auto* bytes = static_cast<std::byte*>(scratch);
  std::uint32_t* keys[2] = {reinterpret_cast<std::uint32_t*>(bytes),
                            reinterpret_cast<std::uint32_t*>(bytes + sizes.array)};
  std::int32_t* places[2] = {positions, reinterpret_cast<std::int32_t*>(bytes + 2 * sizes.array)};
  auto* counts = reinterpret_cast<std::uint32_t*>(bytes + 3 * sizes.array);
  const int key_bits = std::bit_width(static_cast<std::uint64_t>(vocabulary));  // of the keys 0 to vocabulary
  const int passes = (key_bits + kBits - 1) / kBits;

  Keys in{tokens, nullptr, nullptr, static_cast<std::uint32_t>(vocabulary), padding};
  for (int pass = 0; pass < passes && n > 0; ++pass) {
    const int to = (passes - 1 - pass) % 2;  // so that the last pass writes the result
    const unsigned blocks = grid_blocks(name, sizes.blocks);
    count_kernel<<<blocks, kThreads, 0, stream>>>(in, count, pass * kBits, counts);
    check_launch(name);
    scan_kernel<<<1, kScanThreads, 0, stream>>>(counts, kDigits * blocks);
    check_launch(name);
    scatter_kernel<<<blocks, kThreads, 0, stream>>>(in, count, pass * kBits, counts, keys[to], places[to]);
    check_launch(name);
    in = Keys{nullptr, keys[to], places[to], in.vocabulary, padding};
  }
  offsets_kernel<<<grid_blocks(name, parts(vocabulary + 1, kThreads)), kThreads, 0, stream>>>(keys[0], count,
                                                                                              vocabulary, offsets);
  check_launch(name);
}

}  // namespace overtake::cuda
