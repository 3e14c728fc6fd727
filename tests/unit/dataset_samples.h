#pragma once
// Opening datasets in tests, and looking at their samples.

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "temporary_folder.h"
#include "train/data.h"

namespace overtake {

inline const SampleForm kImages{.input_dims = {1, 28, 28}, .classes = 10};

inline SampleForm language_form(std::int64_t length, std::int64_t vocabulary = 256) {
  return {.input = InputForm::tokens,
          .input_dims = {length},
          .label = LabelForm::class_per_position,
          .label_dims = {length},
          .classes = vocabulary,
          .vocabulary = vocabulary};
}

// All that fill() writes for these samples.
struct Filled {
  std::vector<float> values, targets;
  std::vector<std::int32_t> tokens, labels;

  friend bool operator==(const Filled&, const Filled&) = default;
};

inline Filled fill(const Dataset& data, const std::vector<std::int64_t>& indices) {
  const auto inputs = indices.size() * static_cast<std::size_t>(input_elements(data.form()));
  const auto labels = indices.size() * static_cast<std::size_t>(label_elements(data.form()));
  Filled filled;
  data.form().input == InputForm::values ? filled.values.resize(inputs) : filled.tokens.resize(inputs);
  data.form().label == LabelForm::targets ? filled.targets.resize(labels) : filled.labels.resize(labels);
  data.fill(indices, {filled.values.data(), filled.tokens.data(), filled.labels.data(), filled.targets.data()});
  return filled;
}

inline std::vector<std::int64_t> all_of(const Dataset& data) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(data.size()));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return indices;
}

inline std::string open_error(const std::string& spec, const SampleForm& wanted, Split split = Split::train,
                              const DataConversion& conversion = {}) {
  return user_error([&] { open_dataset(spec, split, wanted, 1, conversion); });
}

}  // namespace overtake
