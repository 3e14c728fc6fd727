// Cross entropy and mean squared error.

#include "exec/cpu/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cpu/block.h"

namespace overtake {
namespace {

BoundTask cross_entropy(const TaskView& v) {
  const kernels::CrossEntropy loss = cross_entropy_of(v);
  const std::int64_t rows = rows_of(v.read(0));
  const auto* labels = v.in<std::int32_t>(1);
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* logits = v.in<T>(0);
    if (v.kind() == Kind::forward) {
      float *metrics = v.out<float>(0), *lse = v.out<float>(1);
      auto* row_loss = reinterpret_cast<float*>(v.scratch());
      float* row_correct = row_loss + rows;
      const std::string layer = v.graph().layer_name(v.task().layer);
      return {over_units(parts_for(v, rows, 4), rows,
                         [=](std::int64_t begin, std::int64_t end) {
                           const std::int64_t bad = kernels::cross_entropy_forward(loss, logits, labels, row_loss, lse,
                                                                                   row_correct, begin, end);
                           if (bad >= 0)
                             fail_user("layer '{}': label {} of row {} is outside the {} classes; check the data",
                                       layer, labels[bad], bad, loss.classes);
                         }),
              {1, [=](std::uint32_t, const StepArgs&) {
                 kernels::cross_entropy_combine(loss, row_loss, row_correct, labels, rows, metrics);
               }}};
    }
    const float *lse = v.in<float>(2), *metrics = v.in<float>(3);
    const auto scale = static_cast<float>(v.attrs().real("scale", 1.0));
    T* grad = v.out<T>(0);
    return {over_units(parts_for(v, rows, 4), rows, [=](std::int64_t begin, std::int64_t end) {
      kernels::cross_entropy_input_grad(loss, logits, labels, lse, metrics + 1, scale, grad, begin, end);
    })};
  });
}

std::int64_t cross_entropy_scratch(const TaskView& v) {
  if (v.kind() != Kind::forward) return 0;
  return 2 * v.read(1).shape.elements() * static_cast<std::int64_t>(sizeof(float));
}

BoundTask mse(const TaskView& v) {
  const std::int64_t count = v.read(0).shape.elements(), blocks = kernels::blocks_of(count);
  const auto rows = static_cast<float>(v.read(0).shape[0]);
  const float* target = v.in<float>(1);
  return with_type(v.read(0).dtype, [&]<class T>(T) -> BoundTask {
    const T* x = v.in<T>(0);
    if (v.kind() == Kind::forward) {
      float* metrics = v.out<float>(0);
      auto* partials = reinterpret_cast<double*>(v.scratch());
      return {over_units(parts_for(v, blocks, 8), blocks,
                         [=](std::int64_t begin, std::int64_t end) {
                           kernels::mean_squared_error_forward(x, target, partials, count, begin, end);
                         }),
              {1, [=](std::uint32_t, const StepArgs&) {
                 kernels::mean_squared_error_combine(partials, count, metrics);
                 metrics[1] = rows;
                 metrics[2] = 0.0f;
               }}};
    }
    T* grad = v.out<T>(0);
    const auto scale = static_cast<float>(v.attrs().real("scale", 1.0));
    return {over_units(parts_for(v, blocks, 8), blocks, [=](std::int64_t begin, std::int64_t end) {
      kernels::mean_squared_error_input_grad(x, target, scale, grad, count, begin, end);
    })};
  });
}

std::int64_t mse_scratch(const TaskView& v) {
  if (v.kind() != Kind::forward) return 0;
  return kernels::blocks_of(v.read(0).shape.elements()) * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace

CpuBinding bind_cross_entropy() { return {cross_entropy, cross_entropy_scratch}; }
CpuBinding bind_mse() { return {mse, mse_scratch}; }

}  // namespace overtake
