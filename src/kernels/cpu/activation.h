#pragma once
// Activations, elementwise. Unit: block of 1024 elements (block.h). T is float or bf16.

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels {

enum class Activation : std::uint8_t {
  relu,          // max(x, 0); NaN stays NaN
  gelu,          // x Phi(x)
  gelu_tanh,     // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  silu,          // x sigmoid(x)
  sigmoid,       // 1 / (1 + e^-x)
  tanh,          // tanh(x)
  hard_swish,    // x min(max(x + 3, 0), 6) / 6
  hard_sigmoid,  // min(max(x + 3, 0), 6) / 6
};

// Which of x and y the backward kernel reads; exactly one is true.
bool backward_needs_input(Activation activation);
bool backward_needs_output(Activation activation);

// y = f(x); x, y [count]. May be in place (y == x).
template <class T>
void activation_forward(Activation activation, const T* x, T* y, std::int64_t count, std::int64_t block_begin,
                        std::int64_t block_end);

// dx = f'(x) dy; x, y, dy, dx [count]. The one of x and y that is not needed may be null. May be in place (dx == dy,
// or dx == the needed one of x and y).
template <class T>
void activation_backward(Activation activation, const T* x, const T* y, const T* dy, T* dx, std::int64_t count,
                         std::int64_t block_begin, std::int64_t block_end);

}  // namespace overtake::kernels
