#include "train/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/philox.h"

namespace overtake {
namespace {

PhiloxKey key_of(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

std::uint64_t random_64(PhiloxKey key, std::uint64_t draw, std::uint64_t epoch) {
  const auto words = philox(key, draw, epoch);
  return words[0] | (static_cast<std::uint64_t>(words[1]) << 32);
}

}  // namespace

// Fisher and Yates, from the back. 64 random bits make the bias of the remainder immeasurable.
std::vector<std::int64_t> shuffled_order(std::int64_t samples, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const PhiloxKey key = key_of(seed);
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random_64(key, left, epoch) % left]);
  }
  return order;
}

Sampler::Sampler(std::int64_t samples, SamplerOptions options) : samples_(samples), options_(options) {
  if (options.batch < 1) fail_user("`batch {}`: not a batch size; give a number of at least 1", options.batch);
  if (samples < 1) fail_user("`data`: it has no samples; give data with at least one batch of {}", options.batch);
  if (options.drop_last && samples < options.batch) {
    fail_user("`batch {}`: the data has {} samples, fewer than one batch; give a batch size of at most {}",
              options.batch, samples, samples);
  }
  const std::int64_t rounded_up = options.drop_last ? 0 : options.batch - 1;
  batches_ = static_cast<std::uint64_t>((samples + rounded_up) / options.batch);
}

std::vector<std::int64_t> Sampler::batch_at(const DataPosition& position) {
  OVERTAKE_CHECK(position.batch < batches_, "batch {} of an epoch of {}", position.batch, batches_);
  const std::int64_t begin = static_cast<std::int64_t>(position.batch) * options_.batch;
  const std::int64_t end = std::min(begin + options_.batch, samples_);
  if (!options_.shuffle) {
    std::vector<std::int64_t> batch(static_cast<std::size_t>(end - begin));
    std::iota(batch.begin(), batch.end(), begin);
    return batch;
  }
  if (order_.empty() || order_epoch_ != position.epoch) {
    order_ = shuffled_order(samples_, options_.seed, position.epoch);
    order_epoch_ = position.epoch;
  }
  return {order_.begin() + begin, order_.begin() + end};
}

DataPosition Sampler::after(DataPosition position) const {
  if (++position.batch < batches_) return position;
  return {position.epoch + 1, 0};
}

}  // namespace overtake
