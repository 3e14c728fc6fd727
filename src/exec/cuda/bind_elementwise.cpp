// Activation, dropout, add, mul, chain, sum, softmax, expand, reduce.

#include "exec/cuda/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/binary.h"
#include "kernels/cuda/chain.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/softmax.h"

namespace overtake::cuda_bindings {
namespace {

using kernels::BinaryOp;

Launch bind_activation(const TaskView& v, BoundPlanData&) {
  const kernels::ActivationFunction function = activation_function(v.attrs());
  const bool is_forward = v.kind() == Kind::forward;
  const std::int64_t count = v.write(0).shape.elements();
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T *x = v.in<T>(0), *y = v.in<T>(1), *dy = v.in<T>(2);
    T* out = v.out<T>(0);
    if (is_forward) return [=](cudaStream_t s) { cuda::activation_forward(s, function, x, out, count); };
    return [=](cudaStream_t s) { cuda::activation_backward(s, function, x, y, dy, out, count); };
  });
}

Launch bind_dropout(const TaskView& v, BoundPlanData& program) {
  const std::int64_t count = v.write(0).shape.elements();
  const bool is_training = v.attrs().integer("training") != 0;
  const auto p = static_cast<float>(is_training ? v.attrs().real("p") : 0.0);
  const auto salt = static_cast<std::uint32_t>(v.attrs().integer("salt"));
  const cuda::StepValues* values = program.step_values();
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T* x = v.in<T>(0);
    T* y = v.out<T>(0);
    return [=](cudaStream_t s) { cuda::dropout(s, values, salt, p, x, y, count); };
  });
}

template <BinaryOp op>
Launch bind_binary(const TaskView& v, BoundPlanData&) {
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T *a = v.in<T>(0), *b = v.in<T>(1);
    T* out = v.out<T>(0);
    if (v.kind() == Kind::forward)
      return [=, plan = binary_plan(v)](cudaStream_t s) { cuda::binary_forward(s, op, plan, a, b, out); };
    void* scratch = v.scratch();
    return [=, plan = binary_grad_plan(v, op)](cudaStream_t s) { cuda::binary_backward(s, plan, a, b, out, scratch); };
  });
}

Launch bind_chain(const TaskView& v, BoundPlanData&) {
  const std::int64_t count = v.write(0).shape.elements();
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    std::vector<const T*> in;
    std::vector<T*> out;
    for (std::size_t i = 0; i < v.reads(); ++i) in.push_back(v.in<T>(i));
    for (std::size_t i = 0; i < v.writes(); ++i) out.push_back(v.out<T>(i));
    return [=, program = chain_program(v)](cudaStream_t s) { cuda::chain<T>(s, program, in, out, count); };
  });
}

std::int64_t grad_scratch(const kernels::BinaryGradPlan& plan, DType dtype) {
  return with_type(dtype,
                   [&]<class T>(T) { return static_cast<std::int64_t>(cuda::binary_backward_scratch_bytes<T>(plan)); });
}

template <BinaryOp op>
std::int64_t binary_scratch(const TaskView& v, CudaDevice&) {
  return v.kind() == Kind::forward ? 0 : grad_scratch(binary_grad_plan(v, op), v.write(0).dtype);
}

constexpr std::size_t kMostSummands = 128;  // of one launch

// Equal layouts, so the order of elements does not matter; padding adds up to padding.
std::int64_t summed_elements(const TaskView& v) { return padded_elements(v.write(0).layout, v.write(0).shape.span()); }

Launch bind_sum(const TaskView& v, BoundPlanData&) {
  const std::int64_t count = summed_elements(v);
  if (has_mixed_types(v)) {
    return with_type(v.read(0).dtype, [&]<class A>(A) {
      return with_type(v.write(0).dtype, [&]<class Out>(Out) -> Launch {
        return [=, a = v.in<A>(0), b = v.in<bf16>(1), out = v.out<Out>(0)](cudaStream_t s) {
          cuda::add_bf16(s, a, b, out, count);
        };
      });
    });
  }
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    std::vector<const T*> in;
    for (std::size_t i = 0; i < v.reads(); ++i) in.push_back(v.in<T>(i));
    T *out = v.out<T>(0), *so_far = reinterpret_cast<T*>(v.scratch());
    return [=](cudaStream_t s) {
      std::vector<const T*> rest = in;
      // The result may lie on an operand that is still to come, so what is summed so far does not go there.
      while (rest.size() > kMostSummands) {
        cuda::sum_n<T>(s, std::span(rest).first(kMostSummands), so_far, count);
        rest.erase(rest.begin(), rest.begin() + (kMostSummands - 1));
        rest[0] = so_far;
      }
      cuda::sum_n<T>(s, rest, out, count);
    };
  });
}

std::int64_t sum_scratch(const TaskView& v, CudaDevice&) {
  return v.reads() > kMostSummands ? summed_elements(v) * bytes_of(v.write(0).dtype) : 0;
}

Launch bind_softmax(const TaskView& v, BoundPlanData&) {
  const AxisView y = along(v.write(0), v.attrs().integer("axis"));
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T *first = v.in<T>(0), *dy = v.in<T>(1);
    T* out = v.out<T>(0);
    if (v.kind() == Kind::forward)
      return [=](cudaStream_t s) { cuda::softmax_forward(s, first, out, y.axis, y.inner, y.outer); };
    return [=](cudaStream_t s) { cuda::softmax_backward(s, first, dy, out, y.axis, y.inner, y.outer); };
  });
}

Launch bind_expand(const TaskView& v, BoundPlanData&) {
  const auto scale = static_cast<float>(v.attrs().real("scale", 1.0));
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T* x = v.in<T>(0);
    T* y = v.out<T>(0);
    return [=, plan = expand_plan(v)](cudaStream_t s) { cuda::expand(s, plan, scale, x, y); };
  });
}

Launch bind_reduce(const TaskView& v, BoundPlanData&) {
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    const T* x = v.in<T>(0);
    T* y = v.out<T>(0);
    void* scratch = v.scratch();
    return [=, plan = reduce_plan(v)](cudaStream_t s) { cuda::binary_backward<T>(s, plan, x, nullptr, y, scratch); };
  });
}

std::int64_t reduce_scratch(const TaskView& v, CudaDevice&) { return grad_scratch(reduce_plan(v), v.write(0).dtype); }

}  // namespace

CudaBinding activation() { return {bind_activation, nullptr}; }
CudaBinding dropout() { return {bind_dropout, nullptr}; }
CudaBinding add() { return {bind_binary<BinaryOp::add>, binary_scratch<BinaryOp::add>}; }
CudaBinding mul() { return {bind_binary<BinaryOp::mul>, binary_scratch<BinaryOp::mul>}; }
CudaBinding chain() { return {bind_chain, nullptr}; }
CudaBinding sum() { return {bind_sum, sum_scratch}; }
CudaBinding softmax() { return {bind_softmax, nullptr}; }
CudaBinding expand() { return {bind_expand, nullptr}; }
CudaBinding reduce() { return {bind_reduce, reduce_scratch}; }

}  // namespace overtake::cuda_bindings
