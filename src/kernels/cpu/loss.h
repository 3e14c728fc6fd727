#pragma once
// Losses and their gradients. T, the type of predictions and their gradients, is float or bf16.

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels {

// Cross entropy of softmax(logits) with the target (1 - smoothing) onehot(label) + smoothing / classes. Rows whose
// label is ignore_index do not count.
struct CrossEntropy {
  std::int64_t classes;
  // Elements from one row of logits to the next, >= classes: rows may be padded. What is in the columns from `classes`
  // on takes no part, whatever it is.
  std::int64_t width;
  float smoothing;            // in [0, 1)
  std::int32_t ignore_index;  // PyTorch's default is -100
};

// Per row of logits [rows, width], labels [rows]: its loss, log-sum-exp, and 1 if the first largest logit is the
// label's, else 0; all three [rows]; loss and correct are 0 for ignored rows. Unit: row. Returns the first row in the
// range whose label is neither ignore_index nor in [0, classes) (treated as ignored), or -1.
template <class T>
std::int64_t cross_entropy_forward(const CrossEntropy& loss, const T* logits, const std::int32_t* labels,
                                   float* row_loss, float* row_lse, float* row_correct, std::int64_t begin,
                                   std::int64_t end);

// stats [3] = mean loss over the rows that count (0 if none), how many count, how many are correct. One thread.
void cross_entropy_combine(const CrossEntropy& loss, const float* row_loss, const float* row_correct,
                           const std::int32_t* labels, std::int64_t rows, float* stats);

// dlogits [rows, width] = (softmax(logits) - target) * scale / *count, 0 for ignored rows and in the columns from
// `classes` on; count is stats + 1 of the combine. Unit: row. May be in place (dlogits == logits).
template <class T>
void cross_entropy_input_grad(const CrossEntropy& loss, const T* logits, const std::int32_t* labels,
                              const float* row_lse, const float* count, float scale, T* dlogits, std::int64_t begin,
                              std::int64_t end);

// Mean squared error, first phase: partials[b] = sum of (x - target)^2 over block b of 1024 elements (block.h);
// x, target [count]. Unit: block.
template <class T>
void mean_squared_error_forward(const T* x, const float* target, double* partials, std::int64_t count,
                                std::int64_t block_begin, std::int64_t block_end);

// Second phase: *loss = sum of partials / count. One thread.
void mean_squared_error_combine(const double* partials, std::int64_t count, float* loss);

// dx = 2 (x - target) / count * scale. Unit: block. May be in place (dx == x).
template <class T>
void mean_squared_error_input_grad(const T* x, const float* target, float scale, T* dx, std::int64_t count,
                                   std::int64_t block_begin, std::int64_t block_end);

}  // namespace overtake::kernels
