#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "train/data_sources.h"

// Made-up samples with something to learn. All draws are philox words turned into numbers by plain arithmetic, so no
// maths library changes them.

namespace overtake {
namespace {

constexpr std::int64_t kDefaultSamples = 4096;
constexpr std::int64_t kGrid = 8;           // cells along each side of an image
constexpr std::int64_t kFeatureCells = 64;  // of other inputs
constexpr float kRootThree = 1.7320508f;    // uniform in [-kRootThree, kRootThree) has variance 1
constexpr float kHalfPower = 0.70710678f;   // signal and noise have half of the variance each
constexpr std::size_t kNoisePool = 1 << 18, kNoiseBlock = 1 << 11;

// What a draw is for: keeps the streams of one seed apart.
enum class Purpose : std::uint64_t { label = 1, pattern, noise_pool, noise, sequence };

class Draws {
 public:
  Draws(std::uint64_t seed, Split split)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        split_(static_cast<std::uint64_t>(split)) {}

  // Four words for draw `number` of `item`, a sample.
  std::array<std::uint32_t, 4> of_sample(Purpose purpose, std::int64_t item, std::int64_t number) const {
    return words(purpose, split_, item, number);
  }
  // Four words that both splits share.
  std::array<std::uint32_t, 4> of_world(Purpose purpose, std::int64_t item, std::int64_t number) const {
    return words(purpose, 0, item, number);
  }

 private:
  std::array<std::uint32_t, 4> words(Purpose purpose, std::uint64_t split, std::int64_t item,
                                     std::int64_t number) const {
    const std::uint64_t high = (static_cast<std::uint64_t>(purpose) << 56) | (split << 55);
    return philox(key_, static_cast<std::uint64_t>(number), high | static_cast<std::uint64_t>(item));
  }

  PhiloxKey key_;
  std::uint64_t split_;
};

// Samples follow from the seed and the form.
DataFacts made_up(const SampleForm& form) {
  return {.content = "random numbers", .classes = form.classes, .is_made_up = true};
}

float centred(std::uint32_t word) { return (2 * unit_float(word) - 1) * kRootThree; }

// For each element in memory, the cell of the coarse pattern it shows. Patterns are coarse so that convolutions and
// pooling can see them.
std::vector<std::int32_t> cells_of(const SampleForm& form) {
  std::vector<std::int32_t> cells;
  const auto& dims = form.input_dims;
  if (dims.size() != 3) {
    const std::int64_t elements = input_elements(form);
    const std::int64_t count = std::min(kFeatureCells, elements);
    for (std::int64_t i = 0; i < elements; ++i) cells.push_back(static_cast<std::int32_t>(i * count / elements));
    return cells;
  }
  for (std::int64_t y = 0; y < dims[1]; ++y) {
    for (std::int64_t x = 0; x < dims[2]; ++x) {
      for (std::int64_t c = 0; c < dims[0]; ++c) {
        cells.push_back(static_cast<std::int32_t>((c * kGrid + y * kGrid / dims[1]) * kGrid + x * kGrid / dims[2]));
      }
    }
  }
  return cells;
}

// kNoisePool + kNoiseBlock numbers. Samples take their noise from random places in it, a block at a time: made anew for
// each sample it would cost more than the rest of a fast training step.
std::vector<float> noise_pool(const Draws& draws) {
  std::vector<float> noise(kNoisePool + kNoiseBlock);
  for (std::size_t first = 0; first < noise.size(); first += 4) {
    const auto words = draws.of_world(Purpose::noise_pool, 0, static_cast<std::int64_t>(first));
    for (std::size_t j = 0; j < 4; ++j) noise[first + j] = kHalfPower * centred(words[j]);
  }
  return noise;
}

// Images and features: a pattern (of the class, or a mix weighted by the targets) plus noise, of variance 1 together.
class SyntheticValues final : public Dataset {
 public:
  SyntheticValues(SampleForm form, std::int64_t samples, const Draws& draws)
      : form_(std::move(form)),
        samples_(samples),
        draws_(draws),
        cells_(cells_of(form_)),
        cell_count_(*std::max_element(cells_.begin(), cells_.end()) + 1),
        noise_(noise_pool(draws)) {}

  std::int64_t size() const override { return samples_; }
  const SampleForm& form() const override { return form_; }
  DataFacts facts() const override { return made_up(form_); }

  void fill(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t inputs = input_elements(form_), labels = label_elements(form_);
    std::vector<float> signal(static_cast<std::size_t>(cell_count_));
    for (std::int64_t i = 0; i < std::ssize(indices); ++i) {
      const std::int64_t sample = indices[static_cast<std::size_t>(i)];
      std::fill(signal.begin(), signal.end(), 0.0f);
      if (form_.label == LabelForm::targets) {
        fill_targets(sample, signal, out.targets + i * labels);
      } else {
        const auto classes = static_cast<std::uint32_t>(form_.classes);
        out.labels[i] = static_cast<std::int32_t>(draws_.of_sample(Purpose::label, sample, 0)[0] % classes);
        add_pattern(out.labels[i], kHalfPower, signal);
      }
      fill_noisy(sample, signal, out.values + i * inputs);
    }
  }

 private:
  // signal: [cells]
  void add_pattern(std::int64_t pattern, float weight, std::vector<float>& signal) const {
    for (std::size_t cell = 0; cell < signal.size(); cell += 4) {
      const auto words = draws_.of_world(Purpose::pattern, pattern, static_cast<std::int64_t>(cell));
      const std::size_t count = std::min<std::size_t>(4, signal.size() - cell);
      for (std::size_t j = 0; j < count; ++j) signal[cell + j] += weight * centred(words[j]);
    }
  }

  // targets: [K], of variance 1
  void fill_targets(std::int64_t sample, std::vector<float>& signal, float* targets) const {
    const std::int64_t count = label_elements(form_);
    const float weight = kHalfPower / std::sqrt(static_cast<float>(count));
    for (std::int64_t k = 0; k < count; ++k) {
      targets[k] = centred(draws_.of_sample(Purpose::label, sample, k)[0]);
      add_pattern(k, weight * targets[k], signal);
    }
  }

  // out: [H, W, C] or [F]
  void fill_noisy(std::int64_t sample, const std::vector<float>& signal, float* out) const {
    for (std::size_t first = 0; first < cells_.size(); first += kNoiseBlock) {
      const auto words = draws_.of_sample(Purpose::noise, sample, static_cast<std::int64_t>(first));
      const float* noise = noise_.data() + words[0] % kNoisePool;
      const std::size_t count = std::min(kNoiseBlock, cells_.size() - first);
      for (std::size_t j = 0; j < count; ++j) {
        out[first + j] = signal[static_cast<std::size_t>(cells_[first + j])] + noise[j];
      }
    }
  }

  SampleForm form_;
  std::int64_t samples_;
  Draws draws_;
  std::vector<std::int32_t> cells_;  // [H, W, C] or [F]
  std::int64_t cell_count_;
  std::vector<float> noise_;
};

// Tokens. To predict: seven of eight follow from the one before by a fixed rule. To classify: half of them are one of
// four tokens of the class.
class SyntheticTokens final : public Dataset {
 public:
  SyntheticTokens(SampleForm form, std::int64_t samples, const Draws& draws)
      : form_(std::move(form)), samples_(samples), draws_(draws), shift_(draws_.of_world(Purpose::pattern, 0, 0)[0]) {}

  std::int64_t size() const override { return samples_; }
  const SampleForm& form() const override { return form_; }
  DataFacts facts() const override { return made_up(form_); }

  void fill(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t length = input_elements(form_);
    for (std::int64_t i = 0; i < std::ssize(indices); ++i) {
      const std::int64_t sample = indices[static_cast<std::size_t>(i)];
      if (form_.label == LabelForm::class_per_position) {
        fill_sequence(sample, out.tokens + i * length, out.labels + i * length);
      } else {
        const auto classes = static_cast<std::uint32_t>(form_.classes);
        out.labels[i] = static_cast<std::int32_t>(draws_.of_sample(Purpose::label, sample, 0)[0] % classes);
        fill_classified(sample, out.labels[i], out.tokens + i * length);
      }
    }
  }

 private:
  // tokens, labels: [S], labels one on
  void fill_sequence(std::int64_t sample, std::int32_t* tokens, std::int32_t* labels) const {
    const auto vocabulary = static_cast<std::uint64_t>(std::min(form_.vocabulary, form_.classes));
    const std::int64_t length = input_elements(form_);
    std::uint64_t token = draws_.of_sample(Purpose::sequence, sample, 0)[0] % vocabulary;
    for (std::int64_t i = 0; i < length; ++i) {
      const auto words = draws_.of_sample(Purpose::sequence, sample, i + 1);
      tokens[i] = static_cast<std::int32_t>(token);
      token = (words[0] % 8 == 0 ? words[1] : token * 5 + shift_) % vocabulary;
      labels[i] = static_cast<std::int32_t>(token);
    }
  }

  // tokens: [S]
  void fill_classified(std::int64_t sample, std::int32_t label, std::int32_t* tokens) const {
    const auto vocabulary = static_cast<std::uint32_t>(form_.vocabulary);
    for (std::int64_t i = 0; i < input_elements(form_); ++i) {
      const auto words = draws_.of_sample(Purpose::sequence, sample, i);
      const std::uint32_t of_class = static_cast<std::uint32_t>(label) * 4 + words[1] % 4;
      tokens[i] = static_cast<std::int32_t>((words[0] % 2 == 0 ? of_class : words[1]) % vocabulary);
    }
  }

  SampleForm form_;
  std::int64_t samples_;
  Draws draws_;
  std::uint64_t shift_;
};

std::int64_t sample_count(const SourceRequest& request) {
  const std::string& text = request.argument;
  std::int64_t count = kDefaultSamples;
  if (!text.empty()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > INT32_MAX) {
      fail_user("{}: not a number of samples: \"{}\"; write synthetic or synthetic:4096", request.where, text);
    }
  }
  return request.split == Split::train ? count : std::max<std::int64_t>(1, count / 8);
}

// Whether we can make up data of this form.
bool is_possible(const SampleForm& form) {
  if (form.input_dims.empty() || input_elements(form) < 1) return false;
  const bool tokens = form.input == InputForm::tokens;
  if (tokens && form.vocabulary < 1) return false;
  switch (form.label) {
    case LabelForm::class_per_sample:
      return form.classes > 0;
    case LabelForm::class_per_position:
      return tokens && form.classes > 0 && same_but_ones(form.input_dims, form.label_dims);
    case LabelForm::targets:
      return !tokens && label_elements(form) > 0;
  }
  return false;
}

}  // namespace

std::unique_ptr<Dataset> open_synthetic(const SourceRequest& request) {
  if (!is_possible(request.wanted)) {
    fail_user("{}: cannot make up data for a model that takes {}; give data of your own", request.where,
              describe(request.wanted));
  }
  const std::int64_t samples = sample_count(request);
  const Draws draws(request.seed, request.split);
  if (request.wanted.input == InputForm::tokens) {
    return std::make_unique<SyntheticTokens>(request.wanted, samples, draws);
  }
  return std::make_unique<SyntheticValues>(request.wanted, samples, draws);
}

}  // namespace overtake
