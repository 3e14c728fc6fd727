#include "train/loader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace overtake {
namespace {

// Which vectors a batch has follows from the dataset's form.
std::unique_ptr<HostBatch> make_batch(const SampleForm& form, std::int64_t samples) {
  auto batch = std::make_unique<HostBatch>();
  const auto inputs = static_cast<std::size_t>(samples * input_elements(form));
  const auto labels = static_cast<std::size_t>(samples * label_elements(form));
  form.input == InputForm::values ? batch->values.resize(inputs) : batch->tokens.resize(inputs);
  form.label == LabelForm::targets ? batch->targets.resize(labels) : batch->labels.resize(labels);
  return batch;
}

}  // namespace

Loader::Loader(std::shared_ptr<const Dataset> dataset, LoaderOptions options, DataPosition start)
    : dataset_(std::move(dataset)),
      options_(options),
      sampler_(dataset_->size(), options.sampler),
      batches_per_epoch_(sampler_.batches_per_epoch()) {
  OVERTAKE_CHECK(options_.depth >= 1, "a loader of depth {}", options_.depth);
  const SampleForm& form = dataset_->form();
  if (options_.augment.any() && (form.input != InputForm::values || form.input_dims.size() != 3)) {
    fail_user("`augment`: this data has no images; leave it out");
  }
  if (start.batch >= batches_per_epoch_) {
    fail_user(
        "`data`: it cannot start at batch {} of an epoch of {}; resume with the data and the batch size of before",
        start.batch, batches_per_epoch_);
  }
  // One more than `depth`: the one that next() lent out.
  for (int i = 0; i <= options_.depth; ++i) free_.push_back(make_batch(form, count()));
  thread_ = std::thread([this, start] { work(start); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const HostBatch* Loader::next() {
  std::unique_lock lock(mutex_);
  if (lent_) free_.push_back(std::move(lent_));
  changed_.notify_all();
  changed_.wait(lock, [this] { return !ready_.empty() || finished_; });
  if (!ready_.empty()) {
    lent_ = std::move(ready_.front());
    ready_.pop_front();
    return lent_.get();
  }
  if (error_) std::rethrow_exception(error_);
  return nullptr;
}

void Loader::work(DataPosition position) {
  std::exception_ptr error;
  try {
    for (; position.epoch < options_.end_epoch; position = sampler_.after(position)) {
      std::unique_ptr<HostBatch> batch = take_free();
      if (!batch) break;
      prepare(*batch, position);
      const std::lock_guard lock(mutex_);
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  error_ = error;
  finished_ = true;
  changed_.notify_all();
}

std::unique_ptr<HostBatch> Loader::take_free() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !free_.empty() || stop_; });
  if (stop_) return nullptr;
  std::unique_ptr<HostBatch> batch = std::move(free_.back());
  free_.pop_back();
  return batch;
}

void Loader::prepare(HostBatch& batch, const DataPosition& position) {
  std::vector<std::int64_t> indices = sampler_.batch_at(position);
  const std::int64_t size = std::ssize(indices);
  indices.erase(indices.begin(), indices.begin() + std::min(std::ssize(indices) - 1, options_.first));
  batch.position = position;
  batch.samples = std::clamp<std::int64_t>(size - options_.first, 0, count());
  indices.resize(static_cast<std::size_t>(count()), indices.back());
  dataset_->fill(indices, {.values = batch.values.data(),
                           .tokens = batch.tokens.data(),
                           .labels = batch.labels.data(),
                           .targets = batch.targets.data()});
  if (!options_.augment.any()) return;
  const std::vector<std::int64_t>& dims = dataset_->form().input_dims;  // [C, H, W]
  const std::int64_t elements = input_elements(dataset_->form());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    augment_image(batch.values.data() + static_cast<std::int64_t>(i) * elements, dims[0], dims[1], dims[2],
                  options_.augment, options_.sampler.seed, position.epoch, indices[i]);
  }
}

}  // namespace overtake
