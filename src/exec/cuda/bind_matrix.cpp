// Linear, matmul, attention.

#include "base/error.h"
#include "exec/cuda/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/binary.h"
#include "ops/op.h"

namespace overtake::cuda_bindings {
namespace {

using cuda::ElementType;
using cuda::ProductExtra;
using cuda::ProductOperands;
using cuda::ProductShape;

ElementType type_of(const Buffer& b) { return b.dtype == DType::bf16 ? ElementType::bf16 : ElementType::f32; }

Launch run_product(const cuda::Product& product, const ProductOperands& operands, float scale, void* workspace) {
  return [=, &product](cudaStream_t s) { product.run(s, operands, scale, workspace); };
}

// cuBLASLt applies relu and the approximate gelu on the way out, beside a bias, and gelu's derivative; those of gelu
// want rows of 16 bytes. Everything else is a pass of its own behind the product.
bool is_aligned(const Buffer& b) { return b.shape.back() % 8 == 0; }

ProductExtra forward_extra(const TaskView& v) {
  if (!v.has_read(2)) return ProductExtra::none;
  const std::string function = v.attrs().has("function") ? v.attrs().text("function") : "";
  if (function == "relu") return ProductExtra::bias_relu;
  return function == "gelu_tanh" && is_aligned(v.write(0)) ? ProductExtra::bias_gelu_tanh : ProductExtra::bias;
}

ProductExtra input_grad_extra(const TaskView& v) {
  const bool is_on_the_way = v.has_read(2) && v.attrs().text("derivative") == "gelu_tanh" && is_aligned(v.write(0));
  return is_on_the_way ? ProductExtra::gelu_tanh_grad : ProductExtra::none;
}

// y [rows, out] = x [rows, in] w [out, in]^T, dx = dz w, dw = dz^T x.
ProductShape linear_shape(const TaskView& v, CudaDevice& device) {
  ProductShape s;
  s.tf32 = device.has_tf32();
  const std::int64_t rows = rows_of(v.kind() == Kind::weight_grad ? v.read(1) : v.read(0));
  if (v.kind() == Kind::weight_grad) {
    s.m = v.read(1).shape.back();
    s.n = v.read(0).shape.back();
    s.k = rows;
    s.trans_a = true;
    s.a = s.b = type_of(v.read(0));
    s.c = type_of(v.write(0));
    return s;
  }
  const Shape& w = v.read(1).shape;
  const bool is_forward = v.kind() == Kind::forward;
  s.m = rows;
  s.n = is_forward ? w[0] : w[1];
  s.k = is_forward ? w[1] : w[0];
  s.trans_b = is_forward;
  s.a = s.b = s.c = type_of(v.read(0));
  if (is_forward) {
    s.extra = forward_extra(v);
    if (v.has_read(2)) s.vector = type_of(v.read(2));
  } else {
    s.extra = input_grad_extra(v);
  }
  return s;
}

kernels::BinaryGradPlan bias_grad_plan(const TaskView& v) {
  return column_sum_plan(rows_of(v.read(1)), v.read(1).shape.back());
}

// dw and dbias one after the other, on the same scratch: cuBLASLt's epilogue for the second costs it three times what a
// pass over dz does.
Launch linear_weight_grad(const TaskView& v, CudaDevice& device) {
  Launch weight;
  if (v.has_write(0))
    weight = run_product(
        device.product(linear_shape(v, device)),
        {.a = v.in<std::byte>(1), .b = v.in<std::byte>(0), .c = v.out<std::byte>(0), .add = v.in<std::byte>(2)}, 1.0f,
        v.scratch());
  if (!v.has_write(1)) return weight;
  if (v.write(1).dtype != v.read(1).dtype)
    fail_user("layer '{}': its bias is shared with layers of another kind; GPUs cannot train that, use `device cpu`",
              v.graph().layer_name(v.task().layer));
  return with_type(v.read(1).dtype, [&]<class T>(T) -> Launch {
    const T* dz = v.in<T>(1);
    T* dbias = v.out<T>(1);
    void* scratch = v.scratch();
    return [=, plan = bias_grad_plan(v)](cudaStream_t s) {
      if (weight) weight(s);
      cuda::binary_backward<T>(s, plan, dz, nullptr, dbias, scratch);
    };
  });
}

Launch linear_forward(const TaskView& v, CudaDevice& device) {
  const ProductShape shape = linear_shape(v, device);
  const bool has_function = v.attrs().has("function");
  const bool is_behind =
      has_function && shape.extra != ProductExtra::bias_relu && shape.extra != ProductExtra::bias_gelu_tanh;
  const bool keeps_pre = has_function && !derivative_uses_output(v.attrs().text("function"));
  std::byte *y = v.out<std::byte>(0), *pre = keeps_pre ? v.out<std::byte>(1) : nullptr;
  std::byte* made = is_behind && pre != nullptr ? pre : y;
  Launch product = run_product(
      device.product(shape),
      {.a = v.in<std::byte>(0), .b = v.in<std::byte>(1), .c = made, .vector = v.in<std::byte>(2), .saved = pre}, 1.0f,
      v.scratch());
  if (!is_behind) return product;
  const std::int64_t count = v.write(0).shape.elements();
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    return [=, function = activation_function(v.attrs())](cudaStream_t s) {
      product(s);
      cuda::activation_forward(s, function, reinterpret_cast<const T*>(made), reinterpret_cast<T*>(y), count);
    };
  });
}

Launch linear_input_grad(const TaskView& v, CudaDevice& device) {
  const ProductShape shape = linear_shape(v, device);
  auto* pre = const_cast<std::byte*>(v.in<std::byte>(2));
  Launch product = run_product(
      device.product(shape), {.a = v.in<std::byte>(0), .b = v.in<std::byte>(1), .c = v.out<std::byte>(0), .saved = pre},
      1.0f, v.scratch());
  if (pre == nullptr || shape.extra == ProductExtra::gelu_tanh_grad) return product;
  const kernels::ActivationFunction function{activation_from_name(v.attrs().text("derivative"))};
  const std::int64_t count = v.write(0).shape.elements();
  return with_type(v.write(0).dtype, [&]<class T>(T) -> Launch {
    T* dx = v.out<T>(0);
    return [=, x = reinterpret_cast<const T*>(pre)](cudaStream_t s) {
      product(s);
      cuda::activation_backward<T>(s, function, x, nullptr, dx, dx, count);
    };
  });
}

Launch bind_linear(const TaskView& v, BoundPlanData& program) {
  if (v.kind() == Kind::forward) return linear_forward(v, program.device());
  return v.kind() == Kind::input_grad ? linear_input_grad(v, program.device())
                                      : linear_weight_grad(v, program.device());
}

std::int64_t linear_scratch(const TaskView& v, CudaDevice& device) {
  const bool is_weight_grad = v.kind() == Kind::weight_grad;
  std::int64_t bytes = 0;
  if (!is_weight_grad || v.has_write(0))
    bytes = static_cast<std::int64_t>(device.product(linear_shape(v, device)).workspace_bytes());
  if (!is_weight_grad || !v.has_write(1)) return bytes;
  return with_type(v.read(1).dtype, [&]<class T>(T) {
    return std::max(bytes, static_cast<std::int64_t>(cuda::binary_backward_scratch_bytes<T>(bias_grad_plan(v))));
  });
}

// Dense matrices, one after the other, are not written out: then equal products have equal shapes.
void set_strides(const kernels::MatmulOperand& x, std::int64_t rows, std::int64_t columns, std::int64_t& row,
                 std::int64_t& batch) {
  const bool is_dense = x.row_stride == columns;
  if (!is_dense) row = x.row_stride;
  if (!is_dense || x.batch_stride[1] != rows * columns) batch = x.batch_stride[1];
}

ProductShape product_of_matmul(const TaskView& v, CudaDevice& device) {
  const kernels::MatmulShape m = matmul_shape(v);
  ProductShape s;
  s.m = m.m;
  s.n = m.n;
  s.k = m.k;
  s.batches = m.batch[1];
  s.trans_a = m.a.transposed;
  s.trans_b = m.b.transposed;
  set_strides(m.a, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, s.lda, s.stride_a);
  set_strides(m.b, s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, s.ldb, s.stride_b);
  set_strides(m.c, s.m, s.n, s.ldc, s.stride_c);
  s.a = s.b = s.c = type_of(v.read(0));
  s.tf32 = device.has_tf32();
  return s;
}

Launch bind_matmul(const TaskView& v, BoundPlanData& program) {
  const cuda::Product& product = program.device().product(product_of_matmul(v, program.device()));
  return run_product(product, {.a = v.in<std::byte>(0), .b = v.in<std::byte>(1), .c = v.out<std::byte>(0)},
                     matmul_shape(v).alpha, v.scratch());
}

std::int64_t matmul_scratch(const TaskView& v, CudaDevice& device) {
  return static_cast<std::int64_t>(device.product(product_of_matmul(v, device)).workspace_bytes());
}

cuda::AttentionKind attention_kind(const TaskView& v) {
  const kernels::AttentionShape s = attention_shape(v);
  cuda::AttentionKind kind{.shape = s, .has_mask = v.has_read(3), .bf16 = v.read(0).dtype == DType::bf16};
  if (v.kind() == Kind::forward) return kind;
  kind.dq_stride = s.q_stride;
  kind.dk_stride = s.k_stride;
  kind.dv_stride = s.v_stride;
  return kind;
}

Launch bind_attention(const TaskView& v, BoundPlanData& program) {
  const cuda::AttentionKind kind = attention_kind(v);
  std::byte* workspace = v.scratch();
  return with_type(v.read(0).dtype, [&]<class T>(T) -> Launch {
    const kernels::AttentionInputs<T> in = attention_inputs<T>(v);
    if (v.kind() == Kind::forward) {
      const cuda::AttentionForward& kernel = program.device().attention_forward(kind);
      T* o = v.out<T>(0);
      float* lse = v.out<float>(1);
      return [=, &kernel](cudaStream_t s) { kernel.run(s, in, o, lse, workspace); };
    }
    const cuda::AttentionBackward& kernel = program.device().attention_backward(kind);
    const T *o = v.in<T>(4), *o_grad = v.in<T>(6);
    const float* lse = v.in<float>(5);
    const kernels::AttentionGrads<T> grads = attention_grads<T>(v, kind.shape);
    return [=, &kernel](cudaStream_t s) { kernel.run(s, in, o, lse, o_grad, grads, workspace); };
  });
}

std::int64_t attention_scratch(const TaskView& v, CudaDevice& device) {
  const cuda::AttentionKind kind = attention_kind(v);
  return static_cast<std::int64_t>(v.kind() == Kind::forward ? device.attention_forward(kind).workspace_bytes()
                                                             : device.attention_backward(kind).workspace_bytes());
}

}  // namespace

CudaBinding linear() { return {bind_linear, linear_scratch}; }
CudaBinding matmul() { return {bind_matmul, matmul_scratch}; }
CudaBinding attention() { return {bind_attention, attention_scratch}; }

}  // namespace overtake::cuda_bindings
