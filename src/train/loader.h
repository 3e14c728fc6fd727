#pragma once
// Prepares batches ahead of the training loop, in a thread of its own. The batches do not depend on timing.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "train/augment.h"
#include "train/data.h"
#include "train/sampler.h"

namespace overtake {

// One batch in host memory; which vectors are filled follows from the dataset's form. All have room for a whole batch:
// a last batch that is not full repeats its last sample behind the `samples` that count.
struct HostBatch {
  DataPosition position = {};             // of this batch
  std::int64_t samples = 0;               // that count
  std::vector<float> values = {};         // [B, H, W, C] or [B, F]
  std::vector<std::int32_t> tokens = {};  // [B, S]
  std::vector<std::int32_t> labels = {};  // [B] or [B, label_dims...]
  std::vector<float> targets = {};        // [B, label_dims...]
};

struct LoaderOptions {
  SamplerOptions sampler = {};
  AugmentOptions augment = {};                                          // images only: a user error otherwise
  int depth = 3;                                                        // batches prepared ahead, at least 1
  std::uint64_t end_epoch = std::numeric_limits<std::uint64_t>::max();  // the loader ends before this epoch
  // Of every batch only samples [first, first + count) are given out: what this process feeds. 0: all.
  std::int64_t first = 0, count = 0;
};

class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, LoaderOptions options, DataPosition start = {});
  // Stops the thread, whatever it was doing.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch, valid until the next call; nullptr from end_epoch on. What went wrong in the thread is thrown here,
  // after the batches before it were given out.
  const HostBatch* next();

  std::uint64_t batches_per_epoch() const { return batches_per_epoch_; }

 private:
  void work(DataPosition position);
  std::unique_ptr<HostBatch> take_free();  // nullptr: stop
  void prepare(HostBatch& batch, const DataPosition& position);
  std::int64_t count() const { return options_.count == 0 ? options_.sampler.batch : options_.count; }

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  Sampler sampler_;  // the thread's alone
  std::uint64_t batches_per_epoch_;
  std::unique_ptr<HostBatch> lent_;  // what next() gave out; the caller's side alone

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::unique_ptr<HostBatch>> ready_;
  std::vector<std::unique_ptr<HostBatch>> free_;
  std::exception_ptr error_;
  bool finished_ = false;  // the thread adds no more
  bool stop_ = false;      // the thread shall add no more

  std::thread thread_;  // last: starts when all above is there
};

}  // namespace overtake
