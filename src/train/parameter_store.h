#pragma once
// Everything that lives across steps, by name: weights, running statistics, optimizer states. It knows where each lies,
// on which rank and in which buffers, and moves values between there, files and other programs.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "comm/rank_groups.h"
#include "exec/executor.h"
#include "plan/divide/detail.h"

namespace overtake {

class ParameterStore {
 public:
  // `step` is the step of one micro-batch, whose parameters these are; `whole` what all devices do, and `mine` what the
  // executor's plans do of it. Both groups and executor must outlive the store.
  ParameterStore(const Graph& step, const Detail& whole, const Detail& mine, Executor& executor, RankGroups* groups);

  // The start of a training: a pure function of the seed and each name, and what is in `tensors` instead.
  void initialise(std::uint64_t seed, const std::vector<NamedTensor>& tensors);

  // All of it in stored form (train/weights.h). Of several ranks only the first gets it; all call this at once.
  std::vector<NamedTensor> tensors() const;
  // Takes all of it from the first rank's tensors. A user error lists what is missing, too much or of another shape;
  // nothing is changed then. All ranks call this at once.
  void restore(const std::vector<NamedTensor>& tensors, const std::string& where);
  // Takes what another store of the same parameters has, wherever it lies there. All ranks call this at once.
  void take(const ParameterStore& other);

  // Over all weights in their order in the model; the first rank's counts.
  std::uint64_t weights_hash() const;
  // One of those tensors, none if there is none of that name. All ranks call this at once, and only the first gets
  // values.
  std::optional<NamedTensor> find(const std::string& name) const;

  // Memory that an executor of another program may take over, where everything lies as it does here.
  std::shared_ptr<PersistentMemory> memory() const { return executor_->persistent_memory(); }

 private:
  struct Home {
    std::vector<int> ranks = {};      // that have it, in ascending order
    std::vector<BufferId> here = {};  // its buffers in this process
  };

  int rank() const { return groups_ != nullptr ? groups_->world->rank() : 0; }
  std::size_t bytes_of_values(std::size_t parameter) const;
  std::vector<std::byte> own_values(std::size_t parameter) const;
  // A parameter wherever it lies; only the first rank gets it.
  std::vector<std::byte> collect(std::size_t parameter) const;
  // Its tensors in stored form; values are the first rank's.
  std::vector<NamedTensor> tensors_of(std::size_t parameter) const;
  // What of the parameter is among the tensors; empty: nothing.
  std::vector<std::byte> values_from(std::size_t parameter, const std::vector<NamedTensor>& tensors) const;
  void write(std::size_t parameter, std::span<const std::byte> values);

  Graph step_;
  std::vector<Home> homes_;  // per parameter of it
  Executor* executor_;
  RankGroups* groups_;
};

// Whether everything that lives across steps lies at the same offsets in both plans.
bool have_same_persistent_layout(const Plan& a, const Plan& b);

}  // namespace overtake
