#include "train/data.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/nearest_word.h"
#include "train/data_sources.h"

namespace overtake {
namespace {

std::int64_t product(std::span<const std::int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

struct Source {
  std::string_view name;
  std::unique_ptr<Dataset> (*open)(const SourceRequest&);
};

constexpr std::array<Source, 5> kSources{{{"fashion-mnist", open_fashion_mnist},
                                          {"npy", open_npy},
                                          {"text", open_text},
                                          {"masked-text", open_masked_text},
                                          {"synthetic", open_synthetic}}};

}  // namespace

std::int64_t input_elements(const SampleForm& form) { return product(form.input_dims); }

std::int64_t label_elements(const SampleForm& form) { return product(form.label_dims); }

bool same_but_ones(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  const auto without_ones = [](std::span<const std::int64_t> dims) {
    std::vector<std::int64_t> kept;
    std::copy_if(dims.begin(), dims.end(), std::back_inserter(kept), [](std::int64_t dim) { return dim != 1; });
    return kept;
  };
  return without_ones(a) == without_ones(b);
}

std::string content_text(std::string_view type, std::span<const std::int64_t> dims, std::span<const std::byte> values) {
  return fmt::format("{} [{}] {}", type, fmt::join(dims, ", "), hash_text(sampled_hash64(values)));
}

std::string describe(const SampleForm& form) {
  std::string text = form.input == InputForm::values
                         ? fmt::format("images or features [{}]", fmt::join(form.input_dims, ", "))
                         : fmt::format("tokens [{}] below {}", fmt::join(form.input_dims, ", "), form.vocabulary);
  switch (form.label) {
    case LabelForm::class_per_sample:
      return text + fmt::format(", one class of {} per sample", form.classes);
    case LabelForm::class_per_position:
      return text + fmt::format(", classes [{}] of {}", fmt::join(form.label_dims, ", "), form.classes);
    case LabelForm::targets:
      return text + fmt::format(", targets [{}]", fmt::join(form.label_dims, ", "));
  }
  fail_internal(__FILE__, __LINE__, "label is known", "unknown form of label");
}

SampleForm fit_form(const SampleForm& data, const SourceRequest& request) {
  const SampleForm& wanted = request.wanted;
  if (wanted.input_dims.empty()) return data;
  const bool known_classes = wanted.classes > 0, known_vocabulary = wanted.vocabulary > 0;
  const bool fits =
      data.input == wanted.input && data.label == wanted.label && same_but_ones(data.input_dims, wanted.input_dims) &&
      same_but_ones(data.label_dims, wanted.label_dims) && (!known_classes || data.classes <= wanted.classes) &&
      (!known_vocabulary || data.vocabulary <= wanted.vocabulary);
  if (!fits) {
    fail_user("{}: the data does not fit the model: it has {}, the model takes {}; choose other data or another model",
              request.where, describe(data), describe(wanted));
  }
  SampleForm form = wanted;
  if (!known_classes) form.classes = data.classes;
  if (!known_vocabulary) form.vocabulary = data.vocabulary;
  return form;
}

std::unique_ptr<Dataset> open_dataset(std::string_view spec, Split split, const SampleForm& wanted, std::uint64_t seed,
                                      const DataConversion& conversion) {
  const std::size_t colon = std::min(spec.find(':'), spec.size());
  const std::string_view name = spec.substr(0, colon);
  for (const Source& source : kSources) {
    if (source.name != name) continue;
    if (name != "npy" && (!conversion.scale.empty() || conversion.channels_last))
      fail_user("`{}`: it is for npy data, and `data` is {}; leave it out",
                conversion.channels_last ? "channels_last" : "scale", name);
    const std::string_view argument = colon < spec.size() ? spec.substr(colon + 1) : std::string_view();
    return source.open({.where = fmt::format("`data {}`", spec),
                        .argument = std::string(argument),
                        .split = split,
                        .wanted = wanted,
                        .seed = seed,
                        .conversion = conversion});
  }
  fail_user("`data {}`: no such data; write fashion-mnist, npy:X.npy,Y.npy, text:FILE, masked-text:FILE or synthetic{}",
            spec, did_you_mean(name, kSources, [](const Source& source) { return source.name; }));
}

}  // namespace overtake
