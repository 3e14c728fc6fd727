// What a build without CUDA says.

#include "base/error.h"
#include "exec/backend.h"
#include "exec/cuda/description.h"

namespace overtake {

CudaDescription describe_cuda() {
  return {.is_built_in = false,
          .note = "not in this build; configure it with CMake's preset cuda",
          .libraries = {},
          .gpus = {}};
}

std::unique_ptr<Backend> make_cuda_backend(int, const BackendOptions&) {
  fail_user(
      "`device cuda`: this build has no CUDA; `overtake devices` lists what there is, CMake's preset cuda builds it "
      "in");
}

}  // namespace overtake
