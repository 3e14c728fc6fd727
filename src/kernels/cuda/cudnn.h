#pragma once
// The process's one cuDNN handle, for the device that is current when it is first used.

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <mutex>

namespace overtake::cuda {

// Throws std::runtime_error, naming what was done, unless it is success.
void check_cudnn(cudnnStatus_t status, const char* what);

// Holds the handle for one thread, with its stream set. Keep it for one call or the building of one plan.
class Cudnn {
 public:
  explicit Cudnn(cudaStream_t stream = nullptr);
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  cudnnHandle_t handle() const { return handle_; }

 private:
  std::unique_lock<std::mutex> lock_;
  cudnnHandle_t handle_;
};

}  // namespace overtake::cuda
