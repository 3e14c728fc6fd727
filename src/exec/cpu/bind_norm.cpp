// Batch, layer and group norm.

#include "exec/cpu/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cpu/batch_norm.h"
#include "kernels/cpu/layer_norm.h"

namespace overtake {
namespace {

using kernels::BatchNormMask;
using kernels::row_chunks;

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kLeastChannels = 64;  // a part of a combine below that is not worth a hand-over

// The first phase of the statistics of x, the first operand.
template <class T>
Phase reduction(const TaskView& v, const T* x, float* partials) {
  const std::int64_t channels = v.read(0).shape[1], rows = pixels_of(v.read(0)), chunks = row_chunks(rows);
  return over_units(parts_for(v, chunks), chunks, [=](std::int64_t begin, std::int64_t end) {
    kernels::batch_norm_reduce(x, rows, channels, partials, begin, end);
  });
}

BoundTask batch_moments(const TaskView& v) {
  const std::int64_t channels = v.read(0).shape[1], rows = pixels_of(v.read(0));
  auto* partials = reinterpret_cast<float*>(v.scratch());
  auto* moments = v.out<double>(0);
  return {with_type(v.read(0).dtype, [&]<class T>(T) { return reduction(v, v.in<T>(0), partials); }),
          over_units(parts_for(v, channels, kLeastChannels), channels, [=](std::int64_t begin, std::int64_t end) {
            kernels::batch_norm_moments(partials, rows, channels, moments, begin, end);
          })};
}

BoundTask batch_norm_forward(const TaskView& v) {
  const std::int64_t channels = v.read(0).shape[1], rows = pixels_of(v.read(0));
  const bool is_relu = v.attrs().text("function") == "relu", is_training = v.attrs().integer("training") != 0;
  const auto eps = static_cast<float>(v.attrs().real("eps")), momentum = static_cast<float>(v.attrs().real("momentum"));
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *x = v.in<T>(0), *residual = v.in<T>(1);
    const float *gamma = v.in<float>(2), *beta = v.in<float>(3);
    T* y = v.out<T>(0);
    float *mean = v.out<float>(1), *rstd = v.out<float>(2), *running_mean = v.out<float>(3),
          *running_var = v.out<float>(4);
    auto* partials = reinterpret_cast<float*>(v.scratch());
    const auto apply = [=](const float* center) {
      return [=](std::int64_t begin, std::int64_t end) {
        kernels::batch_norm_apply(x, residual, {center, rstd, gamma, beta}, channels, is_relu, y, begin, end);
      };
    };
    const std::uint32_t parts = parts_for(v, rows, 64);
    if (!is_training)
      return {{1, [=](std::uint32_t,
                      const StepArgs&) { kernels::batch_norm_running_rstd(running_var, eps, rstd, 0, channels); }},
              over_units(parts, rows, apply(running_mean))};
    if (v.has_read(kMoments)) {
      const auto* moments = v.in<double>(kMoments);
      const std::int64_t members = members_of_moments(v);
      return {over_units(parts_for(v, channels, kLeastChannels), channels,
                         [=](std::int64_t begin, std::int64_t end) {
                           kernels::batch_norm_joint_statistics(moments, members, rows, channels, eps, momentum, mean,
                                                                rstd, running_mean, running_var, begin, end);
                         }),
              over_units(parts, rows, apply(mean))};
    }
    return {reduction(v, x, partials),
            over_units(parts_for(v, channels, kLeastChannels), channels,
                       [=](std::int64_t begin, std::int64_t end) {
                         kernels::batch_norm_statistics(partials, rows, channels, eps, momentum, mean, rstd,
                                                        running_mean, running_var, begin, end);
                       }),
            over_units(parts, rows, apply(mean))};
  });
}

BoundTask batch_norm_weight_grad(const TaskView& v) {
  const std::int64_t channels = v.read(0).shape[1], rows = pixels_of(v.read(0)), chunks = row_chunks(rows);
  const bool is_relu = v.attrs().text("function") == "relu";
  const BatchNormMask mask =
      !is_relu ? BatchNormMask::none : (v.has_read(2) ? BatchNormMask::from_y : BatchNormMask::from_x);
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *x = v.in<T>(0), *dy = v.in<T>(1), *y = v.in<T>(2);
    const kernels::BatchNormChannels norm{v.in<float>(3), v.in<float>(4), v.in<float>(5), v.in<float>(6)};
    float *dgamma = v.out<float>(0), *dbeta = v.out<float>(1);
    T* dz = v.out<T>(2);
    auto* partials = reinterpret_cast<float*>(v.scratch());
    BoundTask task = {over_units(parts_for(v, chunks), chunks, [=](std::int64_t begin, std::int64_t end) {
      kernels::batch_norm_grad_reduce(x, dy, y, norm, mask, rows, channels, dz, partials, begin, end);
    })};
    if (dgamma != nullptr || dbeta != nullptr)
      task.push_back(
          over_units(parts_for(v, channels, kLeastChannels), channels, [=](std::int64_t begin, std::int64_t end) {
            kernels::batch_norm_weight_grad(partials, rows, channels, norm.rstd, dgamma, dbeta, begin, end);
          }));
    return task;
  });
}

BoundTask batch_norm_input_grad(const TaskView& v) {
  const std::int64_t channels = v.read(0).shape[1], rows = pixels_of(v.read(0));
  const std::int64_t batch_rows = rows * v.attrs().integer("replicas", 1);
  const bool has_mask = v.attrs().text("function") == "relu" && v.attrs().integer("masked") == 0;
  const BatchNormMask mask = has_mask ? BatchNormMask::from_x : BatchNormMask::none;
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T *x = v.in<T>(0), *dy = v.in<T>(1);
    const kernels::BatchNormChannels norm{v.in<float>(2), v.in<float>(3), v.in<float>(4), v.in<float>(5)};
    const float *dgamma = v.in<float>(6), *dbeta = v.in<float>(7);
    T* dx = v.out<T>(0);
    return {over_units(parts_for(v, rows, 64), rows, [=](std::int64_t begin, std::int64_t end) {
      kernels::batch_norm_input_grad(x, dy, norm, dgamma, dbeta, mask, batch_rows, channels, dx, begin, end);
    })};
  });
}

BoundTask batch_norm(const TaskView& v) {
  if (v.kind() == Kind::forward) return batch_norm_forward(v);
  return v.kind() == Kind::weight_grad ? batch_norm_weight_grad(v) : batch_norm_input_grad(v);
}

std::int64_t batch_norm_scratch(const TaskView& v) {
  if (v.kind() == Kind::input_grad || (v.kind() == Kind::forward && v.has_read(kMoments))) return 0;
  const std::int64_t rows = pixels_of(v.read(0)), channels = v.read(0).shape[1];
  return kFloat * (v.kind() == Kind::forward ? kernels::batch_norm_partials(rows, channels)
                                             : kernels::batch_norm_grad_partials(rows, channels));
}

BoundTask layer_norm(const TaskView& v) {
  const std::int64_t width = v.read(0).shape.back(), rows = v.read(0).shape.elements() / width;
  const auto eps = static_cast<float>(v.attrs().real("eps"));
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* x = v.in<T>(0);
    if (v.kind() == Kind::forward) {
      const float *gamma = v.in<float>(1), *beta = v.in<float>(2);
      const T* residual = v.in<T>(3);
      T *y = v.out<T>(0), *sum = v.out<T>(3);
      float *mean = v.out<float>(1), *rstd = v.out<float>(2);
      return {over_units(parts_for(v, rows, 4), rows, [=](std::int64_t begin, std::int64_t end) {
        kernels::layer_norm_forward<T>(x, residual, gamma, beta, width, eps, y, sum, mean, rstd, begin, end);
      })};
    }
    const T* dy = v.in<T>(1);
    const float *mean = v.in<float>(2), *rstd = v.in<float>(3);
    if (v.kind() == Kind::input_grad) {
      const float* gamma = v.in<float>(4);
      const T* around = v.in<T>(5);
      T* dx = v.out<T>(0);
      return {over_units(parts_for(v, rows, 4), rows, [=](std::int64_t begin, std::int64_t end) {
        kernels::layer_norm_input_grad<T>(x, dy, around, gamma, mean, rstd, width, dx, begin, end);
      })};
    }
    float *dgamma = v.out<float>(0), *dbeta = v.out<float>(1);
    auto* partials = reinterpret_cast<float*>(v.scratch());
    const std::int64_t chunks = row_chunks(rows);
    return {over_units(parts_for(v, chunks), chunks,
                       [=](std::int64_t begin, std::int64_t end) {
                         kernels::layer_norm_weight_grad_reduce(x, dy, mean, rstd, rows, width, partials, begin, end);
                       }),
            over_units(parts_for(v, width, kLeastChannels), width, [=](std::int64_t begin, std::int64_t end) {
              kernels::layer_norm_weight_grad(partials, rows, width, dgamma, dbeta, begin, end);
            })};
  });
}

std::int64_t layer_norm_scratch(const TaskView& v) {
  if (v.kind() != Kind::weight_grad) return 0;
  const std::int64_t width = v.read(0).shape.back();
  return kernels::layer_norm_partials(v.read(0).shape.elements() / width, width) * kFloat;
}

BoundTask group_norm(const TaskView& v) {
  const kernels::GroupNormShape s = group_norm_shape(v);
  const auto eps = static_cast<float>(v.attrs().real("eps"));
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* x = v.in<T>(0);
    if (v.kind() == Kind::forward) {
      const float *gamma = v.in<float>(1), *beta = v.in<float>(2);
      T* y = v.out<T>(0);
      float *mean = v.out<float>(1), *rstd = v.out<float>(2);
      return {over_units(parts_for(v, s.batch), s.batch, [=](std::int64_t begin, std::int64_t end) {
        kernels::group_norm_forward(s, x, gamma, beta, eps, y, mean, rstd, begin, end);
      })};
    }
    const T* dy = v.in<T>(1);
    const float *mean = v.in<float>(2), *rstd = v.in<float>(3);
    auto* scratch = reinterpret_cast<float*>(v.scratch());
    if (v.kind() == Kind::input_grad) {
      const float* gamma = v.in<float>(4);
      T* dx = v.out<T>(0);
      return {over_units(parts_for(v, s.batch), s.batch, [=](std::int64_t begin, std::int64_t end) {
        kernels::group_norm_input_grad(s, x, dy, gamma, mean, rstd, scratch, dx, begin, end);
      })};
    }
    float *dgamma = v.out<float>(0), *dbeta = v.out<float>(1);
    return {over_units(parts_for(v, s.batch), s.batch,
                       [=](std::int64_t begin, std::int64_t end) {
                         kernels::group_norm_weight_grad_reduce(s, x, dy, mean, rstd, scratch, begin, end);
                       }),
            over_units(parts_for(v, s.channels, kLeastChannels), s.channels, [=](std::int64_t begin, std::int64_t end) {
              kernels::group_norm_weight_grad(s, scratch, dgamma, dbeta, begin, end);
            })};
  });
}

std::int64_t group_norm_scratch(const TaskView& v) {
  const kernels::GroupNormShape s = group_norm_shape(v);
  if (v.kind() == Kind::forward) return 0;
  return 2 * s.batch * (v.kind() == Kind::input_grad ? s.groups : s.channels) * kFloat;
}

}  // namespace

CpuBinding bind_batch_norm() { return {batch_norm, batch_norm_scratch}; }
CpuBinding bind_batch_moments() { return {batch_moments, batch_norm_scratch}; }
CpuBinding bind_layer_norm() { return {layer_norm, layer_norm_scratch}; }
CpuBinding bind_group_norm() { return {group_norm, group_norm_scratch}; }

}  // namespace overtake
