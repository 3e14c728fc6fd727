#include "exec/cuda/sm_partition.h"

#include "base/error.h"

namespace overtake {
namespace {

// Functions of the driver are looked up when they are called, so that the program starts where there is none.
template <class Function>
Function* driver_function(Function*, const char* name, const char* field) {
  constexpr unsigned kVersion = 12050;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &status);
  if (error != cudaSuccess || status != cudaDriverEntryPointSuccess || found == nullptr)
    fail_user("{}: this driver has no {}; leave it out, or install a newer driver", field, name);
  return reinterpret_cast<Function*>(found);
}
#define OVERTAKE_DRIVER(name, field) driver_function(decltype(&name){}, #name, field)

void check(CUresult result, const char* field, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  OVERTAKE_DRIVER(cuGetErrorString, field)(result, &text);
  fail_user("{}: {} failed: {}; leave it out, or use a GPU and driver with green contexts", field, what,
            text == nullptr ? "unknown error" : text);
}

int current_gpu() {
  int ordinal = 0;
  check_cuda_call(cudaGetDevice(&ordinal), "asking for the GPU");
  return ordinal;
}

}  // namespace

// The SMs of one GPU and the ways to take them apart.
class SmSplitter {
 public:
  SmSplitter(int ordinal, const char* field) : field_(field) {
    check(OVERTAKE_DRIVER(cuDeviceGet, field_)(&device_, ordinal), field_, "finding the GPU");
    check(OVERTAKE_DRIVER(cuDeviceGetDevResource, field_)(device_, &all_, CU_DEV_RESOURCE_TYPE_SM), field_,
          "counting SMs");
  }

  unsigned sms() const { return all_.sm.smCount; }

  // How many groups of at least so many SMs there are; 0 also where the driver refuses.
  unsigned groups_of(unsigned sms) const {
    unsigned groups = 0;
    const CUresult result =
        OVERTAKE_DRIVER(cuDevSmResourceSplitByCount, field_)(nullptr, &groups, &all_, nullptr, 0, sms);
    return result == CUDA_SUCCESS ? groups : 0;
  }

  // The largest number to ask for that gives so many groups; 0 if none does. The hardware rounds up what it is asked
  // for.
  unsigned largest_of(unsigned groups) const {
    unsigned sms = all_.sm.smCount / groups;
    while (sms > 0 && groups_of(sms) < groups) --sms;
    return sms;
  }

  struct Groups {
    std::vector<CUdevResource> parts;
    CUdevResource rest{};
  };
  Groups split(unsigned groups, unsigned sms) const {
    Groups out;
    out.parts.resize(groups);
    unsigned made = groups;
    check(OVERTAKE_DRIVER(cuDevSmResourceSplitByCount, field_)(out.parts.data(), &made, &all_, &out.rest, 0, sms),
          field_, "setting SMs apart");
    OVERTAKE_CHECK(made == groups, "{} groups of {} SMs were asked for, {} were made", groups, sms, made);
    return out;
  }

  // Nothing where the driver refuses.
  std::optional<SmPartition> try_partition(CUdevResource& part) const {
    CUdevResourceDesc description = nullptr;
    CUgreenCtx context = nullptr;
    if (OVERTAKE_DRIVER(cuDevResourceGenerateDesc, field_)(&description, &part, 1) != CUDA_SUCCESS) return {};
    if (OVERTAKE_DRIVER(cuGreenCtxCreate, field_)(&context, description, device_, CU_GREEN_CTX_DEFAULT_STREAM) !=
        CUDA_SUCCESS)
      return {};
    return SmPartition(context, part.sm.smCount);
  }
  SmPartition partition(CUdevResource& part) const {
    std::optional<SmPartition> made = try_partition(part);
    if (!made) fail_user("{}: the driver made no partition of {} SMs; leave it out", field_, part.sm.smCount);
    return std::move(*made);
  }

 private:
  const char* field_;
  CUdevice device_ = 0;
  CUdevResource all_{};
};

void SmPartition::destroy(CUgreenCtx context) { OVERTAKE_DRIVER(cuGreenCtxDestroy, "green contexts")(context); }

CudaStream SmPartition::make_stream(int priority) const {
  constexpr const char* kUse = "green contexts";
  CUstream stream = nullptr;
  check(OVERTAKE_DRIVER(cuGreenCtxStreamCreate, kUse)(&stream, context_.get(), CU_STREAM_NON_BLOCKING, priority), kUse,
        "making a stream");
  return CudaStream(stream);
}

SmPartition make_side_partition(unsigned sms) {
  const SmSplitter gpu(current_gpu(), "`side_sms`");
  if (sms == 0 || sms >= gpu.sms())
    fail_user("`side_sms {}`: the GPU has {} SMs; choose fewer than that, for example {}", sms, gpu.sms(),
              gpu.sms() / 4);
  return gpu.partition(gpu.split(1, sms).parts[0]);
}

VirtualGpus split_gpu(unsigned count) {
  const SmSplitter gpu(current_gpu(), "`virtual_gpus`");
  const unsigned most = gpu.groups_of(1);
  if (count == 0 || count > most)
    fail_user("`virtual_gpus {}`: this GPU and driver can split {} SMs into at most {}; give a smaller number", count,
              gpu.sms(), most);
  SmSplitter::Groups groups = gpu.split(count, gpu.largest_of(count));
  VirtualGpus made;
  for (CUdevResource& part : groups.parts) made.gpus.push_back(gpu.partition(part));
  if (groups.rest.type == CU_DEV_RESOURCE_TYPE_SM && groups.rest.sm.smCount > 0)
    made.rest = gpu.try_partition(groups.rest);
  return made;
}

std::vector<unsigned> virtual_gpu_sizes(int ordinal) {
  std::vector<unsigned> sizes;
  try {
    const SmSplitter gpu(ordinal, "`virtual_gpus`");
    const unsigned most = gpu.groups_of(1);
    for (unsigned count = 1; count <= most; ++count)
      sizes.push_back(gpu.split(count, gpu.largest_of(count)).parts[0].sm.smCount);
  } catch (const UserError&) {  // of a driver without green contexts
    sizes.clear();
  }
  return sizes;
}

}  // namespace overtake
