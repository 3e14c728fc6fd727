#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
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

double number_from(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

// Of the text of `scale`.
Scale parse_scale(const std::string& text) {
  if (text.empty()) return {};
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::string_view over = std::string_view(text).substr(0, slash);
  const Scale scale{number_from(over), slash < text.size() ? number_from(std::string_view(text).substr(slash + 1)) : 1};
  const auto is_right = [](double x) { return std::isfinite(x) && x != 0; };
  if (!is_right(scale.over) || !is_right(scale.under) || !is_right(scale.over / scale.under))
    fail_user("`scale {}`: it must be a number other than 0 or a fraction of two, for example 0.5 or 1/255", text);
  return scale;
}

void check_finite(const NpyArray& array, const std::string& path, const Scale& scale = {}) {
  if (!is_float(array.type) && is_one(scale)) return;
  std::vector<float> sample(static_cast<std::size_t>(element_count(array) / array.dims[0]));
  for (std::int64_t i = 0; i < array.dims[0]; ++i) {
    copy_elements(array, i * std::ssize(sample), std::ssize(sample), scale, sample.data());
    if (!std::all_of(sample.begin(), sample.end(), [](float value) { return std::isfinite(value); })) {
      fail_user("{}: sample {} has a value that is not finite in float32; clean the data", path, i);
    }
  }
}

// One more than the greatest id in an array of classes or tokens, which are all >= 0 but for those that are `left_out`.
std::int64_t ids_below(const NpyArray& array, const std::string& path, std::string_view what,
                       std::optional<std::int64_t> left_out = {}) {
  if (is_float(array.type)) fail_user("{}: {} must be whole numbers; convert them with astype to int32", path, what);
  const ElementRange range = element_range(array, left_out);
  if (range.least > range.greatest) fail_user("{}: all {} are {}, so none counts", path, what, *left_out);
  if (range.least < 0 || range.greatest >= INT32_MAX) {
    fail_user("{}: {} from {} to {}; give whole numbers counted from 0{}", path, what, range.least, range.greatest,
              left_out ? fmt::format(", or {} for those that do not count", *left_out) : "");
  }
  return range.greatest + 1;
}

std::vector<std::int64_t> sample_dims(const NpyArray& array) { return {array.dims.begin() + 1, array.dims.end()}; }

void check_inputs(const ArrayPair& pair, const SourceRequest& request, const Scale& scale) {
  if (pair.x.type == NpyType::u8 && request.conversion.scale.empty())
    fail_user(
        "{}: bytes (uint8), where the model takes floats; write `scale 1/255` for pixels from 0 to 1, or `scale 1` for "
        "the numbers as they are",
        pair.x_path);
  check_finite(pair.x, pair.x_path, scale);
}

// [H, W, C] -> [C, H, W]
std::vector<std::int64_t> channels_first(std::vector<std::int64_t> dims) {
  std::rotate(dims.begin(), dims.end() - 1, dims.end());
  return dims;
}

// The dimensions of the inputs, as the model has them.
std::vector<std::int64_t> dims_for_model(const ArrayPair& pair, const SourceRequest& request) {
  const std::vector<std::int64_t> dims = sample_dims(pair.x), &wanted = request.wanted.input_dims;
  if (request.conversion.channels_last) {
    if (dims.size() < 2 || (!wanted.empty() && dims.back() != wanted[0]))
      fail_user("`channels_last`: {} has samples of [{}], whose last dimension is not the first of the model's [{}]",
                pair.x_path, fmt::join(dims, ", "), fmt::join(wanted, ", "));
    return channels_first(dims);
  }
  if (dims.size() > 1 && !wanted.empty() && !same_but_ones(dims, wanted) && channels_first(dims) == wanted)
    fail_user(
        "{}: its samples are [{}], where the model takes [{}]; write `channels_last` if the last are the channels",
        pair.x_path, fmt::join(dims, ", "), fmt::join(wanted, ", "));
  return dims;
}

// Scores [N, L, L] of a model of sequences may have their classes last, or where PyTorch's cross_entropy has them. (Of
// tokens they are last.)
void check_classes_are_certain(const ArrayPair& pair, const SampleForm& wanted) {
  const bool is_certain = wanted.input == InputForm::tokens || wanted.label_dims.size() != 1 || wanted.classes < 2 ||
                          wanted.label_dims[0] != wanted.classes;
  if (!is_certain)
    fail_user(
        "{}: the model's scores are [batch, {}, {}]: either could be the classes; have it give [batch, classes, "
        "positions, 1]",
        pair.y_path, wanted.classes, wanted.classes);
}

// What the arrays hold, read the way the model takes it where both ways are possible.
SampleForm form_of(const ArrayPair& pair, const SourceRequest& request, const Scale& scale) {
  SampleForm form{.input = request.wanted.input, .input_dims = sample_dims(pair.x), .label_dims = sample_dims(pair.y)};
  if (form.input == InputForm::tokens) {
    if (!request.conversion.scale.empty() || request.conversion.channels_last)
      fail_user("`{}`: the model takes tokens, which are not converted; leave it out",
                request.conversion.channels_last ? "channels_last" : "scale");
    form.vocabulary = ids_below(pair.x, pair.x_path, "tokens");
  } else {
    check_inputs(pair, request, scale);
    form.input_dims = dims_for_model(pair, request);
  }
  if (is_float(pair.y.type)) {
    form.label = LabelForm::targets;
    check_finite(pair.y, pair.y_path);
    return form;
  }
  form.classes = ids_below(pair.y, pair.y_path, "labels", kNotCounted);
  check_classes_are_certain(pair, request.wanted);
  const bool one_each = same_but_ones(form.label_dims, {});
  form.label = one_each ? LabelForm::class_per_sample : LabelForm::class_per_position;
  if (one_each) form.label_dims.clear();
  return form;
}

class NpyDataset final : public Dataset {
 public:
  NpyDataset(SampleForm form, std::int64_t classes, NpyArray x, NpyArray y, Part part, const Scale& scale,
             bool channels_last)
      : form_(std::move(form)), classes_(classes), x_(std::move(x)), y_(std::move(y)), part_(part), scale_(scale) {
    if (form_.input == InputForm::tokens) return;
    const bool is_image = form_.input_dims.size() == 3;  // in memory [H, W, C]; all else as the model has it
    if (is_image == channels_last) return;
    rows_ = form_.input_dims[0];
    if (channels_last) rows_ = input_elements(form_) / rows_;
  }

  std::int64_t size() const override { return part_size(part_, x_.dims[0]); }
  const SampleForm& form() const override { return form_; }
  DataFacts facts() const override { return {.content = content_of(x_) + ", " + content_of(y_), .classes = classes_}; }

  void fill(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t inputs = input_elements(form_), labels = label_elements(form_);
    std::vector<float> scratch(static_cast<std::size_t>(rows_ > 1 ? inputs : 0));
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
  static std::string content_of(const NpyArray& array) {
    return content_text(name_of(array.type), array.dims, std::as_bytes(std::span(array.content)).subspan(array.begin));
  }

  // out: [H, W, C] for images, else as the model has it.
  void fill_values(std::int64_t sample, std::vector<float>& scratch, float* out) const {
    const std::int64_t inputs = input_elements(form_);
    copy_elements(x_, sample * inputs, inputs, scale_, rows_ > 1 ? scratch.data() : out);
    if (rows_ == 1) return;
    const std::int64_t columns = inputs / rows_;
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        out[column * rows_ + row] = scratch[static_cast<std::size_t>(row * columns + column)];
      }
    }
  }

  SampleForm form_;
  std::int64_t classes_;
  NpyArray x_, y_;
  Part part_;
  Scale scale_;
  std::int64_t rows_ = 1;  // of a sample in the file, which is written column by column
};

// A line about each array whose numbers change or move.
void say_what_is_converted(const ArrayPair& pair, const SampleForm& form, const SourceRequest& request) {
  const DataConversion& conversion = request.conversion;
  std::vector<std::string> said;
  if (form.input == InputForm::values) {
    if (pair.x.type != NpyType::f32) said.push_back(fmt::format("{} becomes float32", name_of(pair.x.type)));
    if (!conversion.scale.empty()) said.push_back(fmt::format("values are multiplied by {}", conversion.scale));
    if (conversion.channels_last)
      said.push_back(fmt::format("samples of [{}] become [{}]", fmt::join(sample_dims(pair.x), ", "),
                                 fmt::join(form.input_dims, ", ")));
  }
  if (conversion.note && !said.empty()) conversion.note(fmt::format("{}: {}", pair.x_path, fmt::join(said, ", ")));
  if (conversion.note && form.label == LabelForm::targets && pair.y.type == NpyType::f64)
    conversion.note(fmt::format("{}: float64 becomes float32", pair.y_path));
}

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

  const Scale scale = parse_scale(request.conversion.scale);
  const SampleForm data = form_of(pair, request, scale);
  SampleForm form = fit_form(data, request);
  if (second || request.split == Split::train) say_what_is_converted(pair, form, request);
  return std::make_unique<NpyDataset>(std::move(form), data.classes, std::move(pair.x), std::move(pair.y), part, scale,
                                      request.conversion.channels_last);
}

}  // namespace overtake
