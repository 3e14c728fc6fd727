#include "exec/cuda/side_partition.h"

#include "base/error.h"

namespace overtake {
namespace {

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  cuGetErrorString(result, &text);
  fail_user("--side-sms: {} failed: {}; leave it out, or use a GPU and driver with green contexts", what,
            text == nullptr ? "unknown error" : text);
}

}  // namespace

SidePartition::SidePartition(unsigned sms) {
  int ordinal = 0;
  check_cuda_call(cudaGetDevice(&ordinal), "asking for the GPU");
  CUdevice device = 0;
  check(cuDeviceGet(&device, ordinal), "finding the GPU");
  CUdevResource all{};
  check(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "counting SMs");
  if (sms == 0 || sms >= all.sm.smCount)
    fail_user("--side-sms {}: the GPU has {} SMs; choose fewer than that, for example {}", sms, all.sm.smCount,
              all.sm.smCount / 4);
  CUdevResource part{}, rest{};
  unsigned groups = 1;
  check(cuDevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, sms), "setting SMs apart");
  CUdevResourceDesc description = nullptr;
  check(cuDevResourceGenerateDesc(&description, &part, 1), "describing a partition");
  CUgreenCtx context = nullptr;
  check(cuGreenCtxCreate(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM), "making a partition");
  context_ = CudaOwned<CUgreenCtx, cuGreenCtxDestroy>(context);
}

CudaStream SidePartition::make_stream(int priority) const {
  CUstream stream = nullptr;
  check(cuGreenCtxStreamCreate(&stream, context_.get(), CU_STREAM_NON_BLOCKING, priority), "making a stream");
  return CudaStream(stream);
}

}  // namespace overtake
