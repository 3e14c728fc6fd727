#include <fmt/format.h>

#include "base/available_cores.h"
#include "base/error.h"
#include "exec/backend.h"
#include "exec/cpu/description.h"
#include "exec/cpu/target.h"

namespace overtake {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options)
      : precision_(options.precision.value_or(Precision::f32)), threads_(options.threads), groups_(options.groups) {
    if (precision_ == Precision::tf32) fail_user("`precision tf32`: only GPUs have it; use f32 or bf16");
    if (precision_ == Precision::bf16 && !cpu_has_bf16())
      fail_user("`precision bf16`: this CPU has no bfloat16 instructions; use `precision f32`");
  }

  const Target& target() const override { return target_; }
  DeviceTarget kernels() const override { return DeviceTarget::cpu; }
  Precision precision() const override { return precision_; }
  std::unique_ptr<Executor> make_executor(std::vector<Plan> plans, std::shared_ptr<PersistentMemory> memory) override {
    return make_cpu_executor(std::move(plans), {.threads = threads_, .groups = groups_}, std::move(memory));
  }
  std::string identity() const override {
    const CpuDescription cpu = describe_cpu();
    return fmt::format("{}, {}, {}, {} threads", cpu.model, cpu.instructions, cpu.library, threads());
  }
  std::size_t most_lanes() const override { return threads(); }
  bool has_room_for(std::uint64_t bytes) const override { return bytes <= available_memory(); }

 private:
  unsigned threads() const { return threads_ == 0 ? available_cores() : threads_; }

  CpuTarget target_;
  Precision precision_;
  unsigned threads_;
  std::shared_ptr<RankGroups> groups_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace overtake
