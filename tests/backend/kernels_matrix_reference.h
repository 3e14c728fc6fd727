#pragma once
// What the tests of the matrix kernels share: random values, aligned scratch, comparison, and finite differences.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/bf16.h"

namespace overtake::kernels::testing {

inline std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

// Normal values with standard deviation `scale`, rounded to T.
template <class T>
std::vector<T> random_values(std::int64_t count, unsigned seed, float scale = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(size_of(count));
  for (T& v : values) v = from_float<T>(scale * normal(engine));
  return values;
}

template <class T>
std::vector<double> to_double(const std::vector<T>& values) {
  std::vector<double> out;
  for (T v : values) out.push_back(static_cast<double>(to_float(v)));
  return out;
}

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Every element within `tolerance` of the expected one, relative to the largest expected magnitude (or 1).
template <class T>
void expect_close(const std::vector<T>& actual, const std::vector<double>& expected, double tolerance,
                  const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = 1.0;
  for (double e : expected) scale = std::max(scale, std::fabs(e));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(to_float(actual[i])), expected[i], tolerance * scale) << what << " at " << i;
  }
}

// Compares `gradient` with central differences of `loss` as a function of `values`, at up to `samples` places.
template <class T>
void expect_gradient(const std::vector<T>& gradient, std::vector<double>& values, const std::function<double()>& loss,
                     double tolerance, const char* what, std::size_t samples = 60) {
  ASSERT_EQ(gradient.size(), values.size()) << what;
  const std::size_t step = std::max<std::size_t>(1, values.size() / samples);
  for (std::size_t i = 0; i < values.size(); i += step) {
    const double saved = values[i], h = 1e-5 * std::max(1.0, std::fabs(saved));
    values[i] = saved + h;
    const double above = loss();
    values[i] = saved - h;
    const double below = loss();
    values[i] = saved;
    const double expected = (above - below) / (2.0 * h);
    ASSERT_NEAR(static_cast<double>(to_float(gradient[i])), expected, tolerance * std::max(1.0, std::fabs(expected)))
        << what << " at " << i;
  }
}

// Scratch memory aligned to 64 bytes, filled with NaN so that a read of what was not written shows.
class AlignedScratch {
 public:
  explicit AlignedScratch(std::int64_t bytes) : lines_(size_of(bytes / 64 + 1)) {
    std::memset(lines_.data(), 0xff, lines_.size() * sizeof(Line));
  }
  void* data() { return lines_.data(); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

// Calls body(begin, end) for odd pieces that cover [0, count).
inline void in_odd_pieces(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) {
  std::int64_t begin = 0;
  for (std::int64_t piece = 1; begin < count; piece = piece * 2 % 11 + 1) {
    const std::int64_t end = std::min(count, begin + piece);
    body(begin, end);
    begin = end;
  }
}

}  // namespace overtake::kernels::testing
