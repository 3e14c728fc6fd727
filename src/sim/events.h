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

// A radix heap: time never goes back, so events wait in buckets by the highest bit in which their time differs from the
// time of the last one taken, and move to lower buckets as it comes closer. A push is O(1); an event moves at most once
// per bit of the time it waits, in plain sweeps over memory (with a 4-ary heap, bench/sim ran at half the rate).
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
    const auto bit = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(event.time_ns ^ last_ns_))) - 1;
    buckets_[bit].push_back(event);
    filled_ |= std::uint64_t{1} << bit;
  }

  std::vector<Event>& lowest() { return buckets_[static_cast<std::size_t>(std::countr_zero(filled_))]; }

  void find_top() {
    has_top_ = true;
    if (!now_.empty()) {
      top_ = now_.front();
      return;
    }
    const std::vector<Event>& bucket = lowest();
    top_ = *std::min_element(bucket.begin(), bucket.end(), is_before);
  }

  // Takes top_ out of the lowest bucket and brings the others closer.
  void sweep() {
    std::vector<Event>& bucket = lowest();
    filled_ &= filled_ - 1;
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
  std::uint64_t filled_ = 0;  // a bit per bucket
  std::array<std::vector<Event>, 63> buckets_;
  std::vector<Event> now_;  // at last_ns_: a heap
  bool has_top_ = false;
  Event top_;
};

}  // namespace overtake
