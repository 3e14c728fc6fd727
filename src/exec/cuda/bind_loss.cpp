// Cross entropy and mean squared error.

#include "exec/cuda/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cuda/loss.h"

namespace overtake::cuda_bindings {
namespace {

Launch bind_cross_entropy(const TaskView& v, BoundPlanData& program) {
  const kernels::CrossEntropy loss = cross_entropy_of(v);
  const std::int64_t rows = rows_of(v.read(0));
  const auto* labels = v.in<std::int32_t>(1);
  const auto scale = static_cast<float>(v.attrs().real("scale", 1.0));
  return with_type(v.read(0).dtype, [&]<class T>(T) -> Launch {
    const T* logits = v.in<T>(0);
    if (v.kind() == Kind::forward) {
      float *metrics = v.out<float>(0), *lse = v.out<float>(1);
      void* scratch = v.scratch();
      std::int64_t* bad =
          program.add_check([classes = loss.classes, layer = v.graph().layer_name(v.task().layer)](std::int64_t row) {
            fail_user("layer '{}': the label of row {} is outside the {} classes; check the data", layer, row, classes);
          });
      return [=](cudaStream_t s) {
        cuda::cross_entropy_forward(s, loss, logits, labels, rows, lse, metrics, bad, scratch);
      };
    }
    const float *lse = v.in<float>(2), *metrics = v.in<float>(3);
    T* grad = v.out<T>(0);
    return [=](cudaStream_t s) {
      cuda::cross_entropy_input_grad(s, loss, logits, labels, lse, metrics + 1, scale, rows, grad);
    };
  });
}

std::int64_t cross_entropy_scratch(const TaskView& v, CudaDevice&) {
  return v.kind() == Kind::forward ? static_cast<std::int64_t>(cuda::cross_entropy_scratch_bytes(rows_of(v.read(0))))
                                   : 0;
}

Launch bind_mse(const TaskView& v, BoundPlanData&) {
  const std::int64_t count = v.read(0).shape.elements(), rows = v.read(0).shape[0];
  const float* target = v.in<float>(1);
  const auto scale = static_cast<float>(v.attrs().real("scale", 1.0));
  return with_type(v.read(0).dtype, [&]<class T>(T) -> Launch {
    const T* x = v.in<T>(0);
    if (v.kind() == Kind::forward) {
      float* metrics = v.out<float>(0);
      void* scratch = v.scratch();
      return [=](cudaStream_t s) { cuda::mean_squared_error_forward(s, x, target, count, rows, metrics, scratch); };
    }
    T* grad = v.out<T>(0);
    return [=](cudaStream_t s) { cuda::mean_squared_error_input_grad(s, x, target, scale, grad, count); };
  });
}

std::int64_t mse_scratch(const TaskView& v, CudaDevice&) {
  return v.kind() == Kind::forward
             ? static_cast<std::int64_t>(cuda::mean_squared_error_scratch_bytes(v.read(0).shape.elements()))
             : 0;
}

}  // namespace

CudaBinding cross_entropy() { return {bind_cross_entropy, cross_entropy_scratch}; }
CudaBinding mse() { return {bind_mse, mse_scratch}; }

}  // namespace overtake::cuda_bindings
