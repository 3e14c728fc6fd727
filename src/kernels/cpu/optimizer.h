#pragma once
// Optimizer steps on flat float arrays [count], in place. Unit: block of 1024 elements (block.h). The gradient is
// multiplied by *grad_scale first (null: 1).

#include <cstdint>

namespace overtake::kernels {

// As torch.optim.SGD with dampening 0: g += weight_decay w; m = momentum m + g; w -= learning_rate (nesterov ?
// g + momentum m : m). The momentum buffer starts as zeros; with momentum 0 it may be null and is not touched.
struct SgdStep {
  float learning_rate;
  float momentum;
  float weight_decay;
  bool nesterov;
};

void sgd_update(const SgdStep& sgd, const float* grad, const float* grad_scale, float* weight, float* momentum,
                std::int64_t count, std::int64_t block_begin, std::int64_t block_end);

// As torch.optim.AdamW: w *= 1 - learning_rate weight_decay; moments m, v (zeros at the start) of g and g^2; then
// w -= learning_rate / (1 - beta1^step) m / (sqrt(v / (1 - beta2^step)) + epsilon).
struct AdamWStep {
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
  std::int64_t step;  // 1 for the first
};

void adamw_update(const AdamWStep& adamw, const float* grad, const float* grad_scale, float* weight,
                  float* first_moment, float* second_moment, std::int64_t count, std::int64_t block_begin,
                  std::int64_t block_end);

// Gradient clipping by global norm, first phase, once per gradient array: partials[b] = sum of squares of block b.
// Unit: block.
void squared_norm_partials(const float* grad, double* partials, std::int64_t count, std::int64_t block_begin,
                           std::int64_t block_end);

// Second phase: the sum of an array's partials [count], in their order.
double sum_of_partials(const double* partials, std::int64_t count);

// Third phase over the sums of all arrays, sums[order[0]] + ... + sums[order[count - 1]] (order null: as they lie):
// result[0] = the global norm, result[1] = min(1, max_norm / (norm + 1e-6)), the factor to pass as grad_scale; NaN if
// the norm is not finite. One thread.
void clip_factor(const double* sums, const std::int64_t* order, std::int64_t count, float max_norm, float* result);

}  // namespace overtake::kernels
