#pragma once
// Group normalisation of channels-last images [batch][pixels][channels]: mean and rstd per image and group of channels,
// then gamma and beta per channel. The unit of work is an image. T is float or bf16.

#include <cstdint>

namespace overtake::kernels {

struct GroupNormShape {
  std::int64_t batch, pixels, channels, groups;  // pixels = H * W; groups divides channels
};

// Images [begin, end). x, y: [batch][pixels][channels], gamma, beta: [channels], mean, rstd: [batch][groups].
// y may be in place over x.
template <class T>
void group_norm_forward(const GroupNormShape& shape, const T* x, const float* gamma, const float* beta, float epsilon,
                        T* y, float* mean, float* rstd, std::int64_t begin, std::int64_t end);

// dx of images [begin, end). group_sums: scratch [batch][groups][2]. dx may be in place over dy.
template <class T>
void group_norm_input_grad(const GroupNormShape& shape, const T* x, const T* dy, const float* gamma, const float* mean,
                           const float* rstd, float* group_sums, T* dx, std::int64_t begin, std::int64_t end);

// Writes the sums over pixels of dy * (x - mean) * rstd and of dy, of images [begin, end). partials:
// [batch][2][channels].
template <class T>
void group_norm_weight_grad_reduce(const GroupNormShape& shape, const T* x, const T* dy, const float* mean,
                                   const float* rstd, float* partials, std::int64_t begin, std::int64_t end);

// dgamma and dbeta of channels [begin, end) from all images' partial sums, each if not null.
void group_norm_weight_grad(const GroupNormShape& shape, const float* partials, float* dgamma, float* dbeta,
                            std::int64_t begin, std::int64_t end);

}  // namespace overtake::kernels
