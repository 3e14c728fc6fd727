#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "dataset_samples.h"

namespace overtake {
namespace {

TEST(Synthetic, IsAPureFunctionOfTheSeed) {
  const SampleForm forms[] = {
      kImages, language_form(16), {.input_dims = {9}, .label = LabelForm::targets, .label_dims = {2}}};
  for (const SampleForm& form : forms) {
    const auto data = open_dataset("synthetic:50", Split::train, form, 5);
    ASSERT_EQ(data->size(), 50);
    const Filled first = fill(*data, {7, 3});
    EXPECT_EQ(fill(*open_dataset("synthetic", Split::train, form, 5), {7, 3}), first);
    EXPECT_NE(fill(*open_dataset("synthetic", Split::train, form, 6), {7, 3}), first);
    EXPECT_NE(fill(*open_dataset("synthetic", Split::test, form, 5), {7, 3}), first);
    EXPECT_NE(fill(*data, {3, 7}), first);
  }
  EXPECT_EQ(open_dataset("synthetic", Split::train, kImages, 0)->size(), 4096);
  EXPECT_EQ(open_dataset("synthetic", Split::test, kImages, 0)->size(), 512);
}

TEST(Synthetic, ValuesHaveMeanZeroAndVarianceOne) {
  const auto data = open_dataset("synthetic:500", Split::train, {.input_dims = {3, 20, 13}, .classes = 100}, 1);
  const Filled filled = fill(*data, all_of(*data));
  double sum = 0, squares = 0;
  for (const float value : filled.values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double count = static_cast<double>(filled.values.size());
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(squares / count, 1, 0.03);
  EXPECT_EQ(std::count(filled.values.begin(), filled.values.end(), 0.0f), 0);
}

// The nearest mean of the training classes tells nearly all test samples apart: there is something to learn, and the
// test split follows the same rule.
TEST(Synthetic, ClassesCanBeLearnt) {
  const SampleForm form{.input_dims = {2, 12, 12}, .classes = 10};
  const auto train = open_dataset("synthetic:400", Split::train, form, 3);
  const auto test = open_dataset("synthetic:400", Split::test, form, 3);
  const Filled seen = fill(*train, all_of(*train)), asked = fill(*test, all_of(*test));
  constexpr std::size_t elements = 2 * 12 * 12;
  std::vector<std::vector<double>> means(10, std::vector<double>(elements));
  std::vector<double> counts(10);
  for (std::size_t i = 0; i < 400; ++i) {
    const auto label = static_cast<std::size_t>(seen.labels[i]);
    ++counts[label];
    for (std::size_t e = 0; e < elements; ++e) means[label][e] += seen.values[i * elements + e];
  }
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 15);
  int right = 0;
  for (std::size_t i = 0; i < asked.labels.size(); ++i) {
    std::vector<double> distances(10);
    for (std::size_t c = 0; c < 10; ++c) {
      for (std::size_t e = 0; e < elements; ++e) {
        distances[c] += std::pow(means[c][e] / counts[c] - asked.values[i * elements + e], 2);
      }
    }
    right += std::min_element(distances.begin(), distances.end()) - distances.begin() == asked.labels[i];
  }
  EXPECT_GE(right, 49) << "of 50";
}

TEST(Synthetic, TokensCanBePredicted) {
  const auto train = open_dataset("synthetic:200", Split::train, language_form(32, 50), 3);
  const Filled seen = fill(*train, all_of(*train));
  std::map<std::int32_t, std::map<std::int32_t, int>> followers;
  for (std::size_t i = 0; i < seen.tokens.size(); ++i) {
    EXPECT_LT(seen.tokens[i], 50);
    EXPECT_LT(seen.labels[i], 50);
    ++followers[seen.tokens[i]][seen.labels[i]];
    if (i % 32 != 31) {
      EXPECT_EQ(seen.labels[i], seen.tokens[i + 1]);
    }
  }
  int best = 0;
  for (const auto& [token, counts] : followers) {
    best += std::max_element(counts.begin(), counts.end(), [](auto a, auto b) { return a.second < b.second; })->second;
  }
  EXPECT_NEAR(best / static_cast<double>(seen.tokens.size()), 7.0 / 8, 0.03);
  std::set<std::int32_t> distinct(seen.tokens.begin(), seen.tokens.end());
  EXPECT_EQ(distinct.size(), 50u);
}

TEST(Synthetic, TokensOfAClassAreFrequentInIt) {
  const SampleForm form{.input = InputForm::tokens, .input_dims = {64}, .classes = 5, .vocabulary = 100};
  const auto data = open_dataset("synthetic:100", Split::train, form, 3);
  const Filled filled = fill(*data, all_of(*data));
  int of_class = 0;
  for (std::size_t i = 0; i < filled.tokens.size(); ++i) of_class += filled.tokens[i] / 4 == filled.labels[i / 64];
  EXPECT_NEAR(of_class / 6400.0, 0.5 + 0.5 * 0.04, 0.03);
}

TEST(Synthetic, BadWishesAreUserErrors) {
  for (const char* spec : {"synthetic:0", "synthetic:x", "synthetic:-4", "synthetic:12x"}) {
    EXPECT_TRUE(says(open_error(spec, kImages), {"not a number of samples", "synthetic:4096"}));
  }
  EXPECT_TRUE(says(open_error("synthetic", {}), {"cannot make up data for a model that takes"}));
  SampleForm masks = kImages;
  masks.label = LabelForm::class_per_position;
  EXPECT_TRUE(says(open_error("synthetic", masks), {"cannot make up data"}));
}

}  // namespace
}  // namespace overtake
