#include "kernels/cuda/cudnn.h"

#include <fmt/format.h>

#include <stdexcept>

namespace overtake::cuda {
namespace {

struct Shared {
  std::mutex lock;
  cudnnHandle_t handle = nullptr;
};

// Made at the first use, with the lock held by the user; never given back, since what cuDNN loaded serves until the
// end.
Shared& shared() {
  static Shared one;
  return one;
}

}  // namespace

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("cuDNN: {}: {}", what, cudnnGetErrorString(status)));
}

Cudnn::Cudnn(cudaStream_t stream) : lock_(shared().lock) {
  if (shared().handle == nullptr) check_cudnn(cudnnCreate(&shared().handle), "starting the library");
  handle_ = shared().handle;
  check_cudnn(cudnnSetStream(handle_, stream), "choosing a stream");
}

}  // namespace overtake::cuda
