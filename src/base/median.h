#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace overtake {

// Of at least one sample, whose order changes; of an even number the upper of the two in the middle.
template <class T>
T median(std::vector<T>& samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

}  // namespace overtake
