#include "exec/cuda/side_partition.h"

#include "base/error.h"

namespace overtake {
namespace {

// Functions of the driver are looked up when they are called, so that the program starts where there is none.
template <class Function>
Function* driver_function(Function*, const char* name) {
  constexpr unsigned kVersion = 12050;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &status);
  if (error != cudaSuccess || status != cudaDriverEntryPointSuccess || found == nullptr)
    fail_user("--side-sms: this driver has no {}; leave it out, or install a newer driver", name);
  return reinterpret_cast<Function*>(found);
}
#define OVERTAKE_DRIVER(name) driver_function(decltype(&name){}, #name)

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  OVERTAKE_DRIVER(cuGetErrorString)(result, &text);
  fail_user("--side-sms: {} failed: {}; leave it out, or use a GPU and driver with green contexts", what,
            text == nullptr ? "unknown error" : text);
}

}  // namespace

SidePartition::SidePartition(unsigned sms) {
  int ordinal = 0;
  check_cuda_call(cudaGetDevice(&ordinal), "asking for the GPU");
  CUdevice device = 0;
  check(OVERTAKE_DRIVER(cuDeviceGet)(&device, ordinal), "finding the GPU");
  CUdevResource all{};
  check(OVERTAKE_DRIVER(cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM), "counting SMs");
  if (sms == 0 || sms >= all.sm.smCount)
    fail_user("--side-sms {}: the GPU has {} SMs; choose fewer than that, for example {}", sms, all.sm.smCount,
              all.sm.smCount / 4);
  CUdevResource part{}, rest{};
  unsigned groups = 1;
  check(OVERTAKE_DRIVER(cuDevSmResourceSplitByCount)(&part, &groups, &all, &rest, 0, sms), "setting SMs apart");
  CUdevResourceDesc description = nullptr;
  check(OVERTAKE_DRIVER(cuDevResourceGenerateDesc)(&description, &part, 1), "describing a partition");
  CUgreenCtx context = nullptr;
  check(OVERTAKE_DRIVER(cuGreenCtxCreate)(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
        "making a partition");
  context_ = CudaOwned<CUgreenCtx, destroy>(context);
}

void SidePartition::destroy(CUgreenCtx context) { OVERTAKE_DRIVER(cuGreenCtxDestroy)(context); }

CudaStream SidePartition::make_stream(int priority) const {
  CUstream stream = nullptr;
  check(OVERTAKE_DRIVER(cuGreenCtxStreamCreate)(&stream, context_.get(), CU_STREAM_NON_BLOCKING, priority),
        "making a stream");
  return CudaStream(stream);
}

}  // namespace overtake
