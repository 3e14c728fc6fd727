#pragma once
// Costs of devices that a cluster describes: by their rates, or by a profile that was measured where such a device is.

#include "overtake/cluster.h"
#include "overtake/cost_model.h"

namespace overtake {

// A step that is measured for a cluster of devices that are not at hand is known by this.
struct StepIdentity {
  std::string key;  // equal for the same network, batch, precision and optimizer
  std::string of;   // the same for people: "resnet-50, 32 samples, bf16, adamw"
};
StepIdentity identity_of(const Graph& model, const RunSpec& spec);

class DescribedCosts final : public CostModel {
 public:
  DescribedCosts(Cluster cluster, bool tf32);
  // A kind that has neither rates nor a profile takes no time. User errors: a profile of other tasks than the step's.
  std::vector<TaskCost> costs(const Graph& step, std::uint32_t kind) const override;
  // What the first profile of these kinds is of. User errors: it is of another step than the model's; a kind's profile
  // has other tasks.
  std::optional<Graph> measured_step(const Graph& model, const RunSpec& spec,
                                     std::span<const std::uint32_t> kinds) const override;

 private:
  Cluster cluster_;
  bool tf32_;
};

// By rates alone; nothing where a device has none.
std::vector<TaskCost> costs_by_rates(const Graph& step, const DeviceType& device, bool tf32);
// Times that were measured; what binds a task, and how much, by its rates.
std::vector<TaskCost> with_times(std::vector<TaskCost> by_rates, const std::vector<std::int64_t>& ns);

}  // namespace overtake
