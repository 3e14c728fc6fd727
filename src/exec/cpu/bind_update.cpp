// Clipping and the optimizers. Weight, gradient and states lie alike, padding included, so updates are elementwise over
// memory whatever the layout. A step whose loss is not finite changes no weight; a gradient that is not finite is not
// applied, and makes the step's loss NaN, so that the host sees it.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "exec/cpu/bindings.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/nan.h"
#include "kernels/cpu/optimizer.h"

namespace overtake {
namespace {

using kernels::blocks_of;

std::int64_t stored_elements(const Buffer& b) { return padded_elements(b.layout, b.shape.span()); }

// The losses a step stands or falls with; every gradient depends on them, so they are there in time.
class StepHealth {
 public:
  explicit StepHealth(const TaskView& v) {
    for (const BufferId b : v.graph().losses) losses_.push_back(reinterpret_cast<float*>(v.address(b)));
  }
  bool is_good() const {
    return std::ranges::all_of(
        losses_, [](float* loss) { return std::isfinite(std::atomic_ref(*loss).load(std::memory_order_relaxed)); });
  }
  void spoil() const {
    for (float* loss : losses_)
      std::atomic_ref(*loss).store(std::numeric_limits<float>::quiet_NaN(), std::memory_order_relaxed);
  }

 private:
  std::vector<float*> losses_;
};

// An update in strips: each strip of the gradient is looked at while it is in the nearest cache anyway. One gradient
// that is not finite spoils the factor that clips all of them. update(begin, end, args) works on blocks.
template <class Update>
BoundTask guarded_update(const TaskView& v, std::int64_t count, const float* grad, const float* factor, Update update) {
  constexpr std::int64_t kStrip = 4;
  const std::int64_t blocks = blocks_of(count);
  return {over_units(parts_for(v, blocks, kLeastBlocks), blocks,
                     [=, health = StepHealth(v)](std::int64_t begin, std::int64_t end, const StepArgs& args) {
                       for (std::int64_t first = begin; first < end && health.is_good(); first += kStrip) {
                         const std::int64_t last = std::min(first + kStrip, end);
                         const bool is_clipped_well = factor == nullptr || std::isfinite(*factor);
                         if (is_clipped_well && kernels::first_non_finite(grad, count, first, last) < 0)
                           update(first, last, args);
                         else
                           health.spoil();
                       }
                     })};
}

BoundTask squared_norm(const TaskView& v) {
  auto* partials = reinterpret_cast<double*>(v.scratch());
  auto* sums = v.out<double>(0);
  BoundTask task;
  std::vector<std::int64_t> firsts = {0};  // of each gradient's partials, and the end
  for (std::size_t i = 0; i < v.reads(); ++i) {
    const float* grad = v.in<float>(i);
    const std::int64_t count = stored_elements(v.read(i)), blocks = blocks_of(count);
    double* mine = partials + firsts.back();
    task.push_back(over_units(parts_for(v, blocks, kLeastBlocks), blocks, [=](std::int64_t begin, std::int64_t end) {
      kernels::squared_norm_partials(grad, mine, count, begin, end);
    }));
    firsts.push_back(firsts.back() + blocks);
  }
  task.push_back({1, [=](std::uint32_t, const StepArgs&) {
                    for (std::size_t i = 0; i + 1 < firsts.size(); ++i)
                      sums[i] = kernels::sum_of_partials(partials + firsts[i], firsts[i + 1] - firsts[i]);
                  }});
  return task;
}

std::int64_t squared_norm_scratch(const TaskView& v) {
  std::int64_t blocks = 0;
  for (std::size_t i = 0; i < v.reads(); ++i) blocks += blocks_of(stored_elements(v.read(i)));
  return blocks * static_cast<std::int64_t>(sizeof(double));
}

BoundTask clip_norm(const TaskView& v) {
  const auto max_norm = static_cast<float>(v.attrs().real("max_norm"));
  std::vector<std::int64_t> order;
  if (v.attrs().has("order")) order = v.attrs().integers("order");
  const std::int64_t count =
      order.empty() ? v.read(0).shape[0] / std::int64_t{sizeof(double)} : static_cast<std::int64_t>(order.size());
  const auto* sums = v.in<double>(0);
  float* result = v.out<float>(0);
  return {{1, [=](std::uint32_t, const StepArgs&) {
             kernels::clip_factor(sums, order.empty() ? nullptr : order.data(), count, max_norm, result);
           }}};
}

// The factor is the second of clip_norm's two results.
const float* factor_of(const TaskView& v) { return v.has_read(2) ? v.in<float>(2) + 1 : nullptr; }

BoundTask sgd(const TaskView& v) {
  const std::int64_t count = stored_elements(v.write(0));
  const auto momentum = static_cast<float>(v.attrs().real("momentum"));
  const auto decay = static_cast<float>(v.attrs().real("weight_decay"));
  const bool is_nesterov = v.attrs().integer("nesterov") != 0;
  const float *grad = v.in<float>(1), *factor = factor_of(v);
  float *weight = v.out<float>(0), *velocity = v.out<float>(1);
  return guarded_update(v, count, grad, factor, [=](std::int64_t begin, std::int64_t end, const StepArgs& args) {
    kernels::sgd_update({args.learning_rate, momentum, decay, is_nesterov}, grad, factor, weight, velocity, count,
                        begin, end);
  });
}

BoundTask adamw(const TaskView& v) {
  const std::int64_t count = stored_elements(v.write(0));
  const Attrs& a = v.attrs();
  const kernels::AdamWStep settings{0, a.real("beta1"), a.real("beta2"), a.real("eps"), a.real("weight_decay"), 0};
  const float *grad = v.in<float>(1), *factor = factor_of(v);
  float *weight = v.out<float>(0), *m = v.out<float>(1), *s = v.out<float>(2);
  return guarded_update(v, count, grad, factor, [=](std::int64_t begin, std::int64_t end, const StepArgs& args) {
    kernels::AdamWStep now = settings;
    now.learning_rate = static_cast<double>(args.learning_rate);
    now.step = static_cast<std::int64_t>(args.step) + 1;
    kernels::adamw_update(now, grad, factor, weight, m, s, count, begin, end);
  });
}

}  // namespace

CpuBinding bind_squared_norm() { return {squared_norm, squared_norm_scratch}; }
CpuBinding bind_clip_norm() { return {clip_norm, nullptr}; }
CpuBinding bind_sgd() { return {sgd, nullptr}; }
CpuBinding bind_adamw() { return {adamw, nullptr}; }

}  // namespace overtake
