#pragma once
// How long a search may go on, in tries or in seconds, and its dice.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

#include "base/seconds_since.h"

namespace overtake {

class SearchBudget {
 public:
  SearchBudget(double seconds, std::optional<std::uint64_t> tries, std::uint64_t seed)
      : seconds_(seconds), most_(tries), begin_(std::chrono::steady_clock::now()), random_(seed) {}

  // Counts a try.
  void spend() { ++tries_; }
  std::uint64_t tries() const { return tries_; }
  // The part that is gone; 1 or more: stop.
  double gone() {
    if (most_) return *most_ == 0 ? 1 : static_cast<double>(tries_) / static_cast<double>(*most_);
    if (tries_ >= next_look_) {
      next_look_ = tries_ + 16;
      gone_ = seconds_ <= 0 ? 1 : seconds_since(begin_) / seconds_;
    }
    return gone_;
  }

  // How many tries there will have been, as far as one can tell.
  double expected_tries() { return static_cast<double>(tries_) / std::max(gone(), 1e-9); }

  // 0 .. n - 1
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  // [0, 1)
  double part() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

 private:
  double seconds_;
  std::optional<std::uint64_t> most_;
  std::chrono::steady_clock::time_point begin_;
  std::mt19937_64 random_;
  std::uint64_t tries_ = 0, next_look_ = 0;
  double gone_ = 0;
};

}  // namespace overtake
