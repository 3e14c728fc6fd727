#include "kernels/cuda/depthwise.h"

#include "kernels/cuda/depthwise_tiles.cuh"

namespace overtake::cuda {
namespace {

using namespace depthwise_detail;

// Channels of a thread: the sums of its tile, a row of pixels and a row of weights must fit its registers.
constexpr int kVector = 4;
// Blocks wanted: enough for several on each of 132 multiprocessors; each goes through many tiles with its weights.
constexpr std::int64_t kBlocks = 132 * 6;
// Floats from one tap's weights to the next: multiples of 16 bytes, and neighbours in other banks.
constexpr int kTapPitch = kMostAcross * kVector + 4;

// Which of the source's rows (columns) a tile of `kTile` rows (columns) of the target reads, and with which tap.
// Forward: the source is x and target pixel p reads p * S - pad + tap. Transposed: the source is dy and target pixel p
// reads (p + pad - tap) / S where that is whole; tiles are placed so that p + pad is a multiple of S for their first
// pixel.
template <int K, int S, bool transposed, int kTile>
struct Reach {
  static constexpr int kBefore = transposed ? (K - 1) / S : 0;
  static constexpr int kCount = transposed ? (kTile - 1) / S + kBefore + 1 : (kTile - 1) * S + K;

  __device__ static int first(int target, int pad) {
    return transposed ? (target + pad) / S - kBefore : target * S - pad;
  }
  // The tap between the i-th of the source and the p-th of the tile; there is none if it is not in [0, K).
  __device__ static constexpr int tap(int i, int p) { return transposed ? p - S * (i - kBefore) : i - p * S; }
};

// A row of weights: K taps, kTapPitch floats apart.
template <int K>
__device__ inline void load_taps(const float* from, float (&taps)[K][kVector]) {
#pragma unroll
  for (int s = 0; s < K; ++s) {
    const float4 four = *reinterpret_cast<const float4*>(from + s * kTapPitch);
    taps[s][0] = four.x;
    taps[s][1] = four.y;
    taps[s][2] = four.z;
    taps[s][3] = four.w;
  }
}

// Keeps the compiler from widening a pack before it is needed, which takes twice the registers.
template <class T, int V>
__device__ inline void keep_packed(Packed<T, V>& packed) {
  if constexpr (sizeof(T) == 2) asm volatile("" : "+r"(packed.word.x), "+r"(packed.word.y));
}

// Rows of the source that a thread has on their way at a time: as many as fit the registers beside sums and weights.
template <class T, int K, int S, bool transposed>
constexpr int rows_ahead() {
  constexpr int budget = K == 3 ? 48 : K == 5 ? 24 : 0;  // registers
  constexpr int row = Reach<K, S, transposed, kTileColumns>::kCount * kVector * static_cast<int>(sizeof(T)) / 4;
  return std::clamp(budget / row, 1, Reach<K, S, transposed, kTileRows>::kCount);
}

// to: the weights of `count` channels, [K * K][kTapPitch], from [count][K * K].
template <int K, class T>
__device__ inline void spread_weights(const T* from, int count, float (&to)[K * K][kTapPitch]) {
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll 4
  for (int i = thread * kVector; i < count * K * K; i += static_cast<int>(blockDim.x * blockDim.y) * kVector) {
    float values[kVector];
    unpack(load_packed<kVector>(from + i), values);
#pragma unroll
    for (int v = 0; v < kVector; ++v) to[(i + v) % (K * K)][(i + v) / (K * K)] = values[v];
  }
}

// grid: (blocks along tiles, tiles of channels). weight: [channels][K][K], bias: [channels] or null.
template <class T, int K, int S, bool transposed>
__global__ void __launch_bounds__(kThreads, K == 3 && S == 2 && transposed ? 3 : 2)
    tiles_kernel(const PixelTiles tiles, const Plane source, const Plane target, int pad_top, int pad_left,
                 const T* __restrict__ from, const T* __restrict__ weight, const float* __restrict__ bias,
                 T* __restrict__ to) {
  constexpr int V = kVector, kAhead = rows_ahead<T, K, S, transposed>();
  // With stride 1, the weights of a tile's first row are those of its second row one row of the source later.
  constexpr int kHeld = S == 1 && K <= 5 ? 2 : 1;
  using Rows = Reach<K, S, transposed, kTileRows>;
  using Columns = Reach<K, S, transposed, kTileColumns>;
  __shared__ __align__(16) float weights[K * K][kTapPitch];
  const int block_channels = static_cast<int>(blockDim.x) * V;
  const int first_channel = static_cast<int>(blockIdx.y) * block_channels;
  spread_weights<K>(weight + first_channel * K * K, min(block_channels, source.channels - first_channel), weights);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) * V, channel = first_channel + lane;
  if (channel >= source.channels) return;

  float start[V];
  fill(start, 0.0f);
  if (bias != nullptr) load_columns(bias + channel, start);
  for (std::uint32_t tile = blockIdx.x * blockDim.y + threadIdx.y; tile < tiles.count; tile += gridDim.x * blockDim.y) {
    const PixelTiles::Place place = tiles.place(tile);
    const T* image = from + source.image(place.image) + channel;
    const int top = Rows::first(place.row, pad_top), left = Columns::first(place.column, pad_left);
    const unsigned inside = source.columns_inside<Columns::kCount>(left);
    float sums[kTileRows][kTileColumns][V];
#pragma unroll
    for (int p = 0; p < kTileRows; ++p) {
#pragma unroll
      for (int q = 0; q < kTileColumns; ++q) {
#pragma unroll
        for (int v = 0; v < V; ++v) sums[p][q][v] = start[v];
      }
    }
    float taps[kHeld][K][V];  // the rows of weights in use
    Packed<T, V> rows[kAhead][Columns::kCount];
#pragma unroll
    for (int i = 0; i < Rows::kCount; ++i) {
      if constexpr (kAhead > 1) {
#pragma unroll
        for (int ahead = 0; i % kAhead == 0 && ahead < kAhead && i + ahead < Rows::kCount; ++ahead) {
          const int y = top + i + ahead;
          source.load_row(image, y, left, source.has_row(y) ? inside : 0u, rows[ahead]);
        }
      }
      if constexpr (kHeld == 2) {
        if (i < K) load_taps(&weights[Rows::tap(i, 0) * K][lane], taps[i % 2]);
      }
      // The branch also bounds how many loads the compiler puts ahead of their use: the registers hold few rows.
      if (!source.has_row(top + i)) continue;
      if constexpr (kAhead == 1) source.load_row(image, top + i, left, inside, rows[0]);
      Packed<T, V>(&row)[Columns::kCount] = rows[i % kAhead];
#pragma unroll
      for (int p = 0; p < kTileRows; ++p) {
        const int r = Rows::tap(i, p);
        if (r < 0 || r >= K) continue;
        if constexpr (kHeld == 1) load_taps(&weights[r * K][lane], taps[0]);
        const float(&with)[K][V] = taps[kHeld == 2 ? (i + p) % 2 : 0];
#pragma unroll
        for (int j = 0; j < Columns::kCount; ++j) {
          keep_packed(row[j]);
          float values[V];
          unpack(row[j], values);
#pragma unroll
          for (int q = 0; q < kTileColumns; ++q) {
            const int s = Columns::tap(j, q);
            if (s < 0 || s >= K) continue;
#pragma unroll
            for (int v = 0; v < V; ++v) sums[p][q][v] = fmaf(values[v], with[s][v], sums[p][q][v]);
          }
        }
      }
    }
    T* out = to + target.image(place.image) + channel;
#pragma unroll
    for (int p = 0; p < kTileRows; ++p) {
#pragma unroll
      for (int q = 0; q < kTileColumns; ++q) {
        const int y = place.row + p, x = place.column + q;
        if (target.has(y, x)) store_values(out + target.pixel(y, x), sums[p][q]);
      }
    }
  }
}

template <bool transposed, class T>
void launch_tiles(cudaStream_t stream, const char* name, const ConvShape& s, const T* from, const T* weight,
                  const float* bias, T* to) {
  const Plane x(s.in_h, s.in_w, s.groups), y(s.out_h, s.out_w, s.groups);
  const Plane source = transposed ? y : x, target = transposed ? x : y;
  const PixelTiles tiles(s.batch, target.rows, target.columns, transposed ? s.pad_top % s.stride_h : 0,
                         transposed ? s.pad_left % s.stride_w : 0);
  const BlockShape block(s.groups, kVector, kThreads);
  // As many rounds for each block.
  const std::int64_t rows = parts(tiles.count, block.down), rounds = parts(rows * block.channel_tiles, kBlocks);
  const std::int64_t along = parts(rows, rounds);
  const dim3 grid(grid_blocks(name, along), block.channel_tiles), threads(block.across, block.down);
  with_window(s, [&](auto kernel, auto stride) {
    tiles_kernel<T, kernel, stride, transposed><<<grid, threads, 0, stream>>>(
        tiles, source, target, static_cast<int>(s.pad_top), static_cast<int>(s.pad_left), from, weight, bias, to);
  });
  check_launch(name);
}

// Any window, a thread per element of the target. pixel: of all images; grid: (pixels, blocks of channels).
struct Window {
  int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;

  explicit Window(const ConvShape& s)
      : kernel_h(static_cast<int>(s.kernel_h)),
        kernel_w(static_cast<int>(s.kernel_w)),
        stride_h(static_cast<int>(s.stride_h)),
        stride_w(static_cast<int>(s.stride_w)),
        dilation_h(static_cast<int>(s.dilation_h)),
        dilation_w(static_cast<int>(s.dilation_w)),
        pad_top(static_cast<int>(s.pad_top)),
        pad_left(static_cast<int>(s.pad_left)) {}
};

// The place in the source that a tap of a target's pixel reads, along one axis; below 0 if there is none.
template <bool transposed>
__device__ inline int source_place(int target, int tap, int stride, int dilation, int pad) {
  if (!transposed) return target * stride - pad + tap * dilation;
  const int reach = target + pad - tap * dilation;
  return reach >= 0 && reach % stride == 0 ? reach / stride : -1;
}

template <bool transposed, class T>
__global__ void __launch_bounds__(kThreads)
    any_window_kernel(const Window window, const Plane source, const Plane target, const T* __restrict__ from,
                      const T* __restrict__ weight, const float* __restrict__ bias, T* __restrict__ to) {
  const int channel = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (channel >= source.channels) return;
  const int pixels = target.rows * target.columns, pixel = static_cast<int>(blockIdx.x) % pixels;
  const std::int64_t image = static_cast<int>(blockIdx.x) / pixels;
  const int row = pixel / target.columns, column = pixel % target.columns;
  const T* x = from + source.image(image) + channel;
  const T* w = weight + static_cast<std::int64_t>(channel) * window.kernel_h * window.kernel_w;
  float sum = bias != nullptr ? bias[channel] : 0.0f;
  for (int r = 0; r < window.kernel_h; ++r) {
    const int i = source_place<transposed>(row, r, window.stride_h, window.dilation_h, window.pad_top);
    for (int s = 0; s < window.kernel_w; ++s) {
      const int j = source_place<transposed>(column, s, window.stride_w, window.dilation_w, window.pad_left);
      if (!source.has(i, j)) continue;
      sum = fmaf(access::widen(x[source.pixel(i, j)]), access::widen(w[r * window.kernel_w + s]), sum);
    }
  }
  to[target.image(image) + target.pixel(row, column) + channel] = access::narrow<T>(sum);
}

template <bool transposed, class T>
void launch(cudaStream_t stream, const char* name, const ConvShape& s, const T* from, const T* weight,
            const float* bias, T* to) {
  check(s);
  require_aligned(name, {from, weight, bias, to});
  if (s.batch == 0) return;
  if (has_fast_path(s, kVector)) return launch_tiles<transposed>(stream, name, s, from, weight, bias, to);
  const Plane x(s.in_h, s.in_w, s.groups), y(s.out_h, s.out_w, s.groups);
  const Plane source = transposed ? y : x, target = transposed ? x : y;
  const int threads = static_cast<int>(std::min<std::int64_t>(kThreads, parts(s.groups, 32) * 32));
  const dim3 grid(grid_blocks(name, s.batch * target.rows * target.columns),
                  grid_blocks(name, parts(s.groups, threads)));
  any_window_kernel<transposed><<<grid, threads, 0, stream>>>(Window(s), source, target, from, weight, bias, to);
  check_launch(name);
}

}  // namespace

template <class T>
void depthwise_forward(cudaStream_t stream, const ConvShape& shape, const T* x, const T* weight, const float* bias,
                       T* y) {
  launch<false>(stream, "depthwise_forward", shape, x, weight, bias, y);
}

template <class T>
void depthwise_input_grad(cudaStream_t stream, const ConvShape& shape, const T* dy, const T* weight, T* dx) {
  launch<true>(stream, "depthwise_input_grad", shape, dy, weight, nullptr, dx);
}

template void depthwise_forward(cudaStream_t, const ConvShape&, const float*, const float*, const float*, float*);
template void depthwise_forward(cudaStream_t, const ConvShape&, const bf16*, const bf16*, const float*, bf16*);
template void depthwise_input_grad(cudaStream_t, const ConvShape&, const float*, const float*, float*);
template void depthwise_input_grad(cudaStream_t, const ConvShape&, const bf16*, const bf16*, bf16*);

}  // namespace overtake::cuda
