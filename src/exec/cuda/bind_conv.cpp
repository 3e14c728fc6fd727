// Convolution: our own kernels where every channel has its own filter, cuDNN's elsewhere.

#include "base/error.h"
#include "exec/cuda/bindings.h"
#include "exec/cuda/target.h"
#include "exec/task_shapes.h"
#include "kernels/cuda/binary.h"
#include "kernels/cuda/depthwise.h"

namespace overtake::cuda_bindings {
namespace {

kernels::ConvShape shape_of(const TaskView& v) {
  return conv_shape(v.graph(), v.task(), conv_operands(v.graph(), v.task()).x->shape[0]);
}

cuda::ConvKind conv_kind(const TaskView& v, const CudaDevice& device) {
  const ConvOperands o = conv_operands(v.graph(), v.task());
  cuda::ConvKind kind;
  kind.shape = shape_of(v);
  kind.task = v.kind() == Kind::forward      ? cuda::ConvTask::forward
              : v.kind() == Kind::input_grad ? cuda::ConvTask::input_grad
                                             : cuda::ConvTask::weight_grad;
  kind.bias = v.kind() == Kind::forward && o.bias;
  kind.shape.bias = false;
  if (o.x->layout.blocks != 0) kind.shape.in_channels = padded_dims(o.x->layout, o.x->shape.span())[1];  // and zeros
  kind.x_pitch = o.x->layout.pitch;
  kind.y_pitch = o.y->layout.pitch;
  kind.tf32 = device.has_tf32();
  return kind;
}

// dbias = dy summed over all pixels.
kernels::BinaryGradPlan bias_grad_plan(const Buffer& dy) { return column_sum_plan(pixels_of(dy), dy.shape[1]); }

template <class T>
std::int64_t bias_grad_scratch(const Buffer& dy) {
  return static_cast<std::int64_t>(cuda::binary_backward_scratch_bytes<T>(bias_grad_plan(dy)));
}

bool is_bias_alone(const TaskView& v) { return v.kind() == Kind::weight_grad && !v.has_write(0); }

template <class T>
Launch depthwise(const TaskView& v) {
  const kernels::ConvShape shape = shape_of(v);
  if (v.kind() == Kind::forward) {
    const T *x = v.in<T>(0), *w = v.in<T>(1);
    const float* bias = v.in<float>(2);
    T* y = v.out<T>(0);
    return [=](cudaStream_t s) { cuda::depthwise_forward(s, shape, x, w, bias, y); };
  }
  if (v.kind() == Kind::input_grad) {
    const T *dy = v.in<T>(0), *w = v.in<T>(1);
    T* dx = v.out<T>(0);
    return [=](cudaStream_t s) { cuda::depthwise_input_grad(s, shape, dy, w, dx); };
  }
  const T *x = v.in<T>(0), *dy = v.in<T>(1);
  float *dw = v.out<float>(0), *dbias = v.out<float>(1);
  void* scratch = v.scratch();
  return [=](cudaStream_t s) { cuda::depthwise_weight_grad(s, shape, x, dy, dw, dbias, scratch); };
}

// Where other layers read a weight in other ways, its gradients are float32 and row-major.
void check_gradient(const TaskView& v, std::size_t write, const Layout& layout) {
  const Buffer& gradient = v.write(write);
  if (gradient.dtype != v.read(1).dtype || gradient.layout != layout)
    fail_user(
        "layer '{}': its weights are shared with layers of another kind; GPUs cannot train that, use `device cpu`",
        v.graph().layer_name(v.task().layer));
}

Launch library_conv(const TaskView& v, CudaDevice& device) {
  const cuda::Conv& conv = device.conv(conv_kind(v, device));
  const void *a = v.in<std::byte>(0), *b = v.in<std::byte>(1);
  const float* bias = v.kind() == Kind::forward ? v.in<float>(2) : nullptr;
  void *out = v.out<std::byte>(0), *workspace = v.scratch();
  return [=, &conv](cudaStream_t s) { conv.run(s, a, b, bias, out, workspace); };
}

Launch bind_conv2d(const TaskView& v, BoundPlanData& program) {
  const Buffer& dy = v.kind() == Kind::weight_grad ? v.read(1) : v.read(0);
  return with_type(dy.dtype, [&]<class T>(T) -> Launch {
    if (is_depthwise(v.graph(), v.task()) && !is_bias_alone(v)) return depthwise<T>(v);
    if (v.kind() != Kind::weight_grad) return library_conv(v, program.device());
    Launch weight;
    if (v.has_write(0)) {
      check_gradient(v, 0, conv_filter_layout(v.read(0), v.write(0)));
      weight = library_conv(v, program.device());
    }
    if (!v.has_write(1)) return weight;
    check_gradient(v, 1, plain_layout(1));
    // After the weight's gradient, on the same scratch.
    const T* gradient = v.in<T>(1);
    T* dbias = v.out<T>(1);
    void* scratch = v.scratch();
    return [=, plan = bias_grad_plan(dy)](cudaStream_t s) {
      if (weight) weight(s);
      cuda::binary_backward<T>(s, plan, gradient, nullptr, dbias, scratch);
    };
  });
}

std::int64_t conv_scratch(const TaskView& v, CudaDevice& device) {
  const kernels::ConvShape shape = shape_of(v);
  if (is_depthwise(v.graph(), v.task()) && !is_bias_alone(v))
    return v.kind() == Kind::weight_grad ? static_cast<std::int64_t>(cuda::depthwise_weight_grad_scratch_bytes(shape))
                                         : 0;
  std::int64_t bytes =
      is_bias_alone(v) ? 0 : static_cast<std::int64_t>(device.conv(conv_kind(v, device)).workspace_bytes());
  if (v.kind() == Kind::weight_grad && v.has_write(1))
    bytes = std::max(bytes, with_type(v.read(1).dtype, [&]<class T>(T) { return bias_grad_scratch<T>(v.read(1)); }));
  return bytes;
}

}  // namespace

CudaBinding conv2d() { return {bind_conv2d, conv_scratch}; }

bool conv2d_takes_pitch(const TaskView& v, std::size_t operand, std::int64_t pitch, CudaDevice& device) {
  const ConvOperands o = conv_operands(v.graph(), v.task());
  const bool sums_bias = v.kind() == Kind::weight_grad && v.has_write(1);
  if (is_depthwise(v.graph(), v.task()) || sums_bias || o.x->layout.blocks != 0) return false;
  const Buffer* image = operand < v.reads() ? &v.read(operand) : &v.write(operand - v.reads());
  cuda::ConvKind kind = conv_kind(v, device);
  if (image != o.x && image != o.y) return false;
  (image == o.x ? kind.x_pitch : kind.y_pitch) = pitch;
  return device.takes_pitches(kind);
}

}  // namespace overtake::cuda_bindings
