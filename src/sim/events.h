#pragma once
// Things that happen at a time, smallest first; at equal times by id, then by data.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace overtake {

struct Event {
  std::int64_t time_ns = 0;  // never negative
  std::uint32_t id = 0;
  std::uint32_t data = 0;
};

// A radix heap: time never goes back, so an event waits in a bucket by the highest digit (of five bits) in which its
// time differs from that of the last event taken, and by that digit; it moves to lower buckets as its time comes
// closer. A push is O(1), and an event moves at most once per digit of the time it waits, in plain sweeps over memory
// (with a heap of comparisons, four children each, bench/sim ran at half the rate).
class EventQueue {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  // Not before the last event taken.
  void push(const Event& event) {
    OVERTAKE_CHECK(event.time_ns >= last_ns_, "event at {} ns after {} ns", event.time_ns, last_ns_);
    ++size_;
    put(event);
    if (has_top_ && is_before(event, top_)) top_ = event;
  }
  const Event& top() {
    if (!has_top_) find_top();
    return top_;
  }
  void pop() {
    if (!has_top_) find_top();
    has_top_ = false;
    --size_;
    if (now_.empty()) {
      sweep();
      return;
    }
    std::pop_heap(now_.begin(), now_.end(), is_after);
    now_.pop_back();
  }

 private:
  static constexpr std::size_t kBits = 5, kDigits = 1 << kBits, kLevels = 64 / kBits + 1;
  __extension__ using Key = unsigned __int128;
  static Key key(const Event& e) {
    return static_cast<Key>(static_cast<std::uint64_t>(e.time_ns)) << 64 | static_cast<Key>(e.id) << 32 | e.data;
  }
  static bool is_before(const Event& a, const Event& b) { return key(a) < key(b); }
  static bool is_after(const Event& a, const Event& b) { return key(a) > key(b); }

  void put(const Event& event) {
    if (event.time_ns == last_ns_) {
      now_.push_back(event);
      std::push_heap(now_.begin(), now_.end(), is_after);
      return;
    }
    const auto differs = static_cast<std::uint64_t>(event.time_ns ^ last_ns_);
    const std::size_t level = (static_cast<std::size_t>(std::bit_width(differs)) - 1) / kBits;
    const std::size_t digit = static_cast<std::size_t>(event.time_ns >> (level * kBits)) % kDigits;
    buckets_[level * kDigits + digit].push_back(event);
    digits_[level] |= 1u << digit;
    levels_ |= 1u << level;
  }

  std::size_t lowest() const {
    const auto level = static_cast<std::size_t>(std::countr_zero(levels_));
    return level * kDigits + static_cast<std::size_t>(std::countr_zero(digits_[level]));
  }

  void find_top() {
    has_top_ = true;
    if (!now_.empty()) {
      top_ = now_.front();
      return;
    }
    const std::vector<Event>& bucket = buckets_[lowest()];
    top_ = *std::min_element(bucket.begin(), bucket.end(), is_before);
  }

  // Takes top_ out of the lowest bucket and brings the others closer.
  void sweep() {
    const std::size_t index = lowest(), level = index / kDigits;
    std::vector<Event>& bucket = buckets_[index];
    digits_[level] &= digits_[level] - 1;
    if (digits_[level] == 0) levels_ &= levels_ - 1;
    last_ns_ = top_.time_ns;
    bool is_taken = false;  // once: equal events may be there
    for (const Event& event : bucket) {
      if (!is_taken && key(event) == key(top_)) {
        is_taken = true;
      } else {
        put(event);
      }
    }
    bucket.clear();
  }

  std::size_t size_ = 0;
  std::int64_t last_ns_ = 0;
  std::array<std::vector<Event>, kLevels * kDigits> buckets_;
  std::uint32_t levels_ = 0;                        // a bit per level with events,
  std::array<std::uint32_t, kLevels> digits_ = {};  // and per digit of a level
  std::vector<Event> now_;                          // at last_ns_: a heap
  bool has_top_ = false;
  Event top_;
};

}  // namespace overtake
