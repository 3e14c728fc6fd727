#pragma once
// Elementary functions without branches or tables, so that loops over them vectorise. Relative errors are below 4e-7
// wherever the result is a normal number, unless said otherwise; NaN stays NaN.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace overtake::kernels {

// e^x. Infinity where it overflows; 0 where the result would not be a normal number (x < -87.336), -inf included.
inline float exp_fast(float x) {
  const float shifted = x * 1.44269504088896341f + 12582912.0f;  // adding 1.5 * 2^23 rounds to an integer
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // x - n log 2, in [-0.35, 0.35]
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // p 2^n by adding n to the exponent: unlike a multiplication by 2^n it reaches the largest floats.
  const float inside =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
  const float above = x <= 88.722831f ? inside : x + std::numeric_limits<float>::infinity();  // NaN goes here too
  return x < -87.336f ? 0.0f : above;
}

inline float sigmoid_fast(float x) { return 1.0f / (1.0f + exp_fast(-x)); }

// tanh(x): an odd polynomial near zero, where 1 - 2 / (e^2x + 1) would cancel, that formula elsewhere.
inline float tanh_fast(float x) {
  const float a = std::fabs(x);
  const float big = 1.0f - 2.0f / (exp_fast(2.0f * a) + 1.0f);
  const float s = x * x;
  float p = -5.70498872745e-3f;
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  const float small = p * s * x + x;
  return a < 0.625f ? small : std::copysign(big, x);
}

// e^(a^2) erfc(a) for 0 <= a <= 9.4, error below 5e-7: a polynomial in 1 / (1 + 0.48 a), minimax in relative error.
inline float erfc_scaled_fast(float a) {
  const float t = 1.0f / (1.0f + 0.48f * a);
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

// erf(x): an odd polynomial for |x| < 1, 1 - e^-x^2 erfc_scaled(|x|) elsewhere.
inline float erf_fast(float x) {
  const float a = std::fabs(x);
  const float s = x * x;
  float p = 7.853861353153693e-5f;
  p = p * s - 8.010193625184903e-4f;
  p = p * s + 5.188327685732524e-3f;
  p = p * s - 2.685381193529856e-2f;
  p = p * s + 1.128358514861418e-1f;
  p = p * s - 3.761262582423300e-1f;
  p = p * s + 1.128379165726710e+0f;
  const float big = 1.0f - erfc_scaled_fast(a) * exp_fast(-s);
  return a < 1.0f ? x * p : std::copysign(big, x);
}

}  // namespace overtake::kernels
