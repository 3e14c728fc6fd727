// Batch, layer and group norm.

#include "base/error.h"
#include "exec/cuda/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/group_norm.h"
#include "kernels/cuda/layer_norm.h"

namespace overtake::cuda_bindings {
namespace {

using cuda::BatchNormChannels;
using cuda::BatchNormMask;
using cuda::NormFunction;

constexpr std::int64_t kFloat = sizeof(float);

NormFunction function_of(const TaskView& v) {
  const std::string& name = v.attrs().text("function");
  if (name == "none") return NormFunction::none;
  if (name == "relu") return NormFunction::relu;
  if (name == "hard_swish") return NormFunction::hard_swish;
  OVERTAKE_CHECK(name == "silu", "batch norm does not take {} on GPUs", name);
  return NormFunction::silu;
}

// Of the gradient of x, where it is added to another.
constexpr std::size_t kAdded = 8;

cuda::BatchNormPitches pitches_of(const TaskView& v) {
  const auto read = [&](std::size_t i) { return v.has_read(i) ? v.read(i).layout.pitch : 0; };
  const auto write = [&](std::size_t i) { return v.has_write(i) ? v.write(i).layout.pitch : 0; };
  if (v.kind() == Kind::forward) return {.x = read(0), .y = write(0)};
  if (v.kind() == Kind::weight_grad) return {.x = read(0), .dy = read(1)};
  return {.x = read(0), .dy = read(1), .dx = write(0), .add = read(kAdded)};
}

// The counters of a task: zero before each of its runs, since each run leaves them so.
unsigned* counters_of(BoundPlanData& program, std::int64_t rows, std::int64_t channels) {
  const std::vector<unsigned> zeros(static_cast<std::size_t>(cuda::batch_norm_counters(rows, channels)), 0);
  return const_cast<unsigned*>(program.upload(std::span<const unsigned>(zeros)));
}

template <class T>
Launch batch_norm_forward(const TaskView& v, BoundPlanData& program) {
  const std::int64_t channels = v.read(0).shape[1], rows = pixels_of(v.read(0));
  const NormFunction function = function_of(v);
  const auto eps = static_cast<float>(v.attrs().real("eps")), momentum = static_cast<float>(v.attrs().real("momentum"));
  const T *x = v.in<T>(0), *residual = v.in<T>(1);
  const float *gamma = v.in<float>(2), *beta = v.in<float>(3);
  T* y = v.out<T>(0);
  float *mean = v.out<float>(1), *rstd = v.out<float>(2), *running_mean = v.out<float>(3),
        *running_var = v.out<float>(4);
  const cuda::BatchNormPitches pitches = pitches_of(v);
  if (v.attrs().integer("training") == 0)
    return [=](cudaStream_t s) {
      cuda::batch_norm_running_rstd(s, running_var, eps, channels, rstd);
      cuda::batch_norm_apply(s, x, residual, BatchNormChannels{running_mean, rstd, gamma, beta}, rows, channels,
                             function, y, pitches);
    };
  if (v.has_read(kMoments))
    return [=, moments = v.in<double>(kMoments), members = members_of_moments(v)](cudaStream_t s) {
      cuda::batch_norm_joint_statistics(s, moments, members, rows, channels, eps, momentum, mean, rstd, running_mean,
                                        running_var);
      cuda::batch_norm_apply(s, x, residual, BatchNormChannels{mean, rstd, gamma, beta}, rows, channels, function, y,
                             pitches);
    };
  auto* partials = reinterpret_cast<float*>(v.scratch());
  unsigned* counters = counters_of(program, rows, channels);
  return [=](cudaStream_t s) {
    cuda::batch_norm_statistics(s, x, rows, channels, eps, momentum, mean, rstd, running_mean, running_var, partials,
                                counters, pitches);
    cuda::batch_norm_apply(s, x, residual, BatchNormChannels{mean, rstd, gamma, beta}, rows, channels, function, y,
                           pitches);
  };
}

template <class T>
Launch batch_norm_weight_grad(const TaskView& v, BoundPlanData& program) {
  const std::int64_t channels = v.read(0).shape[1], rows = pixels_of(v.read(0));
  const NormFunction function = function_of(v);
  const BatchNormMask mask = function == NormFunction::none
                                 ? BatchNormMask::none
                                 : (v.has_read(2) ? BatchNormMask::from_y : BatchNormMask::from_x);
  const T *x = v.in<T>(0), *dy = v.in<T>(1), *y = v.in<T>(2), *dy2 = v.in<T>(7);
  const BatchNormChannels norm{v.in<float>(3), v.in<float>(4), v.in<float>(5), v.in<float>(6)};
  float *dgamma = v.out<float>(0), *dbeta = v.out<float>(1);
  T* dz = v.out<T>(2);
  auto* partials = reinterpret_cast<float*>(v.scratch());
  unsigned* counters = counters_of(program, rows, channels);
  return [=, pitches = pitches_of(v)](cudaStream_t s) {
    cuda::batch_norm_weight_grad(s, x, dy, dy2, y, norm, function, mask, rows, channels, dz, dgamma, dbeta, partials,
                                 counters, pitches);
  };
}

template <class T>
Launch batch_norm_input_grad(const TaskView& v) {
  const std::int64_t channels = v.read(0).shape[1], rows = pixels_of(v.read(0));
  const NormFunction function = v.attrs().integer("masked") != 0 ? NormFunction::none : function_of(v);
  const T *x = v.in<T>(0), *dy = v.in<T>(1), *add = v.in<T>(kAdded);
  const BatchNormChannels norm{v.in<float>(2), v.in<float>(3), v.in<float>(4), v.in<float>(5)};
  const float *dgamma = v.in<float>(6), *dbeta = v.in<float>(7);
  T* dx = v.out<T>(0);
  const std::int64_t batch_rows = rows * v.attrs().integer("replicas", 1);
  return [=, pitches = pitches_of(v)](cudaStream_t s) {
    cuda::batch_norm_input_grad(s, x, dy, norm, dgamma, dbeta, function, rows, channels, dx, add, pitches, batch_rows);
  };
}

Launch bind_batch_norm(const TaskView& v, BoundPlanData& program) {
  return with_type(v.read(0).dtype, [&]<class T>(T) -> Launch {
    if (v.kind() == Kind::forward) return batch_norm_forward<T>(v, program);
    return v.kind() == Kind::weight_grad ? batch_norm_weight_grad<T>(v, program) : batch_norm_input_grad<T>(v);
  });
}

Launch bind_batch_moments(const TaskView& v, BoundPlanData& program) {
  const std::int64_t channels = v.read(0).shape[1], rows = pixels_of(v.read(0));
  auto* partials = reinterpret_cast<float*>(v.scratch());
  auto* moments = v.out<double>(0);
  unsigned* counters = counters_of(program, rows, channels);
  return with_type(v.read(0).dtype, [&]<class T>(T) -> Launch {
    return [=, x = v.in<T>(0), pitch = v.read(0).layout.pitch](cudaStream_t s) {
      cuda::batch_norm_moments(s, x, rows, channels, moments, partials, counters, {.x = pitch});
    };
  });
}

std::int64_t batch_norm_scratch(const TaskView& v, CudaDevice&) {
  if (v.kind() == Kind::input_grad || (v.kind() == Kind::forward && v.has_read(kMoments))) return 0;
  const std::int64_t rows = pixels_of(v.read(0)), channels = v.read(0).shape[1];
  return kFloat * (v.kind() == Kind::forward ? cuda::batch_norm_partials(rows, channels)
                                             : cuda::batch_norm_grad_partials(rows, channels));
}

Launch bind_layer_norm(const TaskView& v, BoundPlanData&) {
  const std::int64_t width = v.read(0).shape.back(), rows = rows_of(v.read(0));
  const auto eps = static_cast<float>(v.attrs().real("eps"));
  return with_type(v.read(0).dtype, [&]<class T>(T) -> Launch {
    const T* x = v.in<T>(0);
    if (v.kind() == Kind::forward) {
      const float *gamma = v.in<float>(1), *beta = v.in<float>(2);
      const T* residual = v.in<T>(3);
      T *y = v.out<T>(0), *sum = v.out<T>(3);
      float *mean = v.out<float>(1), *rstd = v.out<float>(2);
      return [=](cudaStream_t s) {
        cuda::layer_norm_forward<T>(s, x, residual, gamma, beta, rows, width, eps, y, sum, mean, rstd);
      };
    }
    const T* dy = v.in<T>(1);
    const float *mean = v.in<float>(2), *rstd = v.in<float>(3);
    if (v.kind() == Kind::input_grad) {
      const float* gamma = v.in<float>(4);
      const T* around = v.in<T>(5);
      T* dx = v.out<T>(0);
      return
          [=](cudaStream_t s) { cuda::layer_norm_input_grad<T>(s, x, dy, around, gamma, mean, rstd, rows, width, dx); };
    }
    float *dgamma = v.out<float>(0), *dbeta = v.out<float>(1);
    auto* partials = reinterpret_cast<float*>(v.scratch());
    return [=](cudaStream_t s) {
      cuda::layer_norm_weight_grad_reduce(s, x, dy, mean, rstd, rows, width, partials);
      cuda::layer_norm_weight_grad(s, partials, rows, width, dgamma, dbeta);
    };
  });
}

std::int64_t layer_norm_scratch(const TaskView& v, CudaDevice&) {
  if (v.kind() != Kind::weight_grad) return 0;
  return cuda::layer_norm_partials(rows_of(v.read(0)), v.read(0).shape.back()) * kFloat;
}

Launch bind_group_norm(const TaskView& v, BoundPlanData&) {
  const kernels::GroupNormShape shape = group_norm_shape(v);
  const auto eps = static_cast<float>(v.attrs().real("eps"));
  return with_type(v.read(0).dtype, [&]<class T>(T) -> Launch {
    const T* x = v.in<T>(0);
    auto* scratch = reinterpret_cast<float*>(v.scratch());
    if (v.kind() == Kind::forward) {
      const float *gamma = v.in<float>(1), *beta = v.in<float>(2);
      T* y = v.out<T>(0);
      float *mean = v.out<float>(1), *rstd = v.out<float>(2);
      return [=](cudaStream_t s) { cuda::group_norm_forward(s, shape, x, gamma, beta, eps, y, mean, rstd, scratch); };
    }
    const T* dy = v.in<T>(1);
    const float *mean = v.in<float>(2), *rstd = v.in<float>(3);
    if (v.kind() == Kind::input_grad) {
      const float* gamma = v.in<float>(4);
      T* dx = v.out<T>(0);
      return [=](cudaStream_t s) { cuda::group_norm_input_grad(s, shape, x, dy, gamma, mean, rstd, dx, scratch); };
    }
    float *dgamma = v.out<float>(0), *dbeta = v.out<float>(1);
    return [=](cudaStream_t s) {
      cuda::group_norm_weight_grad_reduce(s, shape, x, dy, mean, rstd, scratch);
      cuda::group_norm_weight_grad(s, shape, scratch, dgamma, dbeta);
    };
  });
}

std::int64_t group_norm_scratch(const TaskView& v, CudaDevice&) {
  return cuda::group_norm_partials(group_norm_shape(v)) * kFloat;
}

}  // namespace

CudaBinding group_norm() { return {bind_group_norm, group_norm_scratch}; }
CudaBinding batch_norm() { return {bind_batch_norm, batch_norm_scratch}; }
CudaBinding batch_moments() { return {bind_batch_moments, batch_norm_scratch}; }
CudaBinding layer_norm() { return {bind_layer_norm, layer_norm_scratch}; }

}  // namespace overtake::cuda_bindings
