#include <cstddef>
#include <cstdint>

#include "allocation_bound.h"
#include "targets.h"

// The constant is for small files: the constants that the target allows, and 1 MiB of inlined functions.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const overtake::fuzz::AllocationBound bound(512 * size + (std::size_t{8} << 20));
  overtake::fuzz::feed_onnx({reinterpret_cast<const char*>(data), size});
  return 0;
}
