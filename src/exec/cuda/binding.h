#pragma once
// How the GPU does an op: a function that enqueues its kernels on a stream, on fixed addresses.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "exec/cuda/device.h"
#include "exec/cuda/handles.h"
#include "exec/task_view.h"
#include "kernels/cuda/step_values.h"

namespace overtake {

// Enqueues a task. Empty: there is nothing to do.
using Launch = std::function<void(cudaStream_t stream)>;

// Numbers that kernels write when what the host gave is wrong, looked at when the step has ended.
struct CudaCheck {
  std::int64_t* device = nullptr;                      // -1: all is well
  std::function<void(std::int64_t found)> raise = {};  // throws a user error
};

// What bindings of one program need and leave behind.
class BoundPlanData {
 public:
  explicit BoundPlanData(CudaDevice& device) : device_(device) {}

  CudaDevice& device() { return device_; }
  // Of the step that the task being bound belongs to.
  const cuda::StepValues* step_values() const { return step_values_; }
  void set_step_values(const cuda::StepValues* values) { step_values_ = values; }

  // A table that stays in device memory as long as the program.
  template <class T>
  const T* upload(std::span<const T> values) {
    DeviceMemory memory(values.size_bytes(), "tables");
    check_cuda_call(cudaMemcpy(memory.data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice),
                    "copying a table");
    tables_.push_back(std::move(memory));
    return reinterpret_cast<const T*>(tables_.back().data());
  }

  std::int64_t* add_check(std::function<void(std::int64_t)> raise);
  const std::vector<CudaCheck>& checks() const { return checks_; }

 private:
  CudaDevice& device_;
  const cuda::StepValues* step_values_ = nullptr;
  std::vector<DeviceMemory> tables_;
  std::vector<CudaCheck> checks_;
};

// `scratch` is null where no kernel of the op needs any.
struct CudaBinding {
  Launch (*bind)(const TaskView& view, BoundPlanData& program) = nullptr;
  std::int64_t (*scratch)(const TaskView& view, CudaDevice& device) = nullptr;
};
const CudaBinding& cuda_binding(Op op);

// Scratch memory is handed out in pieces at boundaries that every library takes.
constexpr std::int64_t kCudaPiece = 256;
constexpr std::int64_t cuda_piece(std::int64_t bytes) { return (bytes + kCudaPiece - 1) / kCudaPiece * kCudaPiece; }

}  // namespace overtake
