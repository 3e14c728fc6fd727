#include "kernels/cuda/optimizer.h"

#include <memory>

#include "cuda/against_cpu.h"
#include "kernels/cpu/block.h"

namespace overtake {
namespace {

const std::vector<std::int64_t> kCounts = {1, 5, 1024, 4096, 4097, 70003};

// The arrays of an update after a step on the CPU, and the same on the GPU before it.
struct Tensor {
  Tensor(std::int64_t n, unsigned seed)
      : count(n),
        grad(random_values<float>(n, seed, 0.1f)),
        weight(random_values<float>(n, seed + 1)),
        first(random_values<float>(n, seed + 2, 0.0f, 0.3f)),
        second(random_values<float>(n, seed + 3, 0.0f, 0.1f)) {
    for (float& v : second) v = v * v;
    gpu_grad = std::make_unique<DeviceArray<float>>(grad);
    gpu_weight = std::make_unique<DeviceArray<float>>(weight);
    gpu_first = std::make_unique<DeviceArray<float>>(first);
    gpu_second = std::make_unique<DeviceArray<float>>(second);
  }

  cuda::UpdateTensor entry() const {
    return {gpu_grad->data(), gpu_weight->data(), gpu_first->data(), gpu_second->data(), count};
  }
  void expect_as_on_cpu(const std::string& what) const {
    expect_close(gpu_weight->download(), weight, 1e-5f, what + " weight");
    expect_close(gpu_first->download(), first, 1e-5f, what + " first state");
    expect_close(gpu_second->download(), second, 1e-5f, what + " second state");
    expect_same_bytes(gpu_grad->download(), grad, what + " gradient");
  }

  std::int64_t count;
  std::vector<float> grad, weight, first, second;  // [count]
  std::unique_ptr<DeviceArray<float>> gpu_grad, gpu_weight, gpu_first, gpu_second;
};

std::vector<Tensor> tensors() {
  std::vector<Tensor> all;
  unsigned seed = 1;
  for (const std::int64_t count : kCounts) all.emplace_back(count, seed += 10);
  return all;
}

std::vector<cuda::UpdateTile> tiles_of(const std::vector<Tensor>& all) {
  std::vector<cuda::UpdateTensor> entries;
  for (const Tensor& t : all) entries.push_back(t.entry());
  return cuda::cut_in_tiles(entries);
}

const std::vector<kernels::SgdStep> kSgdSteps = {
    {0.1f, 0.0f, 0.01f, false}, {0.1f, 0.9f, 0.01f, false}, {0.1f, 0.9f, 0.01f, true}};
const std::vector<kernels::AdamWStep> kAdamWSteps = {{1e-2, 0.9, 0.999, 1e-8, 0.1, 1}, {1e-2, 0.9, 0.95, 1e-8, 0.1, 7}};

// Runs on_cpu(tensor, scale), on_gpu(tensor, scale) and many(tiles, count, scale) with and without a scale.
template <class OnCpu, class OnGpu, class Many>
void check(const OnCpu& on_cpu, const OnGpu& on_gpu, const Many& many, const std::string& what) {
  const float factor = 0.37f;
  DeviceArray<float> gpu_factor(std::vector<float>{factor});
  for (const bool scaled : {false, true}) {
    const float* scale = scaled ? &factor : nullptr;
    const float* gpu_scale = scaled ? gpu_factor.data() : nullptr;
    std::vector<Tensor> singly = tensors(), together = tensors();
    const std::vector<cuda::UpdateTile> tiles = tiles_of(together);
    DeviceArray<cuda::UpdateTile> table(tiles);
    many(table.data(), static_cast<std::int64_t>(tiles.size()), gpu_scale);
    for (std::size_t i = 0; i < singly.size(); ++i) {
      on_cpu(singly[i], scale);
      on_cpu(together[i], scale);
      on_gpu(singly[i], gpu_scale);
      singly[i].expect_as_on_cpu(what);
      together[i].expect_as_on_cpu(what + ", many tensors");
      expect_same_bytes(singly[i].gpu_weight->download(), together[i].gpu_weight->download(), what);
    }
  }
}

TEST(CudaOptimizer, SgdIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const kernels::SgdStep& sgd : kSgdSteps) {
    check(
        [&](Tensor& t, const float* scale) {
          kernels::sgd_update(sgd, t.grad.data(), scale, t.weight.data(), t.first.data(), t.count, 0,
                              kernels::blocks_of(t.count));
        },
        [&](Tensor& t, const float* scale) {
          float* momentum = sgd.momentum == 0.0f ? nullptr : t.gpu_first->data();
          cuda::sgd_update(nullptr, sgd, t.gpu_grad->data(), scale, t.gpu_weight->data(), momentum, t.count);
        },
        [&](const cuda::UpdateTile* tiles, std::int64_t count, const float* scale) {
          cuda::sgd_update(nullptr, sgd, tiles, count, scale);
        },
        "sgd");
  }
}

TEST(CudaOptimizer, AdamWIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const kernels::AdamWStep& adamw : kAdamWSteps) {
    check(
        [&](Tensor& t, const float* scale) {
          kernels::adamw_update(adamw, t.grad.data(), scale, t.weight.data(), t.first.data(), t.second.data(), t.count,
                                0, kernels::blocks_of(t.count));
        },
        [&](Tensor& t, const float* scale) {
          cuda::adamw_update(nullptr, adamw, t.gpu_grad->data(), scale, t.gpu_weight->data(), t.gpu_first->data(),
                             t.gpu_second->data(), t.count);
        },
        [&](const cuda::UpdateTile* tiles, std::int64_t count, const float* scale) {
          cuda::adamw_update(nullptr, adamw, tiles, count, scale);
        },
        "adamw");
  }
}

// The norm and the factor of the partials, downloaded.
std::vector<float> clip(const DeviceArray<double>& partials, float max_norm) {
  DeviceArray<float> result(2);
  cuda::clip_factor(nullptr, partials.data(), static_cast<std::int64_t>(partials.size()), max_norm, result.data());
  return result.download();
}

TEST(CudaOptimizer, NormAndClipFactorAreTheCpus) {
  OVERTAKE_NEEDS_GPU();
  const std::vector<Tensor> all = tensors();
  std::vector<double> partials;
  for (const Tensor& t : all) {
    const std::int64_t blocks = kernels::blocks_of(t.count);
    std::vector<double> own(size(blocks));
    kernels::squared_norm_partials(t.grad.data(), own.data(), t.count, 0, blocks);
    DeviceArray<double> gpu(own.size());
    cuda::squared_norm_partials(nullptr, t.gpu_grad->data(), gpu.data(), t.count);
    const std::vector<double> got = gpu.download();
    for (std::size_t i = 0; i < own.size(); ++i) ASSERT_NEAR(got[i], own[i], 1e-12 * own[i]) << i;
    partials.insert(partials.end(), own.begin(), own.end());
  }
  const std::vector<cuda::UpdateTile> tiles = tiles_of(all);
  DeviceArray<cuda::UpdateTile> table(tiles);
  DeviceArray<double> tile_partials(tiles.size());
  cuda::squared_norm_partials(nullptr, table.data(), static_cast<std::int64_t>(tiles.size()), tile_partials.data());
  for (const float max_norm : {1.0f, 1e6f}) {
    float want[2];
    kernels::clip_factor(partials.data(), static_cast<std::int64_t>(partials.size()), max_norm, want);
    for (const std::vector<float>& got :
         {clip(tile_partials, max_norm), clip(DeviceArray<double>(partials), max_norm)}) {
      EXPECT_NEAR(got[0], want[0], 1e-6f * want[0]);
      EXPECT_NEAR(got[1], want[1], 1e-6f * want[1]);
    }
    expect_same_bytes(clip(tile_partials, max_norm), clip(tile_partials, max_norm), "clip factor");
  }
}

}  // namespace
}  // namespace overtake
