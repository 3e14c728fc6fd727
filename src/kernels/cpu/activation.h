#pragma once
// Activations, elementwise. Unit: block of 1024 elements (block.h). T is float or bf16.

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels {

// NaN stays NaN in all of them.
enum class Activation : std::uint8_t {
  relu,          // max(x, 0)
  gelu,          // x Phi(x)
  gelu_tanh,     // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  silu,          // x sigmoid(x)
  sigmoid,       // 1 / (1 + e^-x)
  tanh,          // tanh(x)
  hard_swish,    // x min(max(x + 3, 0), 6) / 6
  hard_sigmoid,  // min(max(x + 3, 0), 6) / 6
  exp,           // e^x
  log,           // log(x)
  sqrt,          // sqrt(x)
  reciprocal,    // 1 / x
  erf,           // erf(x)
  abs,           // |x|; its derivative at 0 is 0
  softplus,      // log(1 + e^x), which above 20 is x
  mish,          // x tanh(softplus(x))
  leaky_relu,    // x above 0, a x elsewhere
  elu,           // x above 0, a (e^x - 1) elsewhere
  maximum,       // max(x, a); its derivative at a is 1/2
  clip,          // min(max(x, a), b); its derivative is 0 at both bounds
};

struct ActivationFunction {
  Activation kind;
  float a = 0, b = 0;  // only the last four read them
};

// Which of x and y the backward kernel reads; exactly one is true.
bool backward_needs_input(Activation activation);
bool backward_needs_output(Activation activation);

// y = f(x); x, y [count]. May be in place (y == x).
template <class T>
void activation_forward(const ActivationFunction& function, const T* x, T* y, std::int64_t count,
                        std::int64_t block_begin, std::int64_t block_end);

// dx = f'(x) dy; x, y, dy, dx [count]. The one of x and y that is not needed may be null. May be in place (dx == dy,
// or dx == the needed one of x and y).
template <class T>
void activation_backward(const ActivationFunction& function, const T* x, const T* y, const T* dy, T* dx,
                         std::int64_t count, std::int64_t block_begin, std::int64_t block_end);

}  // namespace overtake::kernels
