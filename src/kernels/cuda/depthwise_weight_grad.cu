#include "kernels/cuda/depthwise.h"
#include "kernels/cuda/depthwise_tiles.cuh"

namespace overtake::cuda {
namespace {

using namespace depthwise_detail;

// Multiprocessors that the sum is cut for. A constant: the order of a sum must not depend on the device.
constexpr std::int64_t kMultiprocessors = 132;
// Bytes of channels side by side in a block: a whole cache line.
constexpr std::int64_t kBytesAcross = 128;
// Pixels of a thread below which another chunk is not worth its partial sums, where every tap is a block of its own.
constexpr std::int64_t kLeastPixels = 64;
constexpr int kAnyAcross = 32, kAnyDown = 8;
// Outputs of a block that adds up chunks, how many of them a thread takes, and the chunks it has on their way at a
// time.
constexpr int kCombineOutputs = 32, kCombineVector = 4, kChunksInFlight = 8;

// Channels of a thread on the fast path: the sums of a row of the window and what it meets must fit the registers.
template <class T>
int vector_of(const ConvShape& s) {
  if (sizeof(T) == 2 && s.kernel_h == 3 && s.groups % 8 == 0) return 8;
  return s.groups % 4 == 0 ? 4 : 2;
}

// Blocks of kThreads that a multiprocessor holds, given the channels of a thread.
template <class T>
constexpr int resident(int vector, std::int64_t kernel) {
  return vector * sizeof(T) == 16 || kernel == 7 ? 2 : 3;
}

// Neighbouring pixels of dy that a thread has at a time. Seven suit the widths 7 * 2^n of most networks.
int pixels_of(const ConvShape& s) { return s.stride_h == 1 && s.kernel_h <= 5 && s.out_w % 7 == 0 ? 7 : 4; }

// How the sum is cut; a function of the shape and the type alone. Partial sums are [tiles][chunks][line]; the bias's
// gradient is one more tap.
struct Cut {
  bool fast;
  int vector, pixels;     // of a thread
  unsigned across, down;  // packs of channels, and segments of rows of dy, of a block
  std::int64_t tiles;     // of channels
  std::int64_t chunks, line;
  std::int64_t segments, segments_per_chunk;  // of `pixels` pixels each, of all images

  template <class T>
  static Cut of(const ConvShape& s) {
    Cut cut{};
    const std::int64_t taps = s.kernel_h * s.kernel_w + 1;
    cut.vector = vector_of<T>(s);
    cut.fast = has_fast_path(s, cut.vector);
    if (cut.fast) {
      const int bytes = cut.vector * static_cast<int>(sizeof(T));
      const std::int64_t packs = s.groups / cut.vector, wanted = kMultiprocessors * resident<T>(cut.vector, s.kernel_h);
      cut.tiles = parts(packs, kBytesAcross / bytes);
      cut.across = static_cast<unsigned>(parts(packs, cut.tiles));
      cut.down = std::min(64u, kThreads / (cut.across * static_cast<unsigned>(s.kernel_h)));
      cut.pixels = pixels_of(s);
      cut.segments = s.batch * s.out_h * parts(s.out_w, cut.pixels);
      require(cut.segments < (std::int64_t{1} << 30), "depthwise: more than 2^30 segments");
      // As many rounds for each block.
      const std::int64_t rounds = std::max<std::int64_t>(parts(cut.segments * cut.tiles, wanted * cut.down), 1);
      cut.segments_per_chunk = rounds * cut.down;
      cut.chunks = std::max<std::int64_t>(parts(cut.segments, cut.segments_per_chunk), 1);
      cut.line = cut.across * cut.vector * taps;
    } else {
      const std::int64_t blocks = parts(s.groups, kAnyAcross) * taps;
      const std::int64_t most = s.batch * s.out_h * s.out_w / (kAnyDown * kLeastPixels);
      cut.tiles = 1;
      cut.chunks = std::clamp<std::int64_t>(8 * kMultiprocessors / blocks, 1, std::max<std::int64_t>(most, 1));
      cut.line = parts(s.groups * taps, kCombineVector) * kCombineVector;
    }
    return cut;
  }

  std::int64_t partials() const { return tiles * chunks * line; }
};

// Rows of dy cut in segments of neighbouring pixels.
struct Segments {
  Divisor per_row, rows;
  std::uint32_t count, per_chunk;
};

// grid: (chunks, tiles of channels); block: (packs of channels, rows of the window, segments at a time). A thread holds
// the sums of one row of the window: each segment of dy meets the one row of x that this row of the window sees.
// partials: [tiles][chunks][K][V][K][packs], then [V][packs] for the bias's gradient. Shared memory: a float for every
// sum of every thread, and for those of the bias.
template <class T, int V, int K, int S, int Q, bool wants_bias>
__global__ void __launch_bounds__(kThreads, resident<T>(V, K))
    segment_sums_kernel(const Segments segments, const Plane x_plane, const Plane y_plane, int pad_top, int pad_left,
                        const T* __restrict__ x, const T* __restrict__ dy, float* partials) {
  constexpr int kColumns = (Q - 1) * S + K;
  const int row_of_window = static_cast<int>(threadIdx.y);
  const int channel = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * V;
  const bool adds_bias = wants_bias && row_of_window == 0;
  float sums[K][V] = {}, bias_sums[V] = {};
  const std::uint32_t begin = blockIdx.x * segments.per_chunk, end = min(begin + segments.per_chunk, segments.count);
  for (std::uint32_t at = begin + threadIdx.z; channel < x_plane.channels && at < end; at += blockDim.z) {
    const auto [line, place] = segments.per_row.divide(at);
    const auto [image, row] = segments.rows.divide(line);
    const int column = static_cast<int>(place) * Q, left = column * S - pad_left;
    const int x_row = static_cast<int>(row) * S - pad_top + row_of_window;
    const bool meets = x_plane.has_row(x_row);
    if (!meets && !adds_bias) continue;
    Packed<T, V> grads[Q], values[kColumns];
    y_plane.load_row(dy + y_plane.image(image) + channel, static_cast<int>(row), column,
                     y_plane.columns_inside<Q>(column), grads);
    x_plane.load_row(x + x_plane.image(image) + channel, x_row, left,
                     meets ? x_plane.columns_inside<kColumns>(left) : 0u, values);
    if (adds_bias) {
#pragma unroll
      for (int q = 0; q < Q; ++q) {
        float grad[V];
        unpack(grads[q], grad);
#pragma unroll
        for (int v = 0; v < V; ++v) bias_sums[v] += grad[v];
      }
    }
    float window[K][V];  // the values of x that a pixel of dy meets, value j at place j % K
#pragma unroll
    for (int q = 0; q < Q; ++q) {
#pragma unroll
      for (int j = q == 0 ? 0 : (q - 1) * S + K; j < q * S + K; ++j) unpack(values[j], window[j % K]);
      float grad[V];
      unpack(grads[q], grad);
#pragma unroll
      for (int s = 0; s < K; ++s) {
#pragma unroll
        for (int v = 0; v < V; ++v) sums[s][v] = fmaf(window[(q * S + s) % K][v], grad[v], sums[s][v]);
      }
    }
  }

  extern __shared__ float shared[];  // [K * V][segments][lanes], then [V][segments][packs]
  const int across = static_cast<int>(blockDim.x), down = static_cast<int>(blockDim.z), lanes = across * K;
  const int slot = static_cast<int>(threadIdx.z), lane = row_of_window * across + static_cast<int>(threadIdx.x);
  float* bias_shared = shared + K * V * down * lanes;
#pragma unroll
  for (int i = 0; i < K * V; ++i) shared[(i * down + slot) * lanes + lane] = sums[i / V][i % V];
  if (adds_bias) {
#pragma unroll
    for (int v = 0; v < V; ++v) bias_shared[(v * down + slot) * across + lane] = bias_sums[v];
  }
  __syncthreads();
  // The threads of a lane, added in order.
  float* partial =
      partials + (static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * across * V * (K * K + 1);
  for (int i = slot; i < K * V; i += down) {
    float sum = 0;
#pragma unroll 4
    for (int z = 0; z < down; ++z) sum += shared[(i * down + z) * lanes + lane];
    partial[i * lanes + lane] = sum;
  }
  for (int v = slot; adds_bias && v < V; v += down) {
    float sum = 0;
#pragma unroll 4
    for (int z = 0; z < down; ++z) sum += bias_shared[(v * down + z) * across + lane];
    partial[K * V * lanes + v * across + lane] = sum;
  }
}

// Any window. grid: (chunks of pixels, taps, blocks of channels), partials: [chunks][line] with line = taps * channels,
// rounded up to whole packs.
struct AnyWindow {
  int kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
};

template <class T>
__global__ void __launch_bounds__(kAnyAcross* kAnyDown)
    any_sums_kernel(const AnyWindow window, const Plane x_plane, const Plane y_plane, std::int64_t pixels, const T* x,
                    const T* dy, std::int64_t line, float* partials) {
  const int channel = static_cast<int>(blockIdx.z) * kAnyAcross + static_cast<int>(threadIdx.x);
  const int tap = static_cast<int>(blockIdx.y), r = tap / window.kernel_w, s = tap % window.kernel_w;
  const bool is_bias = blockIdx.y + 1 == gridDim.y;
  const std::int64_t begin = pixels * blockIdx.x / gridDim.x, end = pixels * (blockIdx.x + 1) / gridDim.x;
  float sum = 0;
  for (std::int64_t at = begin + threadIdx.y; channel < x_plane.channels && at < end; at += kAnyDown) {
    const std::int64_t image = at / (y_plane.rows * y_plane.columns);
    const int pixel = static_cast<int>(at % (y_plane.rows * y_plane.columns));
    const int i = pixel / y_plane.columns * window.stride_h - window.pad_top + r * window.dilation_h;
    const int j = pixel % y_plane.columns * window.stride_w - window.pad_left + s * window.dilation_w;
    const float grad = access::widen(dy[at * y_plane.channels + channel]);
    if (is_bias) {
      sum += grad;
    } else if (x_plane.has(i, j)) {
      sum = fmaf(access::widen(x[x_plane.image(image) + x_plane.pixel(i, j) + channel]), grad, sum);
    }
  }
  __shared__ float sums[kAnyDown][kAnyAcross];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || channel >= x_plane.channels) return;
  for (int y = 1; y < kAnyDown; ++y) sum += sums[y][threadIdx.x];
  partials[blockIdx.x * line + tap * static_cast<std::int64_t>(x_plane.channels) + channel] = sum;
}

// Which weight an element of a line of partial sums belongs to; tap = taps of the window for the bias's gradient.
struct WeightPlace {
  std::int64_t channel;
  int tap;
};

// Of segment_sums_kernel.
struct SegmentPlaces {
  int across, vector, kernel;

  __device__ WeightPlace operator()(int tile, std::int64_t index) const {
    const int lanes = across * kernel, rest = static_cast<int>(index), sum = rest / lanes, lane = rest % lanes;
    const bool is_bias = sum >= kernel * vector;
    const int bias_at = rest - kernel * vector * lanes;
    const int pack = is_bias ? bias_at % across : lane % across, v = is_bias ? bias_at / across : sum % vector;
    const std::int64_t channel = (static_cast<std::int64_t>(tile) * across + pack) * vector + v;
    return {channel, is_bias ? kernel * kernel : lane / across * kernel + sum / vector};
  }
};

// Of any_sums_kernel.
struct PlainPlaces {
  std::int64_t channels;

  __device__ WeightPlace operator()(int, std::int64_t index) const {
    return {index % channels, static_cast<int>(index / channels)};
  }
};

// grid: (blocks of a line, tiles). partials: [tiles][chunks][line]; dw: [channels][taps] and dbias: [channels], each if
// not null. A thread adds every 32nd chunk of four neighbours.
template <class Places>
__global__ void __launch_bounds__(kThreads)
    combine_taps_kernel(const Places places, const float* __restrict__ partials, int chunks, std::int64_t line,
                        int channels, int taps, float* dw, float* dbias) {
  constexpr int kLanes = kCombineOutputs / kCombineVector, kDown = kThreads / kLanes, kWarps = kThreads / 32;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes, tile = static_cast<int>(blockIdx.y);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kCombineOutputs;
  const std::int64_t from = first + lane * kCombineVector;
  double sum[kCombineVector] = {};
  if (from < line) {
    const float* at = partials + static_cast<std::int64_t>(tile) * chunks * line + from;
    for (int chunk = thread / kLanes; chunk < chunks; chunk += kChunksInFlight * kDown) {
      float4 fours[kChunksInFlight] = {};
#pragma unroll
      for (int i = 0; i < kChunksInFlight; ++i) {
        const int k = chunk + i * kDown;
        if (k < chunks) fours[i] = __ldg(reinterpret_cast<const float4*>(at + k * line));
      }
#pragma unroll
      for (const float4& four : fours) {
        sum[0] += static_cast<double>(four.x);
        sum[1] += static_cast<double>(four.y);
        sum[2] += static_cast<double>(four.z);
        sum[3] += static_cast<double>(four.w);
      }
    }
  }
  __shared__ double sums[kWarps][kCombineOutputs];
#pragma unroll
  for (int i = 0; i < kCombineVector; ++i) {
#pragma unroll
    for (int step = kLanes; step < 32; step *= 2) sum[i] += __shfl_down_sync(0xffffffffu, sum[i], step);
    if (thread % 32 < kLanes) sums[thread / 32][lane * kCombineVector + i] = sum[i];
  }
  __syncthreads();
  if (thread >= kCombineOutputs || first + thread >= line) return;
  double total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += sums[w][thread];
  const WeightPlace place = places(tile, first + thread);
  if (place.channel >= channels || place.tap > taps) return;
  if (place.tap == taps) {
    if (dbias != nullptr) dbias[place.channel] = static_cast<float>(total);
  } else if (dw != nullptr) {
    dw[place.channel * taps + place.tap] = static_cast<float>(total);
  }
}

template <int V, class T>
void launch_segment_sums(cudaStream_t stream, const char* name, const ConvShape& s, const Cut& cut, const T* x,
                         const T* dy, bool wants_bias, float* partials) {
  const Plane x_plane(s.in_h, s.in_w, s.groups), y_plane(s.out_h, s.out_w, s.groups);
  const Segments segments{Divisor(static_cast<std::uint32_t>(parts(s.out_w, cut.pixels))),
                          Divisor(static_cast<std::uint32_t>(s.out_h)), static_cast<std::uint32_t>(cut.segments),
                          static_cast<std::uint32_t>(cut.segments_per_chunk)};
  const auto launch = [&](auto kernel, auto stride, auto pixels, auto with_bias) {
    const dim3 grid(grid_blocks(name, cut.chunks), grid_blocks(name, cut.tiles)), block(cut.across, kernel, cut.down);
    const auto shared = static_cast<unsigned>(V * (kernel * kernel + 1) * cut.across * cut.down * sizeof(float));
    const auto function = segment_sums_kernel<T, V, kernel, stride, pixels, with_bias>;
    function<<<grid, block, shared, stream>>>(segments, x_plane, y_plane, static_cast<int>(s.pad_top),
                                              static_cast<int>(s.pad_left), x, dy, partials);
  };
  const auto launch_with = [&](auto kernel, auto stride, auto pixels) {
    wants_bias ? launch(kernel, stride, pixels, std::true_type{}) : launch(kernel, stride, pixels, std::false_type{});
  };
  with_window(s, [&](auto kernel, auto stride) {
    if constexpr (V <= 4 || kernel == 3) {  // as vector_of says
      if constexpr (stride == 1 && kernel <= 5) {
        if (cut.pixels == 7) return launch_with(kernel, stride, std::integral_constant<int, 7>{});
      }
      launch_with(kernel, stride, std::integral_constant<int, 4>{});
    }
  });
  check_launch(name);
}

template <class T>
void launch_any_sums(cudaStream_t stream, const char* name, const ConvShape& s, const Cut& cut, const T* x, const T* dy,
                     float* partials) {
  const Plane x_plane(s.in_h, s.in_w, s.groups), y_plane(s.out_h, s.out_w, s.groups);
  const AnyWindow window{static_cast<int>(s.kernel_w),   static_cast<int>(s.stride_h),   static_cast<int>(s.stride_w),
                         static_cast<int>(s.dilation_h), static_cast<int>(s.dilation_w), static_cast<int>(s.pad_top),
                         static_cast<int>(s.pad_left)};
  const dim3 grid(grid_blocks(name, cut.chunks), grid_blocks(name, s.kernel_h * s.kernel_w + 1),
                  grid_blocks(name, parts(s.groups, kAnyAcross)));
  any_sums_kernel<<<grid, dim3(kAnyAcross, kAnyDown), 0, stream>>>(
      window, x_plane, y_plane, s.batch * s.out_h * s.out_w, x, dy, cut.line, partials);
  check_launch(name);
}

}  // namespace

std::size_t depthwise_weight_grad_scratch_bytes(const ConvShape& shape) {
  check(shape);
  // The type, unknown here, decides how many channels a thread takes: enough for either.
  const std::int64_t partials = std::max(Cut::of<float>(shape).partials(), Cut::of<bf16>(shape).partials());
  return static_cast<std::size_t>(partials) * sizeof(float);
}

template <class T>
void depthwise_weight_grad(cudaStream_t stream, const ConvShape& shape, const T* x, const T* dy, float* dw,
                           float* dbias, void* scratch) {
  constexpr const char* name = "depthwise_weight_grad";
  check(shape);
  require_aligned(name, {x, dy, dw, dbias, scratch});
  const Cut cut = Cut::of<T>(shape);
  auto* partials = static_cast<float*>(scratch);
  const auto combine = [&](const auto& places) {
    const dim3 grid(grid_blocks(name, parts(cut.line, kCombineOutputs)), grid_blocks(name, cut.tiles));
    combine_taps_kernel<<<grid, kThreads, 0, stream>>>(places, partials, static_cast<int>(cut.chunks), cut.line,
                                                       static_cast<int>(shape.groups),
                                                       static_cast<int>(shape.kernel_h * shape.kernel_w), dw, dbias);
    check_launch(name);
  };
  if (!cut.fast) {
    launch_any_sums(stream, name, shape, cut, x, dy, partials);
    return combine(PlainPlaces{shape.groups});
  }
  const auto sums = [&](auto vector) {
    launch_segment_sums<vector>(stream, name, shape, cut, x, dy, dbias != nullptr, partials);
  };
  if (cut.vector == 2) {
    sums(std::integral_constant<int, 2>{});
  } else if (cut.vector == 4) {
    sums(std::integral_constant<int, 4>{});
  } else if constexpr (sizeof(T) == 2) {
    sums(std::integral_constant<int, 8>{});
  }
  combine(SegmentPlaces{static_cast<int>(cut.across), cut.vector, static_cast<int>(shape.kernel_h)});
}

template void depthwise_weight_grad(cudaStream_t, const ConvShape&, const float*, const float*, float*, float*, void*);
template void depthwise_weight_grad(cudaStream_t, const ConvShape&, const bf16*, const bf16*, float*, float*, void*);

}  // namespace overtake::cuda
