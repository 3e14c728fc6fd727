#include "exec/backend.h"
#include "exec/cpu/description.h"
#include "exec/cpu/target.h"

namespace overtake {
namespace {

// Plans as for the CPU, so that what is tested without computing is what would run.
class NullBackend final : public Backend {
 public:
  explicit NullBackend(const BackendOptions& options) : precision_(options.precision.value_or(Precision::f32)) {}

  const Target& target() const override { return target_; }
  DeviceTarget kernels() const override { return DeviceTarget::cpu; }
  Precision precision() const override { return precision_; }
  std::unique_ptr<Executor> make_executor(std::vector<Plan> plans, std::shared_ptr<PersistentMemory> memory) override {
    return make_null_executor(std::move(plans), std::move(memory));
  }
  std::string identity() const override { return "null"; }
  std::size_t most_lanes() const override { return 2; }
  bool has_room_for(std::uint64_t bytes) const override { return bytes <= available_memory(); }

 private:
  CpuTarget target_;
  Precision precision_;
};

}  // namespace

std::unique_ptr<Backend> make_null_backend(const BackendOptions& options) {
  return std::make_unique<NullBackend>(options);
}

}  // namespace overtake
