#include <cstddef>
#include <cstdint>

#include "allocation_bound.h"
#include "targets.h"

// The constant is for what does not depend on the input: error texts, the JSON parser's buffers.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const overtake::fuzz::AllocationBound bound(32 * size + (std::size_t{64} << 10));
  overtake::fuzz::feed_safetensors({reinterpret_cast<const char*>(data), size});
  return 0;
}
