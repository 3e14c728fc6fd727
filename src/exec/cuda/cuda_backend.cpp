#include <fmt/format.h>

#include "exec/backend.h"
#include "exec/cuda/cuda_executor.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/target.h"
#include "kernels/cuda/tuning.h"

namespace overtake {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(int gpu, const BackendOptions& options)
      : device_(gpu, options),
        target_(device_),
        flags_(fmt::format(", graph {}, tuned {}, side SMs {}", options.use_graph, options.tune, options.side_sms)) {
    if (options.virtual_gpus > 0)
      flags_ += fmt::format(", {} virtual GPUs of {} SMs, link {} B/s {} ns", options.virtual_gpus,
                            device_.virtual_gpus()->gpus[0].sms(), options.virtual_link.bytes_per_s,
                            options.virtual_link.latency_ns);
  }

  const Target& target() const override { return target_; }
  DeviceTarget kernels() const override { return DeviceTarget::gpu; }
  Precision precision() const override { return device_.precision(); }
  std::unique_ptr<Executor> make_executor(std::vector<Plan> plans, std::shared_ptr<PersistentMemory> memory) override {
    device_.save_tuning();  // planning has asked for every kernel by now
    return make_cuda_executor(std::move(plans), device_, std::move(memory));
  }
  std::string identity() const override { return cuda::this_platform() + flags_; }
  std::size_t most_lanes() const override { return 4; }
  bool has_room_for(std::uint64_t bytes) const override {
    std::size_t free = 0, total = 0;
    check_cuda_call(cudaMemGetInfo(&free, &total), "asking for free memory");
    return bytes <= free;
  }

 private:
  CudaDevice device_;
  CudaTarget target_;
  std::string flags_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int gpu, const BackendOptions& options) {
  return std::make_unique<CudaBackend>(gpu, options);
}

}  // namespace overtake
