#pragma once
// Elementary functions without branches or tables, so that loops over them vectorise. Relative errors are below 4e-7
// wherever the result is a normal number, unless said otherwise; NaN stays NaN.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace overtake::kernels {

// (e^r - 1 - r) / r^2 for |r| <= 0.35.
inline float exp_remainder(float r) {
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  return p * r + 5.0000001201e-1f;
}

// e^x. Infinity where it overflows; 0 where the result would not be a normal number (x < -87.336), -inf included.
inline float exp_fast(float x) {
  const float shifted = x * 1.44269504088896341f + 12582912.0f;  // adding 1.5 * 2^23 rounds to an integer
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // x - n log 2, in [-0.35, 0.35]
  const float p = exp_remainder(r) * r * r + r + 1.0f;
  // p 2^n by adding n to the exponent: unlike a multiplication by 2^n it reaches the largest floats.
  const float inside =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
  const float above = x <= 88.722831f ? inside : x + std::numeric_limits<float>::infinity();  // NaN goes here too
  return x < -87.336f ? 0.0f : above;
}

// e^x - 1 for x <= 0, without the cancellation near 0.
inline float expm1_negative_fast(float x) {
  const float clamped = x < -20.0f ? -20.0f : x;  // from here on the result is -1
  const float shifted = clamped * 1.44269504088896341f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  const float power = std::bit_cast<float>(0x3f800000u + (std::bit_cast<std::uint32_t>(shifted) << 23));  // 2^n
  return power * (exp_remainder(r) * r * r + r) + (power - 1.0f);
}

// log(x). -infinity at 0, NaN below.
inline float log_fast(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool is_tiny = x < std::numeric_limits<float>::min();
  const float scaled = is_tiny ? x * 8388608.0f : x;  // a normal number
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)), so that near 1, where the result is small, e is 0.
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(scaled);
  const std::int32_t exponent = static_cast<std::int32_t>(bits - 0x3f3504f3u) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(exponent) << 23));
  const float e = static_cast<float>(exponent) - (is_tiny ? 23.0f : 0.0f);
  // log(m) = 2 artanh(s), by its series: s^2 < 0.03.
  const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
  const float series = z * (z * (z * (z * (2.0f / 9.0f) + 2.0f / 7.0f) + 2.0f / 5.0f) + 2.0f / 3.0f);
  const float value = e * 0.693359375f + (s * series + 2.0f * s - e * 2.12194440e-4f);
  const float positive = x < kInfinity ? value : x;
  return x > 0.0f ? positive : (x == 0.0f ? -kInfinity : std::numeric_limits<float>::quiet_NaN());
}

// log(1 + x) for 0 <= x <= 1: 2 artanh(s), by its series, with s <= 1/3.
inline float log1p_fast(float x) {
  const float s = x / (2.0f + x), z = s * s;
  float p = 2.0f / 15.0f;
  p = p * z + 2.0f / 13.0f;
  p = p * z + 2.0f / 11.0f;
  p = p * z + 2.0f / 9.0f;
  p = p * z + 2.0f / 7.0f;
  p = p * z + 2.0f / 5.0f;
  p = p * z + 2.0f / 3.0f;
  return p * z * s + 2.0f * s;
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
