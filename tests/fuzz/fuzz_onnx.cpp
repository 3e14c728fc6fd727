#include <cstddef>
#include <cstdint>

#include "allocation_bound.h"
#include "targets.h"

// The constant is for small files: 4 Mi elements of constants, and 32 MiB of inlined functions in vectors that double.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const overtake::fuzz::AllocationBound bound(64 * size + (std::size_t{72} << 20));
  overtake::fuzz::feed_onnx({reinterpret_cast<const char*>(data), size});
  return 0;
}
