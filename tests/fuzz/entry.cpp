// libFuzzer's entry of every program; CMake says of which target it is.

#include <cstddef>
#include <cstdint>

#include "allocation_bound.h"
#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Known to the compiler, so that a program is linked with what its own reader needs.
  constexpr overtake::fuzz::Target target = *overtake::fuzz::find_target(OVERTAKE_FUZZ_TARGET);
  const overtake::fuzz::AllocationBound bound(size, target.room);
  target.feed({reinterpret_cast<const char*>(data), size});
  return 0;
}
