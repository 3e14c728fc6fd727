#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "train/data_sources.h"
#include "train/npy.h"

namespace overtake {
namespace {

struct ArrayPair {
  std::string x_path, y_path;
  NpyArray x, y;
};

// Which samples of the arrays a split has: without arrays of its own, the test split is every tenth.
enum class Part : std::uint8_t { all, all_but_tenths, tenths };
constexpr std::int64_t kTenth = 10;

std::int64_t part_size(Part part, std::int64_t samples) {
  const std::int64_t tenths = samples / kTenth;
  return part == Part::all ? samples : part == Part::tenths ? tenths : samples - tenths;
}

// Sample `index` of the part, in the arrays: of each ten, the last one is the test split's.
std::int64_t array_index(Part part, std::int64_t index) {
  if (part == Part::all) return index;
  if (part == Part::tenths) return index * kTenth + kTenth - 1;
  return index + index / (kTenth - 1);
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, comma - begin));
    if (comma == text.size()) return parts;
    begin = comma + 1;
  }
}

ArrayPair read_pair(std::string x_path, std::string y_path) {
  ArrayPair pair{std::move(x_path), std::move(y_path), {}, {}};
  pair.x = read_npy(pair.x_path);
  pair.y = read_npy(pair.y_path);
  const auto& x = pair.x.dims;
  const auto& y = pair.y.dims;
  if (x.size() < 2 || std::count(x.begin(), x.end(), 0) > 0) {
    fail_user("{}: shape ({}) is no batch of samples; give an array [samples, ...]", pair.x_path, fmt::join(x, ", "));
  }
  if (y.empty() || y[0] != x[0] || std::count(y.begin(), y.end(), 0) > 0) {
    fail_user("{}: shape ({}) does not fit {} of shape ({}); give one label for each of the {} samples", pair.y_path,
              fmt::join(y, ", "), pair.x_path, fmt::join(x, ", "), x[0]);
  }
  return pair;
}

void check_finite(const NpyArray& array, const std::string& path) {
  if (!is_float(array.type)) return;
  std::vector<float> sample(static_cast<std::size_t>(element_count(array) / array.dims[0]));
  for (std::int64_t i = 0; i < array.dims[0]; ++i) {
    copy_elements(array, i * std::ssize(sample), std::ssize(sample), sample.data());
    if (!std::all_of(sample.begin(), sample.end(), [](float value) { return std::isfinite(value); })) {
      fail_user("{}: sample {} has a value that is not finite in float32; clean the data", path, i);
    }
  }
}

// One more than the greatest id in an array of classes or tokens, which are all >= 0.
std::int64_t ids_below(const NpyArray& array, const std::string& path, std::string_view what) {
  if (is_float(array.type)) fail_user("{}: {} must be whole numbers; convert them with astype to int32", path, what);
  const ElementRange range = element_range(array);
  if (range.least < 0 || range.greatest >= INT32_MAX) {
    fail_user("{}: {} from {} to {}; give whole numbers counted from 0", path, what, range.least, range.greatest);
  }
  return range.greatest + 1;
}

std::vector<std::int64_t> sample_dims(const NpyArray& array) { return {array.dims.begin() + 1, array.dims.end()}; }

// What the arrays hold, read the way the model takes it where both ways are possible.
SampleForm form_of(const ArrayPair& pair, const SampleForm& wanted) {
  SampleForm form{.input = wanted.input, .input_dims = sample_dims(pair.x), .label_dims = sample_dims(pair.y)};
  if (form.input == InputForm::tokens) {
    form.vocabulary = ids_below(pair.x, pair.x_path, "tokens");
  } else {
    check_finite(pair.x, pair.x_path);
  }
  if (is_float(pair.y.type)) {
    form.label = LabelForm::targets;
    check_finite(pair.y, pair.y_path);
    return form;
  }
  form.classes = ids_below(pair.y, pair.y_path, "labels");
  const bool one_each = same_but_ones(form.label_dims, {});
  form.label = one_each ? LabelForm::class_per_sample : LabelForm::class_per_position;
  if (one_each) form.label_dims.clear();
  return form;
}

// Image arrays may be [N, H, W, C] too: then their samples are in the memory order that Overtake uses already.
bool is_channels_last(const std::vector<std::int64_t>& dims, const SampleForm& wanted) {
  const auto& chw = wanted.input_dims;
  return dims.size() == 3 && chw.size() == 3 && dims != chw && dims == std::vector{chw[1], chw[2], chw[0]};
}

class NpyDataset final : public Dataset {
 public:
  NpyDataset(SampleForm form, NpyArray x, NpyArray y, Part part, bool channels_last)
      : form_(std::move(form)),
        x_(std::move(x)),
        y_(std::move(y)),
        part_(part),
        transposed_(form_.input == InputForm::values && form_.input_dims.size() == 3 && !channels_last),
        scale_(x_.type == NpyType::u8 ? 1.0f / 255 : 1.0f) {}

  std::int64_t size() const override { return part_size(part_, x_.dims[0]); }
  const SampleForm& form() const override { return form_; }

  void fill(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t inputs = input_elements(form_), labels = label_elements(form_);
    std::vector<float> scratch(static_cast<std::size_t>(transposed_ ? inputs : 0));
    for (std::int64_t i = 0; i < std::ssize(indices); ++i) {
      const std::int64_t sample = array_index(part_, indices[static_cast<std::size_t>(i)]);
      if (form_.input == InputForm::tokens) {
        copy_elements(x_, sample * inputs, inputs, out.tokens + i * inputs);
      } else {
        fill_values(sample, scratch, out.values + i * inputs);
      }
      if (form_.label == LabelForm::targets) {
        copy_elements(y_, sample * labels, labels, out.targets + i * labels);
      } else {
        copy_elements(y_, sample * labels, labels, out.labels + i * labels);
      }
    }
  }

 private:
  // out: [H, W, C] for images, else as in the file.
  void fill_values(std::int64_t sample, std::vector<float>& scratch, float* out) const {
    const std::int64_t inputs = input_elements(form_);
    copy_elements(x_, sample * inputs, inputs, transposed_ ? scratch.data() : out);
    if (transposed_) {
      const std::int64_t channels = form_.input_dims[0], pixels = inputs / channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t p = 0; p < pixels; ++p) {
          out[p * channels + c] = scratch[static_cast<std::size_t>(c * pixels + p)];
        }
      }
    }
    for (std::int64_t i = 0; i < inputs; ++i) out[i] *= scale_;
  }

  SampleForm form_;
  NpyArray x_, y_;
  Part part_;
  bool transposed_;  // from [C, H, W] in the file
  float scale_;      // bytes are pixels and become [0, 1]
};

}  // namespace

std::unique_ptr<Dataset> open_npy(const SourceRequest& request) {
  const std::vector<std::string> paths = split_at_commas(request.argument);
  const bool own_test = paths.size() == 4;
  if ((paths.size() != 2 && !own_test) || std::count(paths.begin(), paths.end(), "") > 0) {
    fail_user("{}: {} file names; write npy:X.npy,Y.npy, or npy:X.npy,Y.npy,XTEST.npy,YTEST.npy", request.where,
              paths.size() - static_cast<std::size_t>(std::count(paths.begin(), paths.end(), "")));
  }
  const bool second = own_test && request.split == Split::test;
  ArrayPair pair = second ? read_pair(paths[2], paths[3]) : read_pair(paths[0], paths[1]);
  const Part part = own_test ? Part::all : request.split == Split::train ? Part::all_but_tenths : Part::tenths;
  if (part_size(part, pair.x.dims[0]) == 0) {
    fail_user("{}: {} samples are too few for a test split of a tenth; give test files of their own", request.where,
              pair.x.dims[0]);
  }

  SampleForm data = form_of(pair, request.wanted);
  const bool channels_last = is_channels_last(data.input_dims, request.wanted);
  if (channels_last) data.input_dims = request.wanted.input_dims;
  SampleForm form = fit_form(data, request);
  return std::make_unique<NpyDataset>(std::move(form), std::move(pair.x), std::move(pair.y), part, channels_last);
}

}  // namespace overtake
