#pragma once
// Lines for people about work that takes long: none while it is short, then one every few seconds.

#include <chrono>
#include <functional>
#include <string>
#include <utility>

namespace overtake {

class ProgressNotes {
 public:
  explicit ProgressNotes(std::function<void(const std::string&)> note) : note_(std::move(note)) {}

  // `text` is made only where it is said.
  template <class MakeText>
  void say(const MakeText& text) {
    const auto now = Clock::now();
    if (!note_ || now - last_ < kPause) return;
    last_ = now;
    note_(text());
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPause{2};

  std::function<void(const std::string&)> note_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace overtake
