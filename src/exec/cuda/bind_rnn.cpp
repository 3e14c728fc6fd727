// LSTM and GRU: one product over all time steps before the forward recurrence, and products over all of them after the
// backward one.

#include "exec/cuda/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cuda/move.h"
#include "kernels/cuda/rnn.h"

namespace overtake::cuda_bindings {
namespace {

using cuda::ElementType;
using cuda::ProductShape;

template <class T>
constexpr ElementType kType = sizeof(T) == 2 ? ElementType::bf16 : ElementType::f32;

// A product of a task and where its workspace begins in the task's scratch.
struct Placed {
  const cuda::Product* product;
  std::int64_t at;
};

// Scratch of a task: pieces one after another.
class Pieces {
 public:
  std::int64_t add(std::size_t bytes) {
    const std::int64_t at = bytes_;
    bytes_ += cuda_piece(static_cast<std::int64_t>(bytes));
    return at;
  }
  Placed add(CudaDevice& device, const ProductShape& shape) {
    const cuda::Product& product = device.product(shape);
    return {&product, add(product.workspace_bytes())};
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

// c [rows, n] = a [rows, k] b, b as [n, k] where transposed; rows of a and c so far apart.
template <class T>
ProductShape over_steps(CudaDevice& device, const kernels::RnnShape& s, std::int64_t n, std::int64_t k) {
  ProductShape p;
  p.m = s.batch * s.steps;
  p.n = n;
  p.k = k;
  p.a = p.b = kType<T>;
  p.tf32 = device.has_tf32();
  return p;
}

// dw [gates, n] = dgates [rows, gates]^T x [rows, n], some columns of dgates [rows, 4H].
template <class T>
ProductShape weight_shape(CudaDevice& device, const kernels::RnnShape& s, std::int64_t gates, std::int64_t n) {
  ProductShape p;
  p.m = gates;
  p.n = n;
  p.k = s.batch * s.steps;
  p.trans_a = true;
  p.lda = 4 * s.hidden;
  p.a = p.b = kType<T>;
  p.tf32 = device.has_tf32();
  return p;
}

constexpr std::int64_t gate_rows(Op op) { return op == Op::lstm ? 4 : 3; }

template <class T, Op op>
struct Forward {
  Forward(const TaskView& v, CudaDevice& device) : shape(rnn_shape(v)) {
    ProductShape p = over_steps<T>(device, shape, gate_rows(op) * shape.hidden, shape.inputs);
    p.trans_b = true;
    p.ldc = 4 * shape.hidden;
    pre = pieces.add(device, p);
    recurrence = pieces.add(cuda::rnn_scratch_bytes(shape));
  }
  kernels::RnnShape shape;
  Pieces pieces;
  Placed pre;
  std::int64_t recurrence;
};

template <class T, Op op>
Launch forward(const TaskView& v, CudaDevice& device) {
  const Forward<T, op> f(v, device);
  const T *x = v.in<T>(0), *w_ih = v.in<T>(1), *w_hh = v.in<T>(2);
  const float *b_ih = v.in<float>(3), *b_hh = v.in<float>(4);
  T* y = v.out<T>(0);
  float* gates = v.out<float>(1);
  float* cells = op == Op::lstm ? v.out<float>(2) : nullptr;
  std::byte* scratch = v.scratch();
  const int sms = device.multiprocessors();
  return [=](cudaStream_t s) {
    f.pre.product->run(s, {.a = x, .b = w_ih, .c = gates}, 1.0f, scratch + f.pre.at);
    if constexpr (op == Op::lstm)
      cuda::lstm_forward(s, f.shape, w_hh, b_ih, b_hh, gates, y, gates, cells, scratch + f.recurrence, sms);
    else
      cuda::gru_forward(s, f.shape, w_hh, b_ih, b_hh, gates, 4 * f.shape.hidden, y, gates, scratch + f.recurrence, sms);
  };
}

template <class T, Op op>
struct InputGrad {
  InputGrad(const TaskView& v, CudaDevice& device) : shape(rnn_shape(v)) {
    recurrence = pieces.add(cuda::rnn_scratch_bytes(shape));
    if (!v.has_write(1)) return;
    ProductShape p = over_steps<T>(device, shape, shape.inputs, gate_rows(op) * shape.hidden);
    p.lda = 4 * shape.hidden;
    p.c = kType<T>;
    dx = pieces.add(device, p);
  }
  kernels::RnnShape shape;
  Pieces pieces;
  std::int64_t recurrence;
  Placed dx{};
};

template <class T, Op op>
Launch input_grad(const TaskView& v, CudaDevice& device) {
  const InputGrad<T, op> g(v, device);
  const T *w_ih = v.in<T>(0), *w_hh = v.in<T>(1), *dy = v.in<T>(4);
  const float* gates = v.in<float>(2);
  const float* cells = op == Op::lstm ? v.in<float>(3) : nullptr;
  const T* y = op == Op::lstm ? nullptr : v.in<T>(3);
  T *dgates = v.out<T>(0), *dx = v.out<T>(1);
  std::byte* scratch = v.scratch();
  const int sms = device.multiprocessors();
  return [=](cudaStream_t s) {
    if constexpr (op == Op::lstm)
      cuda::lstm_input_grad(s, g.shape, w_hh, gates, cells, dy, dgates, scratch + g.recurrence, sms);
    else
      cuda::gru_input_grad(s, g.shape, w_hh, gates, y, dy, dgates, scratch + g.recurrence, sms);
    if (dx != nullptr) g.dx.product->run(s, {.a = dgates, .b = w_ih, .c = dx}, 1.0f, scratch + g.dx.at);
  };
}

template <class T, Op op>
struct WeightGrad {
  WeightGrad(const TaskView& v, CudaDevice& device) : shape(rnn_shape(v)) {
    const std::int64_t h = shape.hidden;
    states = pieces.add(static_cast<std::size_t>(shape.batch * shape.steps * h) * sizeof(T));
    bias = pieces.add(cuda::rnn_bias_grad_scratch_bytes(shape));
    dw_ih = pieces.add(device, weight_shape<T>(device, shape, gate_rows(op) * h, shape.inputs));
    // The GRU's n has two gradients: that of the input's side and that of this side, which comes last.
    dw_hh = pieces.add(device, weight_shape<T>(device, shape, 4 * h, h));
    if (op == Op::gru) dw_all = pieces.add(static_cast<std::size_t>(4 * h * h) * sizeof(float));
  }
  kernels::RnnShape shape;
  Pieces pieces;
  std::int64_t states, bias, dw_all = 0;
  Placed dw_ih, dw_hh;
};

template <class T, Op op>
Launch weight_grad(const TaskView& v, CudaDevice& device) {
  const WeightGrad<T, op> g(v, device);
  const T *x = v.in<T>(0), *y = v.in<T>(1), *dgates = v.in<T>(2);
  float *dw_ih = v.out<float>(0), *dw_hh = v.out<float>(1), *db_ih = v.out<float>(2), *db_hh = v.out<float>(3);
  std::byte* scratch = v.scratch();
  return [=](cudaStream_t s) {
    auto* states = reinterpret_cast<T*>(scratch + g.states);
    const std::int64_t h = g.shape.hidden;
    cuda::shifted_states(s, g.shape, y, states);
    g.dw_ih.product->run(s, {.a = dgates, .b = x, .c = dw_ih}, 1.0f, scratch + g.dw_ih.at);
    float* dw_all = op == Op::lstm ? dw_hh : reinterpret_cast<float*>(scratch + g.dw_all);
    g.dw_hh.product->run(s, {.a = dgates, .b = states, .c = dw_all}, 1.0f, scratch + g.dw_hh.at);
    if constexpr (op == Op::lstm) {
      cuda::lstm_bias_grad(s, g.shape, dgates, db_ih, db_hh, scratch + g.bias);
    } else {
      const std::int64_t rows = h * h * static_cast<std::int64_t>(sizeof(float));  // bytes of a gate's
      cuda::copy(s, dw_all, dw_hh, 2 * rows);
      cuda::copy(s, dw_all + 3 * h * h, dw_hh + 2 * h * h, rows);
      cuda::gru_bias_grad(s, g.shape, dgates, db_ih, db_hh, scratch + g.bias);
    }
  };
}

DType activation_type(const TaskView& v) { return v.kind() == Kind::input_grad ? v.write(0).dtype : v.read(0).dtype; }

template <Op op>
Launch bind_rnn(const TaskView& v, BoundPlanData& program) {
  return with_type(activation_type(v), [&]<class T>(T) -> Launch {
    if (v.kind() == Kind::forward) return forward<T, op>(v, program.device());
    return v.kind() == Kind::input_grad ? input_grad<T, op>(v, program.device())
                                        : weight_grad<T, op>(v, program.device());
  });
}

template <Op op>
std::int64_t rnn_scratch(const TaskView& v, CudaDevice& device) {
  return with_type(activation_type(v), [&]<class T>(T) {
    if (v.kind() == Kind::forward) return Forward<T, op>(v, device).pieces.bytes();
    return v.kind() == Kind::input_grad ? InputGrad<T, op>(v, device).pieces.bytes()
                                        : WeightGrad<T, op>(v, device).pieces.bytes();
  });
}

}  // namespace

CudaBinding lstm() { return {bind_rnn<Op::lstm>, rnn_scratch<Op::lstm>}; }
CudaBinding gru() { return {bind_rnn<Op::gru>, rnn_scratch<Op::gru>}; }

}  // namespace overtake::cuda_bindings
