#include <algorithm>
#include <cmath>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/optimizer.h"

namespace overtake::cuda {

namespace {

using namespace access;

constexpr int kThreads = 256;       // a tile is then four packs per thread
constexpr int kPacks = 2;           // at a time: with four arrays, eight loads in flight
constexpr int kWidth = 4;           // floats of a pack
constexpr int kNormBlock = 1024;    // elements of a partial sum of squares of an array: kernels::kBlock
constexpr int kClipThreads = 1024;  // the second phase is one block

// The four numbers an update sees of one element.
struct Element {
  float grad, weight, first, second;
};

struct Sgd {
  static constexpr bool kFirst = false, kSecond = false;  // which states it reads and writes
  float rate, decay;
  __device__ void apply(Element& e) const { e.weight -= rate * (e.grad + decay * e.weight); }
};

template <bool nesterov>
struct SgdMomentum {
  static constexpr bool kFirst = true, kSecond = false;
  float rate, decay, keep;
  __device__ void apply(Element& e) const {
    const float g = e.grad + decay * e.weight;
    e.first = keep * e.first + g;
    e.weight -= rate * (nesterov ? g + keep * e.first : e.first);
  }
};

// The numbers of one AdamW step, computed in double as PyTorch does.
struct AdamW {
  static constexpr bool kFirst = true, kSecond = true;
  float keep_weight;   // 1 - learning_rate * weight_decay
  float beta1, beta2;  // and one minus each
  float rest1, rest2;
  float step_size;     // learning_rate / (1 - beta1^step)
  float inverse_root;  // 1 / sqrt(1 - beta2^step)
  float epsilon;

  explicit AdamW(const AdamWStep& adamw)
      : keep_weight(static_cast<float>(1.0 - adamw.learning_rate * adamw.weight_decay)),
        beta1(static_cast<float>(adamw.beta1)),
        beta2(static_cast<float>(adamw.beta2)),
        rest1(static_cast<float>(1.0 - adamw.beta1)),
        rest2(static_cast<float>(1.0 - adamw.beta2)),
        epsilon(static_cast<float>(adamw.epsilon)) {
    const auto step = static_cast<double>(adamw.step);
    step_size = static_cast<float>(adamw.learning_rate / (1.0 - std::pow(adamw.beta1, step)));
    inverse_root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(adamw.beta2, step)));
  }

  __device__ void apply(Element& e) const {
    e.first = beta1 * e.first + rest1 * e.grad;
    e.second = beta2 * e.second + rest2 * e.grad * e.grad;
    e.weight = keep_weight * e.weight - step_size * (e.first / (sqrtf(e.second) * inverse_root + epsilon));
  }
};

template <class Step>
__device__ void update_packs(const Step& step, float scale, const UpdateTile& tile, int at) {
  constexpr int stride = kThreads * kWidth;
  Pack<float, kWidth> grad[kPacks], weight[kPacks], first[kPacks], second[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    grad[k] = load_pack<kWidth>(tile.grad + at + k * stride);
    weight[k] = load_pack<kWidth>(tile.weight + at + k * stride);
    if constexpr (Step::kFirst) first[k] = load_pack<kWidth>(tile.first + at + k * stride);
    if constexpr (Step::kSecond) second[k] = load_pack<kWidth>(tile.second + at + k * stride);
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      Element e{grad[k].at[i] * scale, weight[k].at[i], 0.0f, 0.0f};
      if constexpr (Step::kFirst) e.first = first[k].at[i];
      if constexpr (Step::kSecond) e.second = second[k].at[i];
      step.apply(e);
      weight[k].at[i] = e.weight;
      if constexpr (Step::kFirst) first[k].at[i] = e.first;
      if constexpr (Step::kSecond) second[k].at[i] = e.second;
    }
    store_pack(tile.weight + at + k * stride, weight[k]);
    if constexpr (Step::kFirst) store_pack(tile.first + at + k * stride, first[k]);
    if constexpr (Step::kSecond) store_pack(tile.second + at + k * stride, second[k]);
  }
}

// By the whole block: whole tiles in packs, others element by element.
template <class Step>
__device__ void update_tile(const Step& step, const float* grad_scale, const UpdateTile& tile) {
  const float scale = grad_scale == nullptr ? 1.0f : *grad_scale;
  if (tile.count == kUpdateTile) {
    for (int at = threadIdx.x * kWidth; at < kUpdateTile; at += kThreads * kWidth * kPacks) {
      update_packs(step, scale, tile, at);
    }
    return;
  }
  for (int i = threadIdx.x; i < tile.count; i += kThreads) {
    Element e{tile.grad[i] * scale, tile.weight[i], 0.0f, 0.0f};
    if constexpr (Step::kFirst) e.first = tile.first[i];
    if constexpr (Step::kSecond) e.second = tile.second[i];
    step.apply(e);
    tile.weight[i] = e.weight;
    if constexpr (Step::kFirst) tile.first[i] = e.first;
    if constexpr (Step::kSecond) tile.second[i] = e.second;
  }
}

template <class Step>
__global__ void __launch_bounds__(kThreads) update_kernel(Step step, const float* grad_scale, UpdateTile tensor) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * kUpdateTile;
  tensor.grad += begin;
  tensor.weight += begin;
  if constexpr (Step::kFirst) tensor.first += begin;
  if constexpr (Step::kSecond) tensor.second += begin;
  tensor.count = min(kUpdateTile, tensor.count - begin);
  update_tile(step, grad_scale, tensor);
}

template <class Step>
__global__ void __launch_bounds__(kThreads)
    update_tiles_kernel(Step step, const float* grad_scale, const UpdateTile* tiles) {
  const UpdateTile tile = tiles[blockIdx.x];
  update_tile(step, grad_scale, tile);
}

// Calls body with the step's function object.
template <class Body>
void with_sgd(const SgdStep& sgd, const Body& body) {
  if (sgd.momentum == 0.0f) {
    body(Sgd{sgd.learning_rate, sgd.weight_decay});
  } else if (sgd.nesterov) {
    body(SgdMomentum<true>{sgd.learning_rate, sgd.weight_decay, sgd.momentum});
  } else {
    body(SgdMomentum<false>{sgd.learning_rate, sgd.weight_decay, sgd.momentum});
  }
}

template <class Step>
void update(cudaStream_t stream, const char* name, const Step& step, const float* grad_scale,
            const UpdateTile& tensor) {
  if (tensor.count == 0) return;
  require_aligned(name, {tensor.grad, tensor.weight, tensor.first, tensor.second});
  const unsigned blocks = grid_blocks(name, parts(tensor.count, kUpdateTile));
  update_kernel<<<blocks, kThreads, 0, stream>>>(step, grad_scale, tensor);
  check_launch(name);
}

template <class Step>
void update_tiles(cudaStream_t stream, const char* name, const Step& step, const float* grad_scale,
                  const UpdateTile* tiles, std::int64_t tile_count) {
  if (tile_count == 0) return;
  update_tiles_kernel<<<grid_blocks(name, tile_count), kThreads, 0, stream>>>(step, grad_scale, tiles);
  check_launch(name);
}

// The sum of squares of grad [count], by `lanes` threads of which this one is `lane`; the result is in lane 0 of each
// warp, of that warp's elements. In double: the square of a large float overflows.
__device__ double squares(const float* grad, int count, int lane, int lanes) {
  double sum = 0;
  const int packs = count / kWidth;
#pragma unroll 4
  for (int p = lane; p < packs; p += lanes) {
    const Pack<float, kWidth> pack = load_pack<kWidth>(grad + p * kWidth);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += static_cast<double>(pack.at[i]) * pack.at[i];
  }
  const int rest = packs * kWidth + lane;
  if (rest < count) sum += static_cast<double>(grad[rest]) * grad[rest];
#pragma unroll
  for (int half = 16; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffu, sum, half);
  return sum;
}

// A warp per partial.
__global__ void __launch_bounds__(kThreads)
    norm_kernel(const float* grad, double* partials, std::int64_t count, std::int64_t blocks) {
  const std::int64_t block = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (block >= blocks) return;
  const int lane = threadIdx.x % 32;
  const auto size = static_cast<int>(min(std::int64_t{kNormBlock}, count - block * kNormBlock));
  const double sum = squares(grad + block * kNormBlock, size, lane, 32);
  if (lane == 0) partials[block] = sum;
}

// A block per partial.
__global__ void __launch_bounds__(kThreads) norm_tiles_kernel(const UpdateTile* tiles, double* partials) {
  __shared__ double warps[kThreads / 32];
  const UpdateTile tile = tiles[blockIdx.x];
  const double part = squares(tile.grad, static_cast<int>(tile.count), threadIdx.x, kThreads);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x > 0) return;
  double sum = warps[0];
  for (int w = 1; w < kThreads / 32; ++w) sum += warps[w];
  partials[blockIdx.x] = sum;
}

// One block: thread t adds partials t, t + 1024, ...; then pairs.
__global__ void __launch_bounds__(kClipThreads)
    clip_kernel(const double* partials, std::int64_t count, float max_norm, float* result) {
  __shared__ double sums[kClipThreads];
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += kClipThreads) sum += partials[i];
  sums[threadIdx.x] = sum;
  for (int half = kClipThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x > 0) return;
  const double norm = sqrt(sums[0]);
  const double factor = static_cast<double>(max_norm) / (norm + 1e-6);
  result[0] = static_cast<float>(norm);
  result[1] = factor > 1.0 ? 1.0f : static_cast<float>(factor);
}

}  // namespace

void sgd_update(cudaStream_t stream, const SgdStep& sgd, const float* grad, const float* grad_scale, float* weight,
                float* momentum, std::int64_t count) {
  with_sgd(sgd, [&](const auto& step) {
    update(stream, "sgd_update", step, grad_scale, UpdateTile{grad, weight, momentum, nullptr, count});
  });
}

void adamw_update(cudaStream_t stream, const AdamWStep& adamw, const float* grad, const float* grad_scale,
                  float* weight, float* first_moment, float* second_moment, std::int64_t count) {
  update(stream, "adamw_update", AdamW(adamw), grad_scale,
         UpdateTile{grad, weight, first_moment, second_moment, count});
}

std::vector<UpdateTile> cut_in_tiles(std::span<const UpdateTensor> tensors) {
  std::vector<UpdateTile> tiles;
  const auto part_of = [](auto* array, std::int64_t begin) { return array == nullptr ? array : array + begin; };
  for (const UpdateTensor& tensor : tensors) {
    require_aligned("cut_in_tiles", {tensor.grad, tensor.weight, tensor.first, tensor.second});
    for (std::int64_t begin = 0; begin < tensor.count; begin += kUpdateTile) {
      tiles.push_back({part_of(tensor.grad, begin), part_of(tensor.weight, begin), part_of(tensor.first, begin),
                       part_of(tensor.second, begin), std::min(kUpdateTile, tensor.count - begin)});
    }
  }
  return tiles;
}

void sgd_update(cudaStream_t stream, const SgdStep& sgd, const UpdateTile* tiles, std::int64_t tile_count,
                const float* grad_scale) {
  with_sgd(sgd, [&](const auto& step) { update_tiles(stream, "sgd_update", step, grad_scale, tiles, tile_count); });
}

void adamw_update(cudaStream_t stream, const AdamWStep& adamw, const UpdateTile* tiles, std::int64_t tile_count,
                  const float* grad_scale) {
  update_tiles(stream, "adamw_update", AdamW(adamw), grad_scale, tiles, tile_count);
}

void squared_norm_partials(cudaStream_t stream, const float* grad, double* partials, std::int64_t count) {
  if (count == 0) return;
  require_aligned("squared_norm_partials", {grad});
  const std::int64_t blocks = parts(count, kNormBlock);
  const unsigned grid = grid_blocks("squared_norm_partials", parts(blocks, kThreads / 32));
  norm_kernel<<<grid, kThreads, 0, stream>>>(grad, partials, count, blocks);
  check_launch("squared_norm_partials");
}

void squared_norm_partials(cudaStream_t stream, const UpdateTile* tiles, std::int64_t tile_count, double* partials) {
  if (tile_count == 0) return;
  norm_tiles_kernel<<<grid_blocks("squared_norm_partials", tile_count), kThreads, 0, stream>>>(tiles, partials);
  check_launch("squared_norm_partials");
}

void clip_factor(cudaStream_t stream, const double* partials, std::int64_t partial_count, float max_norm,
                 float* result) {
  clip_kernel<<<1, kClipThreads, 0, stream>>>(partials, partial_count, max_norm, result);
  check_launch("clip_factor");
}

}  // namespace overtake::cuda
