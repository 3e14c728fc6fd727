#pragma once
// Some of a GPU's SMs for side lanes: what runs there leaves the others to the main lane.

#include <cuda.h>

#include "exec/cuda/handles.h"

namespace overtake {

class SidePartition {
 public:
  // Of the current GPU, rounded up to what the hardware can set apart. User errors: too many, or a driver without it.
  explicit SidePartition(unsigned sms);

  CudaStream make_stream(int priority) const;

 private:
  static void destroy(CUgreenCtx context);

  CudaOwned<CUgreenCtx, destroy> context_;
};

}  // namespace overtake
