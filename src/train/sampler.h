#pragma once
// The order of samples: a pure function of (seed, epoch), so that a run can be resumed at any batch.

#include <cstdint>
#include <vector>

namespace overtake {

// A place between two batches.
struct DataPosition {
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;  // index of the next batch in the epoch

  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

// A random permutation of [0, samples).
std::vector<std::int64_t> shuffled_order(std::int64_t samples, std::uint64_t seed, std::uint64_t epoch);

struct SamplerOptions {
  std::int64_t batch = 1;  // samples per batch
  std::uint64_t seed = 0;
  bool shuffle = true;
  // Leave out the samples of an epoch that do not fill a batch: training does, evaluation does not.
  bool drop_last = true;
};

class Sampler {
 public:
  // A user error when no epoch would have a batch.
  Sampler(std::int64_t samples, SamplerOptions options);

  std::uint64_t batches_per_epoch() const { return batches_; }

  // The samples of the batch at `position`; fewer than options.batch only in the last one without drop_last. Keeps the
  // order of the last epoch asked for, so walking on is cheap and jumping is allowed.
  std::vector<std::int64_t> batch_at(const DataPosition& position);

  // The position one batch on; the epoch's end leads to the next epoch's start.
  DataPosition after(DataPosition position) const;

  // The position after `steps` batches from the very start.
  DataPosition at_step(std::uint64_t steps) const { return {steps / batches_, steps % batches_}; }

 private:
  std::int64_t samples_;
  SamplerOptions options_;
  std::uint64_t batches_;
  std::vector<std::int64_t> order_;  // of epoch order_epoch_; empty before the first use
  std::uint64_t order_epoch_ = 0;
};

}  // namespace overtake
