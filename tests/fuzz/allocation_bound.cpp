#include "allocation_bound.h"

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::size_t kNoBound = std::numeric_limits<std::size_t>::max();

// Of the whole program, as the operators below are. Only the thread that runs inputs allocates while there is a bound.
constinit std::size_t most_at_once = kNoBound, most_together = kNoBound, live_bytes = 0, largest_bytes = 0;

// Of all inputs of a kilobyte or more: below, what does not depend on the input is all there is to see.
constexpr std::size_t kLeastInput = 1024;
constinit double largest_ratio = 0;
constinit std::size_t largest_of_all = 0;

void report() {
  std::fprintf(stderr, "largest allocation: %zu bytes; %.2f times the input, of inputs of %zu bytes or more\n",
               largest_of_all, largest_ratio, kLeastInput);
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  largest_bytes = std::max(largest_bytes, bytes);
  if (bytes > most_at_once || (most_together != kNoBound && live_bytes + bytes > most_together)) {
    std::fprintf(stderr, "an allocation of %zu bytes beside %zu, where %zu and %zu in all are the bounds\n", bytes,
                 live_bytes, most_at_once, most_together);
    std::abort();
  }
  void* p =
      alignment == 0 ? std::malloc(bytes) : std::aligned_alloc(alignment, (bytes + alignment - 1) & ~(alignment - 1));
  if (p == nullptr) throw std::bad_alloc();
  live_bytes += malloc_usable_size(p);
  return p;
}

// What was allocated before there was a bound may go while there is one.
void release(void* p) {
  if (p == nullptr) return;
  const std::size_t bytes = malloc_usable_size(p);
  live_bytes -= bytes < live_bytes ? bytes : live_bytes;
  std::free(p);
}

}  // namespace

// All forms that programs use, because a sanitizer has its own of those that are left out.
void* operator new(std::size_t bytes) { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 0); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }

namespace overtake::fuzz {

AllocationBound::AllocationBound(std::size_t input_bytes, std::size_t room) : input_bytes_(input_bytes) {
  static const int is_registered = std::atexit(report);
  static_cast<void>(is_registered);
  live_bytes = largest_bytes = 0;
  most_at_once = kMostPerByte * input_bytes + room;
  most_together = kMostPerByteTogether * input_bytes + room;
}

AllocationBound::~AllocationBound() {
  most_at_once = most_together = kNoBound;
  largest_of_all = std::max(largest_of_all, largest_bytes);
  if (input_bytes_ >= kLeastInput)
    largest_ratio = std::max(largest_ratio, static_cast<double>(largest_bytes) / static_cast<double>(input_bytes_));
}

}  // namespace overtake::fuzz
