#pragma once
// What kernel tests share: random tensors, comparison with a double reference, and the proof that the bits of a kernel
// do not depend on how its range is split.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/bf16.h"

namespace overtake::kernels {

inline std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T>
std::vector<T> random_tensor(std::int64_t count, std::uint32_t seed, float low = -2.0f, float high = 2.0f) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<T> values(index(count));
  for (T& value : values) value = from_float<T>(uniform(generator));
  return values;
}

template <class T>
std::vector<double> to_doubles(const std::vector<T>& values) {
  std::vector<double> doubles;
  doubles.reserve(values.size());
  for (const T value : values) doubles.push_back(static_cast<double>(to_float(value)));
  return doubles;
}

// Half the distance between neighbouring numbers near 1.
template <class T>
constexpr double kRounding = sizeof(T) == 4 ? 0x1p-24 : 0x1p-8;

// |got - want| <= error (|want| + scale), plus the rounding of the result to T.
template <class T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, double error, double scale = 0) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double value = static_cast<double>(to_float(got[i]));
    const double bound = error * (std::fabs(want[i]) + scale) + 1.01 * kRounding<T> * std::fabs(want[i]);
    ASSERT_TRUE(std::fabs(value - want[i]) <= bound) << "element " << i << ": " << value << ", not " << want[i];
  }
}

// run(out, begin, end) writes `count` elements in `units` units. Expects the same bytes from one range and from many
// odd ones run last to first, and every element to be written. Returns the result.
template <class T, class Run>
std::vector<T> run_whole_and_split(std::int64_t count, std::int64_t units, const Run& run,
                                   const std::vector<T>* initial = nullptr) {
  std::vector<T> whole(index(count)), split(index(count));
  if (initial != nullptr) {
    whole = *initial;
    split = *initial;
  } else {
    std::memset(static_cast<void*>(whole.data()), 0x55, whole.size() * sizeof(T));
    std::memset(static_cast<void*>(split.data()), 0x2a, split.size() * sizeof(T));
  }
  run(whole.data(), std::int64_t{0}, units);
  const std::int64_t sizes[] = {1, 3, 2, 7, 1, 5, 13};
  std::int64_t end = units;
  for (std::size_t i = 0; end > 0; ++i) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - sizes[i % std::size(sizes)]);
    run(split.data(), begin, end);
    end = begin;
  }
  if (!whole.empty()) {
    EXPECT_EQ(std::memcmp(whole.data(), split.data(), whole.size() * sizeof(T)), 0) << "bits depend on the split";
  }
  return whole;
}

}  // namespace overtake::kernels
