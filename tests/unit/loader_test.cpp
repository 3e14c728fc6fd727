#include "train/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>

#include "temporary_folder.h"

namespace overtake {
namespace {

// Sample i is an image [2, 3, 4] (in memory [3, 4, 2]) of values 100 i + place, with label i.
class Counting final : public Dataset {
 public:
  explicit Counting(std::int64_t samples, std::int64_t failing = -1) : samples_(samples), failing_(failing) {
    form_.input_dims = {2, 3, 4};
    form_.classes = samples;
  }

  std::int64_t size() const override { return samples_; }
  const SampleForm& form() const override { return form_; }
  DataFacts facts() const override { return {}; }
  void fill(std::span<const std::int64_t> indices, const BatchView& out) const override {
    float* value = out.values;
    std::int32_t* label = out.labels;
    for (const std::int64_t index : indices) {
      if (index == failing_) throw std::runtime_error("sample is broken");
      for (int place = 0; place < 24; ++place) *value++ = static_cast<float>(100 * index + place);
      *label++ = static_cast<std::int32_t>(index);
    }
    ++filled;
  }

  mutable std::atomic<int> filled = 0;

 private:
  std::int64_t samples_, failing_;
  SampleForm form_;
};

LoaderOptions options_of(std::int64_t batch, bool training = true) {
  return {.sampler = {.batch = batch, .seed = 3, .shuffle = training, .drop_last = training}};
}

TEST(Loader, GivesTheSamplersBatchesAcrossEpochs) {
  const auto data = std::make_shared<Counting>(10);
  Loader loader(data, options_of(3));
  Sampler sampler(10, options_of(3).sampler);
  EXPECT_EQ(loader.batches_per_epoch(), 3u);
  for (std::uint64_t step = 0; step < 20; ++step) {
    const HostBatch* batch = loader.next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->position, sampler.at_step(step));
    EXPECT_EQ(batch->samples, 3);
    const auto indices = sampler.batch_at(batch->position);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(batch->labels[i], indices[i]);
      for (std::size_t place = 0; place < 24; ++place) {
        EXPECT_EQ(batch->values[i * 24 + place], static_cast<float>(100 * indices[i]) + static_cast<float>(place));
      }
    }
    EXPECT_TRUE(batch->tokens.empty());
    EXPECT_TRUE(batch->targets.empty());
  }
}

TEST(Loader, StartsAtAnyPosition) {
  const auto data = std::make_shared<Counting>(50);
  Loader whole(data, options_of(4));
  for (int step = 0; step < 31; ++step) whole.next();
  Loader resumed(data, options_of(4), {2, 7});
  for (int step = 0; step < 20; ++step) {
    const HostBatch* expected = whole.next();
    const HostBatch* actual = resumed.next();
    EXPECT_EQ(actual->position, expected->position);
    EXPECT_EQ(actual->values, expected->values);
    EXPECT_EQ(actual->labels, expected->labels);
  }
}

TEST(Loader, EvaluationEndsAfterItsEpochAndFillsUpTheLastBatch) {
  LoaderOptions options = options_of(4, false);
  options.end_epoch = 1;
  Loader loader(std::make_shared<Counting>(10), options);
  EXPECT_EQ(loader.next()->samples, 4);
  EXPECT_EQ(loader.next()->samples, 4);
  const HostBatch* last = loader.next();
  EXPECT_EQ(last->samples, 2);
  EXPECT_EQ(last->labels, (std::vector<std::int32_t>{8, 9, 9, 9}));
  EXPECT_EQ(loader.next(), nullptr);
  EXPECT_EQ(loader.next(), nullptr);
}

TEST(Loader, PreparesAheadButNotWithoutEnd) {
  const auto data = std::make_shared<Counting>(1000);
  LoaderOptions options = options_of(1);
  options.depth = 2;
  Loader loader(data, options);
  const auto settled = [&](int count) {
    while (data->filled < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return data->filled.load();
  };
  EXPECT_EQ(settled(3), 3) << "depth and the one that next() may lend";
  const HostBatch* first = loader.next();
  const std::vector<float> copy = first->values;
  EXPECT_EQ(settled(3), 3);
  EXPECT_EQ(first->values, copy) << "a lent batch is not written";
  loader.next();
  EXPECT_EQ(settled(4), 4);
}

TEST(Loader, AnErrorComesOutOfNextInItsTurn) {
  LoaderOptions options = options_of(2, false);
  Loader loader(std::make_shared<Counting>(10, 5), options);
  EXPECT_EQ(loader.next()->labels[0], 0);
  EXPECT_EQ(loader.next()->labels[0], 2);
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_THROW(loader.next(), std::runtime_error) << "and stays";
}

TEST(Loader, StopsAtAnyMoment) {
  const auto data = std::make_shared<Counting>(64);
  for (int taken = 0; taken < 100; ++taken) {
    Loader loader(data, options_of(2));
    for (int i = 0; i < taken % 7; ++i) loader.next();
  }
}

TEST(Loader, AugmentsAsAPureFunctionOfSeedEpochAndSample) {
  LoaderOptions options = options_of(5);
  options.augment = {.flip = true, .max_shift = 2};
  const auto data = std::make_shared<Counting>(20);
  Loader loader(data, options);
  std::set<std::vector<float>> seen;
  for (int step = 0; step < 12; ++step) {
    const HostBatch* batch = loader.next();
    for (std::size_t i = 0; i < 5; ++i) {
      const std::int64_t sample = batch->labels[i];
      std::vector<float> expected;
      for (int place = 0; place < 24; ++place) expected.push_back(static_cast<float>(100 * sample + place));
      augment_image(expected.data(), 2, 3, 4, options.augment, 3, batch->position.epoch, sample);
      const std::vector<float> actual(batch->values.begin() + static_cast<std::ptrdiff_t>(i * 24),
                                      batch->values.begin() + static_cast<std::ptrdiff_t>((i + 1) * 24));
      EXPECT_EQ(actual, expected);
      seen.insert(actual);
    }
  }
  EXPECT_GT(seen.size(), 40u) << "three epochs of 20 samples, changed differently";
}

// Undoing every possible change of a marked image: each must be one of the 2 * 5 * 5 allowed, and all must come.
TEST(Augment, MakesTheAllowedChangesOnly) {
  constexpr std::int64_t height = 6, width = 7;
  const AugmentOptions options{.flip = true, .max_shift = 2};
  std::set<std::vector<float>> allowed, seen;
  for (const bool flip : {false, true}) {
    for (std::int64_t down = -2; down <= 2; ++down) {
      for (std::int64_t right = -2; right <= 2; ++right) {
        std::vector<float> image;
        for (std::int64_t y = 0; y < height; ++y) {
          for (std::int64_t x = 0; x < width; ++x) {
            const std::int64_t from_y = std::min(std::max(y - down, std::int64_t{0}), height - 1);
            std::int64_t from_x = std::min(std::max(x - right, std::int64_t{0}), width - 1);
            if (flip) from_x = width - 1 - from_x;
            image.push_back(static_cast<float>(from_y * width + from_x));
          }
        }
        allowed.insert(image);
      }
    }
  }
  ASSERT_EQ(allowed.size(), 50u);
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    std::vector<float> image;
    for (int i = 0; i < height * width; ++i) image.push_back(static_cast<float>(i));
    augment_image(image.data(), 1, height, width, options, 1, 0, sample);
    seen.insert(image);
  }
  EXPECT_EQ(seen, allowed);
}

class Tokens final : public Dataset {
 public:
  Tokens() {
    form_ = {.input = InputForm::tokens,
             .input_dims = {3},
             .label = LabelForm::class_per_position,
             .label_dims = {3},
             .classes = 9,
             .vocabulary = 9};
  }
  std::int64_t size() const override { return 4; }
  const SampleForm& form() const override { return form_; }
  DataFacts facts() const override { return {}; }
  void fill(std::span<const std::int64_t> indices, const BatchView& out) const override {
    std::fill_n(out.tokens, 3 * indices.size(), 4);
    std::fill_n(out.labels, 3 * indices.size(), 5);
  }

 private:
  SampleForm form_;
};

TEST(Loader, HoldsTokens) {
  Loader loader(std::make_shared<Tokens>(), options_of(2));
  const HostBatch* batch = loader.next();
  EXPECT_EQ(batch->tokens, std::vector<std::int32_t>(6, 4));
  EXPECT_EQ(batch->labels, std::vector<std::int32_t>(6, 5));
  EXPECT_TRUE(batch->values.empty());
}

TEST(Loader, ImpossibleWishesAreUserErrors) {
  LoaderOptions options = options_of(2);
  options.augment.flip = true;
  EXPECT_TRUE(says(user_error([&] { Loader(std::make_shared<Tokens>(), options); }), {"`augment`", "no images"}));
  EXPECT_TRUE(says(user_error([&] {
                     Loader(std::make_shared<Counting>(10), options_of(3), {0, 3});
                   }),
                   {"cannot start at batch 3 of an epoch of 3"}));
}

}  // namespace
}  // namespace overtake
