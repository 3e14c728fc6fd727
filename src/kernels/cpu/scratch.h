#pragma once
// Hands out pieces of a caller's scratch memory. A kernel describes its layout once, as a struct whose constructor
// takes its pieces; over a null pointer the same struct measures how many bytes the layout needs.

#include <cstddef>
#include <cstdint>

namespace overtake::kernels {

class Scratch {
 public:
  explicit Scratch(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  // Room for `count` values of T, aligned to 64 bytes; not initialised.
  template <class T>
  T* take(std::int64_t count) {
    const std::int64_t at = used_;
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + at);
  }

  std::int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::int64_t used_ = 0;
};

}  // namespace overtake::kernels
