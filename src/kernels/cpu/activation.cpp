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

// One struct per activation: value(x), and slope(saved), the derivative at x given x or, if kFromOutput, given y.

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

// Calls body with an instance of the struct of the activation.
template <class Body>
auto dispatch(Activation activation, const Body& body) {
  switch (activation) {
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
  }
  fail_internal(__FILE__, __LINE__, "activation", fmt::format("unknown activation {}", static_cast<int>(activation)));
}

template <class F, class T>
void forward_blocks(const T* x, T* y, std::int64_t count, std::int64_t block_begin, std::int64_t block_end) {
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    const T* in = x + first;
    T* out = y + first;
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) out[i] = from_float<T>(F::value(to_float(in[i])));
  });
}

template <class F, class T>
void backward_blocks(const T* saved, const T* dy, T* dx, std::int64_t count, std::int64_t block_begin,
                     std::int64_t block_end) {
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    const T* in = saved + first;
    const T* grad = dy + first;
    T* out = dx + first;
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) {
      const float slope = F::slope(to_float(in[i]));
      out[i] = from_float<T>(slope * to_float(grad[i]));
    }
  });
}

}  // namespace

bool backward_needs_output(Activation activation) {
  return dispatch(activation, [](auto f) { return decltype(f)::kFromOutput; });
}

bool backward_needs_input(Activation activation) { return !backward_needs_output(activation); }

template <class T>
void activation_forward(Activation activation, const T* x, T* y, std::int64_t count, std::int64_t block_begin,
                        std::int64_t block_end) {
  dispatch(activation, [&](auto f) { forward_blocks<decltype(f)>(x, y, count, block_begin, block_end); });
}

template <class T>
void activation_backward(Activation activation, const T* x, const T* y, const T* dy, T* dx, std::int64_t count,
                         std::int64_t block_begin, std::int64_t block_end) {
  dispatch(activation, [&](auto f) {
    using F = decltype(f);
    backward_blocks<F>(F::kFromOutput ? y : x, dy, dx, count, block_begin, block_end);
  });
}

template void activation_forward(Activation, const float*, float*, std::int64_t, std::int64_t, std::int64_t);
template void activation_forward(Activation, const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t);
template void activation_backward(Activation, const float*, const float*, const float*, float*, std::int64_t,
                                  std::int64_t, std::int64_t);
template void activation_backward(Activation, const bf16*, const bf16*, const bf16*, bf16*, std::int64_t, std::int64_t,
                                  std::int64_t);

}  // namespace overtake::kernels
