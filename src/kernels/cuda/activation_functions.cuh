#pragma once
// The activations and their derivatives on the device: kernels/cpu/activation.h. For .cu files only.

#include "kernels/cpu/activation.h"

namespace overtake::cuda::functions {

using kernels::Activation;
using kernels::ActivationFunction;

__device__ inline float quick_reciprocal(float x) {
  return __fdividef(1.0f, x);
}  // to 1 ulp for x in [1, 2^126], 0 above

__device__ inline float sigmoid(float x) { return quick_reciprocal(1.0f + expf(-x)); }

// sigmoid(z) and its derivative sigmoid(z) (1 - sigmoid(z)) without the cancellation of 1 - sigmoid(z).
struct Logistic {
  float value, slope;
  __device__ explicit Logistic(float z) {
    const float e = expf(-fabsf(z));
    const float r = quick_reciprocal(1.0f + e);
    value = z < 0.0f ? e * r : r;
    slope = e * r * r;
  }
};

// One struct per activation: value(x), and slope(saved), the derivative at x given x or, if kFromOutput, given y. Those
// with parameters hold them. kFromOutput is what kernels::backward_needs_output says.

struct Relu {
  static constexpr bool kFromOutput = true;
  __device__ static float value(float x) { return x <= 0.0f ? 0.0f : x; }
  __device__ static float slope(float y) { return y <= 0.0f ? 0.0f : 1.0f; }
};

struct Gelu {
  static constexpr bool kFromOutput = false;

  // e^(a^2) erfc(a) for 0 <= a <= 9.4: the polynomial in 1 / (1 + 0.48 a) of kernels/cpu/vector_math.h. It costs half
  // of erfcxf, which would be dearer than the memory traffic of bf16.
  __device__ static float erfc_scaled(float a) {
    const float t = quick_reciprocal(1.0f + 0.48f * a);
    float p = -0.0524202771f;
    p = p * t + 0.280932754f;
    p = p * t - 0.553275049f;
    p = p * t + 0.415214151f;
    p = p * t - 0.0960383117f;
    p = p * t + 0.233556747f;
    p = p * t + 0.22942397f;
    p = p * t + 0.271839291f;
    p = p * t + 0.270766765f;
    return p * t;
  }
  // Phi(x), given e^(-x^2 / 2). The tail is exact in relative terms too: 1 + erf would cancel there.
  __device__ static float cdf(float x, float bell) {
    const float tail = 0.5f * erfc_scaled(0.707106781f * fabsf(x)) * bell;
    return x < 0.0f ? tail : 1.0f - tail;
  }
  __device__ static float value(float x) { return x * cdf(x, expf(-0.5f * x * x)); }
  __device__ static float slope(float x) {
    const float bell = expf(-0.5f * x * x);
    return cdf(x, bell) + x * (0.398942280f * bell);
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2 u), which costs less and does not cancel for negative u.
struct GeluTanh {
  static constexpr bool kFromOutput = false;
  static constexpr float kScale = 1.59576912f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;

  __device__ static float value(float x) { return x * sigmoid(kScale * x * (1.0f + kCubic * x * x)); }
  __device__ static float slope(float x) {
    const Logistic s(kScale * x * (1.0f + kCubic * x * x));
    return s.value + x * s.slope * (kScale * (1.0f + 3.0f * kCubic * x * x));
  }
};

struct Silu {
  static constexpr bool kFromOutput = false;
  __device__ static float value(float x) { return x * sigmoid(x); }
  __device__ static float slope(float x) {
    const Logistic s(x);
    return s.value + x * s.slope;
  }
};

struct Sigmoid {
  static constexpr bool kFromOutput = true;
  __device__ static float value(float x) { return sigmoid(x); }
  __device__ static float slope(float y) { return y * (1.0f - y); }
};

struct Tanh {
  static constexpr bool kFromOutput = true;
  __device__ static float value(float x) { return tanhf(x); }
  __device__ static float slope(float y) { return 1.0f - y * y; }
};

struct HardSigmoid {
  static constexpr bool kFromOutput = false;
  __device__ static float value(float x) {
    const float s = (x + 3.0f) * (1.0f / 6.0f);
    return s < 0.0f ? 0.0f : (s > 1.0f ? 1.0f : s);
  }
  __device__ static float slope(float x) { return x > -3.0f && x < 3.0f ? 1.0f / 6.0f : 0.0f; }
};

struct HardSwish {
  static constexpr bool kFromOutput = false;
  __device__ static float value(float x) { return x * HardSigmoid::value(x); }
  __device__ static float slope(float x) { return x <= -3.0f ? 0.0f : (x >= 3.0f ? 1.0f : x * (1.0f / 3.0f) + 0.5f); }
};

struct Exp {
  static constexpr bool kFromOutput = true;
  __device__ static float value(float x) { return expf(x); }
  __device__ static float slope(float y) { return y; }
};

struct Log {
  static constexpr bool kFromOutput = false;
  __device__ static float value(float x) { return logf(x); }
  __device__ static float slope(float x) { return 1.0f / x; }
};

struct Sqrt {
  static constexpr bool kFromOutput = true;
  __device__ static float value(float x) { return sqrtf(x); }
  __device__ static float slope(float y) { return 0.5f / y; }
};

struct Reciprocal {
  static constexpr bool kFromOutput = true;
  __device__ static float value(float x) { return 1.0f / x; }
  __device__ static float slope(float y) { return -y * y; }
};

struct Erf {
  static constexpr bool kFromOutput = false;
  __device__ static float value(float x) { return erff(x); }
  __device__ static float slope(float x) { return 1.12837917f * expf(-x * x); }  // 2 / sqrt(pi)
};

struct Abs {
  static constexpr bool kFromOutput = false;
  __device__ static float value(float x) { return fabsf(x); }
  __device__ static float slope(float x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : 0.0f); }
};

// max(x, 0) + log(1 + e^-|x|) overflows nowhere and, above 20, rounds to x.
struct Softplus {
  static constexpr bool kFromOutput = false;
  __device__ static float value(float x) { return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x))); }
  __device__ static float slope(float x) { return sigmoid(x); }
};

// With n = e^-|x|, tanh(softplus(x)) is a quotient of polynomials in n without cancellation.
struct Mish {
  static constexpr bool kFromOutput = false;

  struct Gate {
    float n, numerator, rest, inverse;  // the gate is numerator / (numerator + rest)
    __device__ explicit Gate(float x) {
      n = expf(-fabsf(x));
      numerator = x < 0.0f ? n * (n + 2.0f) : 1.0f + 2.0f * n;
      rest = x < 0.0f ? 2.0f : 2.0f * n * n;
      inverse = quick_reciprocal(numerator + rest);
    }
  };
  __device__ static float value(float x) {
    const Gate g(x);
    return x * (g.numerator * g.inverse);
  }
  __device__ static float slope(float x) {
    const Gate g(x);
    const float complement = g.rest * (2.0f * g.numerator + g.rest) * g.inverse * g.inverse;  // 1 - gate^2
    const float logistic = (x < 0.0f ? g.n : 1.0f) * quick_reciprocal(1.0f + g.n);
    return g.numerator * g.inverse + x * complement * logistic;
  }
};

struct LeakyRelu {
  static constexpr bool kFromOutput = false;
  float alpha;
  __device__ float value(float x) const { return x > 0.0f ? x : alpha * x; }
  __device__ float slope(float x) const { return x > 0.0f ? 1.0f : alpha; }
};

struct Elu {
  static constexpr bool kFromOutput = false;
  float alpha;
  __device__ float value(float x) const { return x > 0.0f ? x : alpha * expm1f(x); }
  __device__ float slope(float x) const { return x > 0.0f ? 1.0f : alpha * expf(x); }
};

struct Maximum {
  static constexpr bool kFromOutput = false;
  float bound;
  __device__ float value(float x) const { return x < bound ? bound : x; }
  __device__ float slope(float x) const { return x > bound ? 1.0f : (x < bound ? 0.0f : 0.5f); }
};

struct Clip {
  static constexpr bool kFromOutput = false;
  float low, high;
  __device__ float value(float x) const { return x < low ? low : (x > high ? high : x); }
  __device__ float slope(float x) const { return x > low && x < high ? 1.0f : 0.0f; }
};

// Calls body with an instance of the struct of the activation; on the host or, with a body of its own, on the device.
#pragma nv_exec_check_disable
template <class Body>
__host__ __device__ inline void dispatch(const ActivationFunction& function, const Body& body) {
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
}

}  // namespace overtake::cuda::functions
