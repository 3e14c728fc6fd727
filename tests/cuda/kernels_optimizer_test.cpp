#include "kernels/cuda/optimizer.h"

#include <functional>
#include <limits>
#include <memory>

#include "cuda/against_cpu.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/optimizer.h"

namespace overtake {
namespace {

const std::vector<std::int64_t> kCounts = {1, 5, 1024, 4096, 4097, 70003};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The arrays of an update on the CPU, and the same on the GPU.
struct Tensor {
  Tensor(std::int64_t n, unsigned seed, bool bf16_grad)
      : count(n),
        is_grad_bf16(bf16_grad),
        narrow_grad(random_values<bf16>(n, seed, 0.1f)),
        grad(random_values<float>(n, seed, 0.1f)),
        weight(random_values<float>(n, seed + 1)),
        first(random_values<float>(n, seed + 2, 0.0f, 0.3f)),
        second(random_values<float>(n, seed + 3, 0.0f, 0.1f)) {
    for (float& v : second) v = v * v;
    for (std::size_t i = 0; is_grad_bf16 && i < grad.size(); ++i) grad[i] = to_float(narrow_grad[i]);
    upload();
  }

  void upload() {
    gpu_grad = std::make_unique<DeviceArray<float>>(grad);
    gpu_narrow_grad = std::make_unique<DeviceArray<bf16>>(narrow_grad);
    gpu_weight = std::make_unique<DeviceArray<float>>(weight);
    gpu_first = std::make_unique<DeviceArray<float>>(first);
    gpu_second = std::make_unique<DeviceArray<float>>(second);
    gpu_copy = std::make_unique<DeviceArray<bf16>>(weight.size());
  }

  // Tensors whose count is even have a copy, so that both kinds are there.
  bool has_copy() const { return count % 2 == 0; }
  cuda::UpdateTensor entry() const {
    const void* g = is_grad_bf16 ? static_cast<const void*>(gpu_narrow_grad->data()) : gpu_grad->data();
    return {g,
            is_grad_bf16,
            gpu_weight->data(),
            gpu_first->data(),
            gpu_second->data(),
            has_copy() ? gpu_copy->data() : nullptr,
            count};
  }

  void expect_as_on_cpu(const std::string& what) const {
    const float bound = count < 100 ? 1e-5f : 1e-6f;  // of few elements the largest may be small by cancellation
    expect_close(gpu_weight->download(), weight, bound, what + " weight");
    expect_close(gpu_first->download(), first, bound, what + " first state");
    expect_close(gpu_second->download(), second, bound, what + " second state");
    expect_same_bytes(gpu_grad->download(), grad, what + " gradient");
    if (!has_copy()) return;
    std::vector<bf16> rounded;
    for (const float w : gpu_weight->download()) rounded.push_back(from_float<bf16>(w));
    expect_same_bytes(gpu_copy->download(), rounded, what + " copy");
  }

  // Elements [begin, end) have the bytes that were uploaded.
  void expect_untouched(std::size_t begin, std::size_t end, const std::string& what) const {
    const auto part = [&](const std::vector<float>& v) {
      return std::vector<float>(v.begin() + static_cast<std::ptrdiff_t>(begin),
                                v.begin() + static_cast<std::ptrdiff_t>(end));
    };
    expect_same_bytes(part(gpu_weight->download()), part(weight), what + " weight");
    expect_same_bytes(part(gpu_first->download()), part(first), what + " first state");
    expect_same_bytes(part(gpu_second->download()), part(second), what + " second state");
  }

  std::int64_t count;
  bool is_grad_bf16;
  std::vector<bf16> narrow_grad;
  std::vector<float> grad, weight, first, second;  // [count]
  std::unique_ptr<DeviceArray<float>> gpu_grad, gpu_weight, gpu_first, gpu_second;
  std::unique_ptr<DeviceArray<bf16>> gpu_narrow_grad, gpu_copy;
};

std::vector<Tensor> tensors() {
  std::vector<Tensor> all;
  unsigned seed = 1;
  for (const bool bf16_grad : {false, true}) {
    for (const std::int64_t count : kCounts) all.emplace_back(count, seed += 10, bf16_grad);
  }
  return all;
}

std::vector<cuda::UpdateTile> tiles_of(const std::vector<Tensor>& all) {
  std::vector<cuda::UpdateTensor> entries;
  for (const Tensor& t : all) entries.push_back(t.entry());
  return cuda::cut_in_tiles(entries);
}

// An update of the tensors on the GPU with these losses; gives what becomes of the losses.
using Update = std::function<void(const cuda::StepValues*, const cuda::UpdateTile*, std::int64_t, const float*,
                                  const cuda::StepLosses&)>;
std::vector<float> run(const Update& update, const std::vector<Tensor>& all, cuda::StepValues values,
                       const float* scale, const std::vector<float>& losses) {
  const std::vector<cuda::UpdateTile> tiles = tiles_of(all);
  DeviceArray<cuda::UpdateTile> table(tiles);
  DeviceArray<cuda::StepValues> gpu_values(std::vector<cuda::StepValues>{values});
  DeviceArray<float> gpu_losses(losses), gpu_scale(std::vector<float>{scale == nullptr ? kNan : *scale});
  cuda::StepLosses step_losses;
  step_losses.count = static_cast<int>(losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) step_losses.loss[i] = gpu_losses.data() + i;
  update(gpu_values.data(), table.data(), static_cast<std::int64_t>(tiles.size()),
         scale == nullptr ? nullptr : gpu_scale.data(), step_losses);
  return gpu_losses.download();
}

Update sgd(const cuda::SgdSettings& settings) {
  return
      [=](const cuda::StepValues* values, const cuda::UpdateTile* tiles, std::int64_t count, const float* scale,
          const cuda::StepLosses& losses) { cuda::sgd_update(nullptr, values, settings, tiles, count, scale, losses); };
}

Update adamw(const cuda::AdamWSettings& settings) {
  return [=](const cuda::StepValues* values, const cuda::UpdateTile* tiles, std::int64_t count, const float* scale,
             const cuda::StepLosses& losses) {
    cuda::adamw_update(nullptr, values, settings, tiles, count, scale, losses);
  };
}

const std::vector<cuda::SgdSettings> kSgds = {{0.0f, 0.01f, false}, {0.9f, 0.01f, false}, {0.9f, 0.01f, true}};
const std::vector<cuda::AdamWSettings> kAdamWs = {{0.9, 0.999, 1e-8, 0.1}, {0.8, 0.95, 1e-6, 0.0}};

// Compares with on_cpu(tensor, scale), with and without a scale, and a tensor alone with the same among others.
template <class OnCpu>
void check(const Update& update, cuda::StepValues values, const OnCpu& on_cpu, const std::string& what) {
  const float factor = 0.37f;
  for (const float* scale : {static_cast<const float*>(nullptr), &factor}) {
    std::vector<Tensor> all = tensors(), again = tensors();
    const std::vector<float> losses = {1.5f, 2.5f};
    expect_same_bytes(run(update, all, values, scale, losses), losses, what + " losses");
    run(update, again, values, scale, {});
    for (std::size_t i = 0; i < all.size(); ++i) {
      on_cpu(all[i], scale);
      all[i].expect_as_on_cpu(what);
      expect_same_bytes(all[i].gpu_weight->download(), again[i].gpu_weight->download(), what);
    }
    std::vector<Tensor> alone;
    alone.push_back(std::move(tensors()[4]));
    run(update, alone, values, scale, {1.0f});
    expect_same_bytes(alone[0].gpu_weight->download(), all[4].gpu_weight->download(), what + " alone");
  }
}

TEST(CudaOptimizer, SgdIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const cuda::SgdSettings& s : kSgds) {
    check(
        sgd(s), {.step = 3, .learning_rate = 0.1f},
        [&](Tensor& t, const float* scale) {
          kernels::sgd_update({0.1f, s.momentum, s.weight_decay, s.nesterov}, t.grad.data(), scale, t.weight.data(),
                              t.first.data(), t.count, 0, kernels::blocks_of(t.count));
        },
        "sgd");
  }
}

TEST(CudaOptimizer, AdamWIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const cuda::AdamWSettings& s : kAdamWs) {
    for (const std::uint64_t step : {0u, 6u, 100000u}) {
      check(
          adamw(s), {.step = step, .learning_rate = 0.01f},
          [&](Tensor& t, const float* scale) {
            const kernels::AdamWStep now{static_cast<double>(0.01f),         s.beta1, s.beta2, s.eps, s.weight_decay,
                                         static_cast<std::int64_t>(step) + 1};
            kernels::adamw_update(now, t.grad.data(), scale, t.weight.data(), t.first.data(), t.second.data(), t.count,
                                  0, kernels::blocks_of(t.count));
          },
          "adamw, step " + std::to_string(step));
    }
  }
}

// SGD without momentum does without states.
TEST(CudaOptimizer, SgdNeedsNoStates) {
  OVERTAKE_NEEDS_GPU();
  const std::vector<float> weight = random_values<float>(5000, 1), grad = random_values<float>(5000, 2);
  DeviceArray<float> gpu_weight(weight), gpu_grad(grad);
  DeviceArray<cuda::StepValues> values(std::vector<cuda::StepValues>{{.learning_rate = 0.5f}});
  const cuda::UpdateTensor entry{gpu_grad.data(), false, gpu_weight.data(), nullptr, nullptr, nullptr, 5000};
  const std::vector<cuda::UpdateTile> tiles = cuda::cut_in_tiles(std::span(&entry, 1));
  ASSERT_EQ(tiles.size(), 2u);
  DeviceArray<cuda::UpdateTile> table(tiles);
  cuda::sgd_update(nullptr, values.data(), {0.0f, 0.0f, false}, table.data(), 2, nullptr, {});
  std::vector<float> want = weight;
  for (std::size_t i = 0; i < want.size(); ++i) want[i] -= 0.5f * grad[i];
  expect_close(gpu_weight.download(), want, 1e-6f, "weight");
}

TEST(CudaOptimizer, AStepWithALossThatIsNotFiniteChangesNothing) {
  OVERTAKE_NEEDS_GPU();
  for (const Update& update : {sgd(kSgds[1]), adamw(kAdamWs[0])}) {
    for (const std::vector<float>& losses :
         {std::vector<float>{kNan}, {1.0f, kInfinity}, {-kInfinity, 1.0f, 2.0f, 3.0f}, {0.0f, 1.0f, 2.0f, kNan}}) {
      std::vector<Tensor> all = tensors();
      expect_same_bytes(run(update, all, {.learning_rate = 0.1f}, nullptr, losses), losses, "losses");
      for (const Tensor& t : all) t.expect_untouched(0, t.weight.size(), "lost step");
    }
  }
}

TEST(CudaOptimizer, AGradientThatIsNotFiniteIsNotAppliedAndSpoilsTheLosses) {
  OVERTAKE_NEEDS_GPU();
  for (const Update& update : {sgd(kSgds[1]), adamw(kAdamWs[0])}) {
    for (const bool is_bf16 : {false, true}) {
      for (const float bad : {kNan, kInfinity, -kInfinity}) {
        for (const std::size_t place : {std::size_t{0}, std::size_t{4095}, std::size_t{4096}, std::size_t{9998}}) {
          std::vector<Tensor> all;
          all.emplace_back(9999, 5, is_bf16);
          all[0].grad[place] = bad;
          all[0].narrow_grad[place] = from_float<bf16>(bad);
          all[0].upload();
          for (const float loss : run(update, all, {.learning_rate = 0.1f}, nullptr, {1.0f, 2.0f, 3.0f}))
            EXPECT_TRUE(std::isnan(loss));
          const std::size_t begin = place / 4096 * 4096;
          all[0].expect_untouched(begin, std::min<std::size_t>(begin + 4096, 9999), "spoilt tile");
          for (const float w : all[0].gpu_weight->download()) ASSERT_TRUE(std::isfinite(w));
        }
      }
    }
  }
}

TEST(CudaOptimizer, AScaleThatIsNotFiniteChangesNoWeight) {
  OVERTAKE_NEEDS_GPU();
  std::vector<Tensor> all = tensors();
  for (const float loss : run(sgd(kSgds[1]), all, {.learning_rate = 0.1f}, &kNan, {1.0f}))
    EXPECT_TRUE(std::isnan(loss));
  for (const Tensor& t : all) t.expect_untouched(0, t.weight.size(), "spoilt step");
}

// The norm and the factor of the sums, downloaded.
std::vector<float> clip(const DeviceArray<double>& sums, float max_norm, const std::int64_t* order = nullptr) {
  DeviceArray<float> result(2);
  cuda::clip_factor(nullptr, sums.data(), order, static_cast<std::int64_t>(sums.size()), max_norm, result.data());
  return result.download();
}

TEST(CudaOptimizer, NormAndClipFactorAreTheCpus) {
  OVERTAKE_NEEDS_GPU();
  const std::vector<Tensor> all = tensors();
  std::vector<double> sums;
  std::vector<std::int64_t> firsts = {0};
  for (const Tensor& t : all) {
    std::vector<double> own(size(kernels::blocks_of(t.count)));
    kernels::squared_norm_partials(t.grad.data(), own.data(), t.count, 0, kernels::blocks_of(t.count));
    sums.push_back(kernels::sum_of_partials(own.data(), std::ssize(own)));
    firsts.push_back(firsts.back() + (t.count + cuda::kUpdateTile - 1) / cuda::kUpdateTile);
  }
  const std::vector<cuda::UpdateTile> tiles = tiles_of(all);
  DeviceArray<cuda::UpdateTile> table(tiles);
  ASSERT_EQ(firsts.back(), std::ssize(tiles));
  DeviceArray<double> tile_partials(tiles.size()), gpu_sums(all.size());
  DeviceArray<std::int64_t> gpu_firsts(firsts);
  cuda::squared_norm_partials(nullptr, table.data(), static_cast<std::int64_t>(tiles.size()), tile_partials.data());
  cuda::sums_of_partials(nullptr, tile_partials.data(), gpu_firsts.data(), std::ssize(all), gpu_sums.data());
  const std::vector<double> got_sums = gpu_sums.download();
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(got_sums[i], sums[i], 1e-12 * sums[i]) << i;
  std::vector<std::int64_t> backwards;
  for (std::int64_t i = std::ssize(sums); i-- > 0;) backwards.push_back(i);
  const std::vector<double> reversed(got_sums.rbegin(), got_sums.rend());
  DeviceArray<std::int64_t> order(backwards);
  DeviceArray<double> gpu_reversed(reversed);
  for (const float max_norm : {1.0f, 1e6f}) {
    float want[2];
    kernels::clip_factor(sums.data(), nullptr, std::ssize(sums), max_norm, want);
    for (const std::vector<float>& got : {clip(gpu_sums, max_norm), clip(DeviceArray<double>(sums), max_norm)}) {
      EXPECT_NEAR(got[0], want[0], 1e-6f * want[0]);
      EXPECT_NEAR(got[1], want[1], 1e-6f * want[1]);
    }
    // Wherever the sums lie, the same order gives the same bits.
    expect_same_bytes(clip(gpu_sums, max_norm), clip(gpu_reversed, max_norm, order.data()), "clip factor");
  }
}

}  // namespace
}  // namespace overtake
