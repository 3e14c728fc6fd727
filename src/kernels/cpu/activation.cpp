#include "kernels/cpu/activation.h"

#include "base/error.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/vector_math.h"

namespace overtake::kernels {

namespace {

// sigmoid(z) and its derivative sigmoid(z) (1 - sigmoid(z)) without the cancellation of 1 - sigmoid(z).
struct Logistic {
  float value, slope;
  explicit Logistic(float z) {
    const float e = exp_fast(-std::fabs(z));
    const float r = 1.0f / (1.0f + e);
    value = z < 0.0f ? e * r : r;
    slope = e * r * r;
  }
};

// One struct per activation: value(x), and slope(saved), the derivative at x given x or, if kFromOutput, given y. Those
// with parameters hold them.

struct Relu {
  static constexpr bool kFromOutput = true;
  static float value(float x) { return x <= 0.0f ? 0.0f : x; }
  static float slope(float y) { return y <= 0.0f ? 0.0f : 1.0f; }
};

struct Gelu {
  static constexpr bool kFromOutput = false;

  // Phi(x), given e^(-x^2 / 2). The tail is exact in relative terms too: 1 + erf would cancel there.
  static float cdf(float x, float bell) {
    const float tail = 0.5f * erfc_scaled_fast(0.707106781f * std::fabs(x)) * bell;
    return x < 0.0f ? tail : 1.0f - tail;
  }
  static float value(float x) { return x * cdf(x, exp_fast(-0.5f * x * x)); }
  static float slope(float x) {
    const float bell = exp_fast(-0.5f * x * x);
    return cdf(x, bell) + x * (0.398942280f * bell);
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2 u), which costs less and does not cancel for negative u.
struct GeluTanh {
  static constexpr bool kFromOutput = false;
  static constexpr float kScale = 1.59576912f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;

  static float value(float x) { return x * sigmoid_fast(kScale * x * (1.0f + kCubic * x * x)); }
  static float slope(float x) {
    const Logistic s(kScale * x * (1.0f + kCubic * x * x));
    return s.value + x * s.slope * (kScale * (1.0f + 3.0f * kCubic * x * x));
  }
};

struct Silu {
  static constexpr bool kFromOutput = false;
  static float value(float x) { return x * sigmoid_fast(x); }
  static float slope(float x) {
    const Logistic s(x);
    return s.value + x * s.slope;
  }
};

struct Sigmoid {
  static constexpr bool kFromOutput = true;
  static float value(float x) { return sigmoid_fast(x); }
  static float slope(float y) { return y * (1.0f - y); }
};

struct Tanh {
  static constexpr bool kFromOutput = true;
  static float value(float x) { return tanh_fast(x); }
  static float slope(float y) { return 1.0f - y * y; }
};

struct HardSigmoid {
  static constexpr bool kFromOutput = false;
  static float value(float x) {
    const float s = (x + 3.0f) * (1.0f / 6.0f);
    return s < 0.0f ? 0.0f : (s > 1.0f ? 1.0f : s);
  }
  static float slope(float x) { return x > -3.0f && x < 3.0f ? 1.0f / 6.0f : 0.0f; }
};

struct HardSwish {
  static constexpr bool kFromOutput = false;
  static float value(float x) { return x * HardSigmoid::value(x); }
  static float slope(float x) { return x <= -3.0f ? 0.0f : (x >= 3.0f ? 1.0f : x * (1.0f / 3.0f) + 0.5f); }
};

struct Exp {
  static constexpr bool kFromOutput = true;
  static float value(float x) { return exp_fast(x); }
  static float slope(float y) { return y; }
};

struct Log {
  static constexpr bool kFromOutput = false;
  static float value(float x) { return log_fast(x); }
  static float slope(float x) { return 1.0f / x; }
};

struct Sqrt {
  static constexpr bool kFromOutput = true;
  static float value(float x) { return std::sqrt(x); }
  static float slope(float y) { return 0.5f / y; }
};

struct Reciprocal {
  static constexpr bool kFromOutput = true;
  static float value(float x) { return 1.0f / x; }
  static float slope(float y) { return -y * y; }
};

struct Erf {
  static constexpr bool kFromOutput = false;
  static float value(float x) { return erf_fast(x); }
  static float slope(float x) { return 1.12837917f * exp_fast(-x * x); }  // 2 / sqrt(pi)
};

struct Abs {
  static constexpr bool kFromOutput = false;
  static float value(float x) { return std::fabs(x); }
  static float slope(float x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : 0.0f); }
};

// max(x, 0) + log(1 + e^-|x|) overflows nowhere and, above 20, rounds to x.
struct Softplus {
  static constexpr bool kFromOutput = false;
  static float value(float x) { return (x < 0.0f ? 0.0f : x) + log1p_fast(exp_fast(-std::fabs(x))); }
  static float slope(float x) { return sigmoid_fast(x); }
};

// With n = e^-|x|, tanh(softplus(x)) is a quotient of polynomials in n without cancellation.
struct Mish {
  static constexpr bool kFromOutput = false;

  struct Gate {
    float n, numerator, rest, inverse;  // the gate is numerator / (numerator + rest)
    explicit Gate(float x) {
      n = exp_fast(-std::fabs(x));
      numerator = x < 0.0f ? n * (n + 2.0f) : 1.0f + 2.0f * n;
      rest = x < 0.0f ? 2.0f : 2.0f * n * n;
      inverse = 1.0f / (numerator + rest);
    }
  };
  static float value(float x) {
    const Gate g(x);
    return x * (g.numerator * g.inverse);
  }
  static float slope(float x) {
    const Gate g(x);
    const float complement = g.rest * (2.0f * g.numerator + g.rest) * g.inverse * g.inverse;  // 1 - gate^2
    const float logistic = (x < 0.0f ? g.n : 1.0f) / (1.0f + g.n);
    return g.numerator * g.inverse + x * complement * logistic;
  }
};

struct LeakyRelu {
  static constexpr bool kFromOutput = false;
  float alpha;
  float value(float x) const { return x > 0.0f ? x : alpha * x; }
  float slope(float x) const { return x > 0.0f ? 1.0f : alpha; }
};

struct Elu {
  static constexpr bool kFromOutput = false;
  float alpha;
  float value(float x) const { return x > 0.0f ? x : alpha * expm1_negative_fast(x); }
  float slope(float x) const { return x > 0.0f ? 1.0f : alpha * exp_fast(x); }
};

struct Maximum {
  static constexpr bool kFromOutput = false;
  float bound;
  float value(float x) const { return x < bound ? bound : x; }
  float slope(float x) const { return x > bound ? 1.0f : (x < bound ? 0.0f : 0.5f); }
};

struct Clip {
  static constexpr bool kFromOutput = false;
  float low, high;
  float value(float x) const { return x < low ? low : (x > high ? high : x); }
  float slope(float x) const { return x > low && x < high ? 1.0f : 0.0f; }
};

// Calls body with an instance of the struct of the activation.
template <class Body>
auto dispatch(const ActivationFunction& function, const Body& body) {
  switch (function.kind) {
    case Activation::relu:
      return body(Relu{});
    case Activation::gelu:
      return body(Gelu{});
    case Activation::gelu_tanh:
      return body(GeluTanh{});
    case Activation::silu:
      return body(Silu{});
    case Activation::sigmoid:
      return body(Sigmoid{});
    case Activation::tanh:
      return body(Tanh{});
    case Activation::hard_swish:
      return body(HardSwish{});
    case Activation::hard_sigmoid:
      return body(HardSigmoid{});
    case Activation::exp:
      return body(Exp{});
    case Activation::log:
      return body(Log{});
    case Activation::sqrt:
      return body(Sqrt{});
    case Activation::reciprocal:
      return body(Reciprocal{});
    case Activation::erf:
      return body(Erf{});
    case Activation::abs:
      return body(Abs{});
    case Activation::softplus:
      return body(Softplus{});
    case Activation::mish:
      return body(Mish{});
    case Activation::leaky_relu:
      return body(LeakyRelu{function.a});
    case Activation::elu:
      return body(Elu{function.a});
    case Activation::maximum:
      return body(Maximum{function.a});
    case Activation::clip:
      return body(Clip{function.a, function.b});
  }
  fail_internal(__FILE__, __LINE__, "activation",
                fmt::format("unknown activation {}", static_cast<int>(function.kind)));
}

template <class F, class T>
void forward_blocks(F f, const T* x, T* y, std::int64_t count, std::int64_t block_begin, std::int64_t block_end) {
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    const T* in = x + first;
    T* out = y + first;
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) out[i] = from_float<T>(f.value(to_float(in[i])));
  });
}

template <class F, class T>
void backward_blocks(F f, const T* saved, const T* dy, T* dx, std::int64_t count, std::int64_t block_begin,
                     std::int64_t block_end) {
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    const T* in = saved + first;
    const T* grad = dy + first;
    T* out = dx + first;
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) {
      const float slope = f.slope(to_float(in[i]));
      out[i] = from_float<T>(slope * to_float(grad[i]));
    }
  });
}

}  // namespace

bool backward_needs_output(Activation activation) {
  return dispatch({activation}, [](auto f) { return decltype(f)::kFromOutput; });
}

bool backward_needs_input(Activation activation) { return !backward_needs_output(activation); }

template <class T>
void activation_forward(const ActivationFunction& function, const T* x, T* y, std::int64_t count,
                        std::int64_t block_begin, std::int64_t block_end) {
  dispatch(function, [&](auto f) { forward_blocks(f, x, y, count, block_begin, block_end); });
}

template <class T>
void activation_backward(const ActivationFunction& function, const T* x, const T* y, const T* dy, T* dx,
                         std::int64_t count, std::int64_t block_begin, std::int64_t block_end) {
  dispatch(function, [&](auto f) {
    backward_blocks(f, decltype(f)::kFromOutput ? y : x, dy, dx, count, block_begin, block_end);
  });
}

template void activation_forward(const ActivationFunction&, const float*, float*, std::int64_t, std::int64_t,
                                 std::int64_t);
template void activation_forward(const ActivationFunction&, const bf16*, bf16*, std::int64_t, std::int64_t,
                                 std::int64_t);
template void activation_backward(const ActivationFunction&, const float*, const float*, const float*, float*,
                                  std::int64_t, std::int64_t, std::int64_t);
template void activation_backward(const ActivationFunction&, const bf16*, const bf16*, const bf16*, bf16*, std::int64_t,
                                  std::int64_t, std::int64_t);

}  // namespace overtake::kernels
