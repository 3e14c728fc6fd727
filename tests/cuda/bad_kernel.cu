#include "cuda/bad_kernel.h"

#include <cstdint>

namespace overtake {
namespace {

__global__ void write_to(std::uintptr_t address) { *reinterpret_cast<volatile int*>(address) = 1; }

}  // namespace

void launch_bad_kernel() { write_to<<<1, 1>>>(std::uintptr_t{64}); }

}  // namespace overtake
