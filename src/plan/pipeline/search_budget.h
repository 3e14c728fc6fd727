#pragma once
// How long a search may go on, in tries, and its dice: the same on every machine.

#include <algorithm>
#include <cstdint>
#include <random>

namespace overtake {

class SearchBudget {
 public:
  SearchBudget(std::uint64_t tries, std::uint64_t seed) : most_(tries), random_(seed) {}

  // Counts a try.
  void spend() { ++tries_; }
  std::uint64_t tries() const { return tries_; }
  // The part that is gone; 1 or more: stop.
  double gone() const { return most_ == 0 ? 1 : static_cast<double>(tries_) / static_cast<double>(most_); }

  // How many tries there will have been, as far as one can tell.
  double expected_tries() const { return static_cast<double>(tries_) / std::max(gone(), 1e-9); }

  // 0 .. n - 1
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  // [0, 1)
  double part() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

 private:
  std::uint64_t most_;
  std::mt19937_64 random_;
  std::uint64_t tries_ = 0;
};

}  // namespace overtake
