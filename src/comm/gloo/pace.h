#pragma once
// How many chunks may be ahead of one that is urgent: so many that the link does not run dry while threads wake up, so
// few that it is not kept waiting. A link's speed is taken from how chunks pass.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

namespace overtake {

class Pace {
 public:
  // As many as pass in so many seconds, within limits. The lower one is needed: fewer ahead make a link that waits for
  // threads slower, which would then ask for fewer still.
  Pace(int least, int most, double seconds, std::size_t chunk_bytes)
      : least_(std::min(least, most)),
        most_(most),
        seconds_(seconds),
        chunk_bytes_(static_cast<double>(chunk_bytes)),
        chunk_seconds_(seconds / least) {}

  // A message of so many bytes has passed. Small ones say nothing about the link.
  void passed(std::size_t bytes, std::chrono::steady_clock::time_point now) {
    const double gap = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    if (static_cast<double>(bytes) < chunk_bytes_ / 2) return;
    const double took = gap * chunk_bytes_ / static_cast<double>(bytes);
    chunk_seconds_ += (std::min(took, seconds_) - chunk_seconds_) / 4;
  }
  int window() const {
    const double chunks = seconds_ / std::max(chunk_seconds_, 1e-9);
    return static_cast<int>(std::lround(std::clamp<double>(chunks, least_, most_)));
  }

 private:
  const int least_, most_;
  const double seconds_, chunk_bytes_;
  double chunk_seconds_;  // what a chunk took, lately
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace overtake
