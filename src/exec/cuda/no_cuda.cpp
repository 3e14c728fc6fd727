#include "exec/cuda/description.h"

namespace overtake {

CudaDescription describe_cuda() {
  return {.is_built_in = false, .note = "not in this build; configure with --preset cuda", .gpus = {}};
}

}  // namespace overtake
