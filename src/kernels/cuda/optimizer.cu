#include "kernels/cuda/optimizer.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "kernels/cuda/group_reduce.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/values.cuh"

namespace overtake::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kWidth = 4;                                                    // elements a thread moves at a time
constexpr int kSteps = static_cast<int>(kUpdateTile) / (kThreads * kWidth);  // and how often
static_assert(kSteps * kThreads * kWidth == kUpdateTile);
constexpr int kSumThreads = 256;    // of the block that adds up the partials of a tensor
constexpr int kClipThreads = 1024;  // the last phase of the norm is one block

// A thread's elements of an array of a tile, as they lie in memory: pack s is at (s * kThreads + threadIdx.x) * kWidth.
template <class T>
struct Held {
  Packed<T, kWidth> packs[kSteps];
};

__device__ int first_of(int step) { return (step * kThreads + static_cast<int>(threadIdx.x)) * kWidth; }

// What is past the end counts as 0.
template <class T>
__device__ void load_held(const T* array, int count, Held<T>& held) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int first = first_of(s);
    if (first + kWidth <= count) {
      held.packs[s] = load_packed<kWidth>(array + first);
    } else {
      T elements[kWidth] = {};
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (first + i < count) elements[i] = array[first + i];
      }
      __builtin_memcpy(&held.packs[s].word, elements, sizeof(elements));
    }
  }
}

template <class T>
__device__ void store_pack(T* array, int first, int count, const float (&values)[kWidth]) {
  if (first + kWidth <= count) {
    store_values(array + first, values);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float value[1] = {values[i]};
      if (first + i < count) store_values(array + first + i, value);
    }
  }
}

// The four numbers an update sees of one element.
struct Element {
  float grad, weight, first, second;
};

// A step gives
//   kFirst, kSecond                  which states it reads and writes
//   void prepare(values, shared)     called by every thread; what it writes into shared [2] is there in
//   Rule rule(values, shared)        what to do with an element: void apply(Element&)
struct Sgd {
  static constexpr bool kFirst = false, kSecond = false;
  float decay;

  struct Rule {
    float rate, decay;
    __device__ void apply(Element& e) const { e.weight -= rate * (e.grad + decay * e.weight); }
  };
  __device__ void prepare(const StepValues&, float*) const {}
  __device__ Rule rule(const StepValues& values, const float*) const { return {values.learning_rate, decay}; }
};

template <bool nesterov>
struct SgdMomentum {
  static constexpr bool kFirst = true, kSecond = false;
  float decay, keep;

  struct Rule {
    float rate, decay, keep;
    __device__ void apply(Element& e) const {
      const float g = e.grad + decay * e.weight;
      e.first = keep * e.first + g;
      e.weight -= rate * (nesterov ? g + keep * e.first : e.first);
    }
  };
  __device__ void prepare(const StepValues&, float*) const {}
  __device__ Rule rule(const StepValues& values, const float*) const { return {values.learning_rate, decay, keep}; }
};

// base^n, in fewer registers than pow takes.
__device__ double power(double base, std::uint64_t n) {
  double result = 1.0;
  for (; n != 0; n >>= 1, base *= base) {
    if (n & 1) result *= base;
  }
  return result;
}

// The numbers of a step are computed in double, as PyTorch does.
struct AdamW {
  static constexpr bool kFirst = true, kSecond = true;
  AdamWSettings settings;

  struct Rule {
    float keep_weight;   // 1 - learning_rate * weight_decay
    float beta1, beta2;  // and one minus each
    float rest1, rest2;
    float step_size;     // learning_rate / (1 - beta1^step)
    float inverse_root;  // 1 / sqrt(1 - beta2^step)
    float epsilon;

    __device__ void apply(Element& e) const {
      e.first = beta1 * e.first + rest1 * e.grad;
      e.second = beta2 * e.second + rest2 * e.grad * e.grad;
      e.weight = keep_weight * e.weight - step_size * (e.first / (sqrtf(e.second) * inverse_root + epsilon));
    }
  };

  // Two warps at once, while the arrays are on their way.
  __device__ void prepare(const StepValues& values, float* shared) const {
    if (threadIdx.x != 0 && threadIdx.x != 32) return;
    const bool is_first = threadIdx.x == 0;
    const double correction = 1.0 - power(is_first ? settings.beta1 : settings.beta2, values.step + 1);
    shared[is_first ? 0 : 1] =
        static_cast<float>(is_first ? static_cast<double>(values.learning_rate) / correction : 1.0 / sqrt(correction));
  }
  __device__ Rule rule(const StepValues& values, const float* shared) const {
    return {.keep_weight = static_cast<float>(1.0 - static_cast<double>(values.learning_rate) * settings.weight_decay),
            .beta1 = static_cast<float>(settings.beta1),
            .beta2 = static_cast<float>(settings.beta2),
            .rest1 = static_cast<float>(1.0 - settings.beta1),
            .rest2 = static_cast<float>(1.0 - settings.beta2),
            .step_size = shared[0],
            .inverse_root = shared[1],
            .epsilon = static_cast<float>(settings.eps)};
  }
};

template <class T>
__device__ bool has_non_finite(const Held<T>& held) {
  bool found = false;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    float values[kWidth];
    unpack(held.packs[s], values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) found |= !isfinite(values[i]);
  }
  return found;
}

// The loss that thread `thread` looks at, if any. Volatile: other blocks may spoil it now.
__device__ volatile float* loss_of(const StepLosses& losses, unsigned thread) {
  float* loss = nullptr;
#pragma unroll
  for (int k = 0; k < StepLosses::kMost; ++k) {
    if (k < losses.count && thread == k) loss = losses.loss[k];
  }
  return loss;
}

// By the whole block. Everything is loaded before the block decides whether to go on: the gradient is read once, and
// the decision costs no trip to memory of its own. grad [tile.count].
template <class T, class Step>
__device__ void update_tile(const Step& step, const StepValues* values, const UpdateTile& tile, const T* grad,
                            const float* grad_scale, const StepLosses& losses, float* shared) {
  const int count = static_cast<int>(tile.count);
  Held<T> held_grad;
  Held<float> held_weight, held_first, held_second;
  load_held(grad, count, held_grad);
  load_held(tile.weight, count, held_weight);
  if constexpr (Step::kFirst) load_held(tile.first, count, held_first);
  if constexpr (Step::kSecond) load_held(tile.second, count, held_second);

  step.prepare(*values, shared);
  const float scale = grad_scale == nullptr ? 1.0f : *grad_scale;
  volatile float* const loss = loss_of(losses, threadIdx.x);
  if (__syncthreads_or(loss != nullptr && !isfinite(*loss))) return;
  if (__syncthreads_or(!isfinite(scale) || has_non_finite(held_grad))) {
    if (loss != nullptr) *loss = nanf("");
    return;
  }

  const typename Step::Rule rule = step.rule(*values, shared);
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    float grads[kWidth], weights[kWidth], firsts[kWidth], seconds[kWidth];
    unpack(held_grad.packs[s], grads);
    unpack(held_weight.packs[s], weights);
    if constexpr (Step::kFirst) unpack(held_first.packs[s], firsts);
    if constexpr (Step::kSecond) unpack(held_second.packs[s], seconds);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      Element e{grads[i] * scale, weights[i], 0.0f, 0.0f};
      if constexpr (Step::kFirst) e.first = firsts[i];
      if constexpr (Step::kSecond) e.second = seconds[i];
      rule.apply(e);
      weights[i] = e.weight;
      if constexpr (Step::kFirst) firsts[i] = e.first;
      if constexpr (Step::kSecond) seconds[i] = e.second;
    }
    store_pack(tile.weight, first_of(s), count, weights);
    if constexpr (Step::kFirst) store_pack(tile.first, first_of(s), count, firsts);
    if constexpr (Step::kSecond) store_pack(tile.second, first_of(s), count, seconds);
    if (tile.copy != nullptr) store_pack(tile.copy, first_of(s), count, weights);
  }
}

// A block per tile.
template <class Step>
__global__ void __launch_bounds__(kThreads, 2)
    update_kernel(const Step step, const StepValues* values, const UpdateTile* tiles, const float* grad_scale,
                  const StepLosses losses) {
  __shared__ float shared[2];
  const UpdateTile tile = tiles[blockIdx.x];
  if (tile.is_grad_bf16) {
    update_tile(step, values, tile, static_cast<const bf16*>(tile.grad), grad_scale, losses, shared);
  } else {
    update_tile(step, values, tile, static_cast<const float*>(tile.grad), grad_scale, losses, shared);
  }
}

template <class Step>
void update(cudaStream_t stream, const char* name, const Step& step, const StepValues* values, const UpdateTile* tiles,
            std::int64_t tile_count, const float* grad_scale, const StepLosses& losses) {
  if (losses.count > StepLosses::kMost) throw std::logic_error("an update takes at most StepLosses::kMost losses");
  if (tile_count == 0) return;
  update_kernel<<<grid_blocks(name, tile_count), kThreads, 0, stream>>>(step, values, tiles, grad_scale, losses);
  check_launch(name);
}

// This thread's part of the sum of squares of grad [count]. In double: the square of a large float overflows.
template <class T>
__device__ double squares(const T* grad, int count) {
  Held<T> held;
  load_held(grad, count, held);
  double sum = 0;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    float values[kWidth];
    unpack(held.packs[s], values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

// A block per partial.
__global__ void __launch_bounds__(kThreads) norm_kernel(const UpdateTile* tiles, double* partials) {
  const UpdateTile tile = tiles[blockIdx.x];
  const int count = static_cast<int>(tile.count);
  const double part = tile.is_grad_bf16 ? squares(static_cast<const bf16*>(tile.grad), count)
                                        : squares(static_cast<const float*>(tile.grad), count);
  const double sum = group_sum<kThreads>(part);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// A block per tensor: thread t adds its partials t, t + 256, ...
__global__ void __launch_bounds__(kSumThreads)
    sums_kernel(const double* partials, const std::int64_t* firsts, double* sums) {
  double sum = 0;
  for (std::int64_t i = firsts[blockIdx.x] + threadIdx.x; i < firsts[blockIdx.x + 1]; i += kSumThreads)
    sum += partials[i];
  sum = group_sum<kSumThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block: thread t adds sums t, t + 1024, ... of the order.
__global__ void __launch_bounds__(kClipThreads)
    clip_kernel(const double* sums, const std::int64_t* order, std::int64_t count, float max_norm, float* result) {
  double sum = 0;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x; i < count; i += kClipThreads) sum += sums[order == nullptr ? i : order[i]];
  sum = group_sum<kClipThreads>(sum);
  if (threadIdx.x > 0) return;
  const double norm = sqrt(sum);
  const double factor = static_cast<double>(max_norm) / (norm + 1e-6);
  result[0] = static_cast<float>(norm);
  result[1] = !isfinite(norm) ? nanf("") : factor > 1.0 ? 1.0f : static_cast<float>(factor);
}

}  // namespace

std::vector<UpdateTile> cut_in_tiles(std::span<const UpdateTensor> tensors) {
  std::vector<UpdateTile> tiles;
  const auto part_of = [](auto* array, std::int64_t begin) { return array == nullptr ? array : array + begin; };
  for (const UpdateTensor& tensor : tensors) {
    require_aligned("cut_in_tiles", {tensor.grad, tensor.weight, tensor.first, tensor.second, tensor.copy});
    const auto* grad = static_cast<const std::byte*>(tensor.grad);
    const std::int64_t grad_bytes = tensor.is_grad_bf16 ? sizeof(bf16) : sizeof(float);
    for (std::int64_t begin = 0; begin < tensor.count; begin += kUpdateTile) {
      tiles.push_back({.grad = grad + begin * grad_bytes,
                       .is_grad_bf16 = tensor.is_grad_bf16,
                       .weight = part_of(tensor.weight, begin),
                       .first = part_of(tensor.first, begin),
                       .second = part_of(tensor.second, begin),
                       .copy = part_of(tensor.copy, begin),
                       .count = std::min(kUpdateTile, tensor.count - begin)});
    }
  }
  return tiles;
}

void sgd_update(cudaStream_t stream, const StepValues* values, const SgdSettings& sgd, const UpdateTile* tiles,
                std::int64_t tile_count, const float* grad_scale, const StepLosses& losses) {
  const auto run = [&](const auto& step) {
    update(stream, "sgd_update", step, values, tiles, tile_count, grad_scale, losses);
  };
  if (sgd.momentum == 0.0f) {
    run(Sgd{sgd.weight_decay});
  } else if (sgd.nesterov) {
    run(SgdMomentum<true>{sgd.weight_decay, sgd.momentum});
  } else {
    run(SgdMomentum<false>{sgd.weight_decay, sgd.momentum});
  }
}

void adamw_update(cudaStream_t stream, const StepValues* values, const AdamWSettings& adamw, const UpdateTile* tiles,
                  std::int64_t tile_count, const float* grad_scale, const StepLosses& losses) {
  update(stream, "adamw_update", AdamW{adamw}, values, tiles, tile_count, grad_scale, losses);
}

void squared_norm_partials(cudaStream_t stream, const UpdateTile* tiles, std::int64_t tile_count, double* partials) {
  if (tile_count == 0) return;
  norm_kernel<<<grid_blocks("squared_norm_partials", tile_count), kThreads, 0, stream>>>(tiles, partials);
  check_launch("squared_norm_partials");
}

void sums_of_partials(cudaStream_t stream, const double* partials, const std::int64_t* firsts,
                      std::int64_t tensor_count, double* sums) {
  if (tensor_count == 0) return;
  sums_kernel<<<grid_blocks("sums_of_partials", tensor_count), kSumThreads, 0, stream>>>(partials, firsts, sums);
  check_launch("sums_of_partials");
}

void clip_factor(cudaStream_t stream, const double* sums, const std::int64_t* order, std::int64_t count, float max_norm,
                 float* result) {
  clip_kernel<<<1, kClipThreads, 0, stream>>>(sums, order, count, max_norm, result);
  check_launch("clip_factor");
}

}  // namespace overtake::cuda
