#pragma once
// Random inputs, and the comparison of what a CUDA kernel wrote with what the CPU kernel of the same name wrote.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "cuda/device_array.h"

namespace overtake {

// Normal values around `mean`; never all equal, never exactly zero in bulk.
template <class T>
std::vector<T> random_values(std::int64_t count, unsigned seed, float mean = 0.0f, float deviation = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = from_float<T>(normal(generator));
  return values;
}

// Largest difference allowed, relative to the largest element.
template <class T>
constexpr float kBound = sizeof(T) == 4 ? 1e-5f : 1e-2f;

template <class T>
void expect_close(const std::vector<T>& got, const std::vector<T>& want, float bound, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  float largest = 0;
  for (const T& value : want) largest = std::max(largest, std::fabs(to_float(value)));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const float difference = std::fabs(to_float(got[i]) - to_float(want[i]));
    // NaN compares false: an element that was not written fails here.
    ASSERT_TRUE(difference <= bound * largest)
        << what << " [" << i << "]: " << to_float(got[i]) << ", the CPU has " << to_float(want[i]);
  }
}

template <class T>
void expect_same_bytes(const std::vector<T>& a, const std::vector<T>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0) << what << ": two runs differ";
}

inline std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace overtake
