#include "allocation_bound.h"

#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::size_t kNoBound = std::numeric_limits<std::size_t>::max();

// Of the whole program, as the operators below are. Only the thread that runs inputs allocates while there is a bound.
constinit std::size_t most_bytes = kNoBound, live_bytes = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (most_bytes != kNoBound && (bytes > most_bytes || live_bytes + bytes > most_bytes)) {
    std::fprintf(stderr, "an allocation of %zu bytes beside %zu, where %zu in all are the bound\n", bytes, live_bytes,
                 most_bytes);
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

AllocationBound::AllocationBound(std::size_t bytes) {
  live_bytes = 0;
  most_bytes = bytes;
}

AllocationBound::~AllocationBound() { most_bytes = kNoBound; }

}  // namespace overtake::fuzz
