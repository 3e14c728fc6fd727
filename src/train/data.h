#pragma once
// Samples to train on. A dataset is immutable and sample i is always the same, so any order of samples can be replayed.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace overtake {

enum class InputForm : std::uint8_t {
  values,  // float: images, features
  tokens,  // int32: ids in [0, vocabulary)
};

enum class LabelForm : std::uint8_t {
  class_per_sample,    // one int32 in [0, classes), or kNotCounted
  class_per_position,  // label_dims int32 in [0, classes): the next token
  targets,             // label_dims float: regression
};

enum class Split : std::uint8_t { train, test };

// A label that is left out of loss, gradients and accuracy; PyTorch's ignore_index.
inline constexpr std::int32_t kNotCounted = -100;

// What one sample is. Images are logically [C, H, W] and in memory H, W, C.
struct SampleForm {
  InputForm input = InputForm::values;
  std::vector<std::int64_t> input_dims = {};  // images [C, H, W], features [F], tokens [S]
  LabelForm label = LabelForm::class_per_sample;
  std::vector<std::int64_t> label_dims = {};  // empty for class_per_sample
  std::int64_t classes = 0;                   // labels are below it; 0 for targets
  std::int64_t vocabulary = 0;                // tokens are below it; 0 for values
  bool sees_ahead = false;                    // of a model: what it says of a position comes from later ones too
};

std::int64_t input_elements(const SampleForm& form);
std::int64_t label_elements(const SampleForm& form);

// Where a batch is written, sample after sample: the pointer for the input's form and the one for the label's form are
// set and have room for all samples, the others are not looked at.
struct BatchView {
  float* values = nullptr;         // [B, H, W, C] or [B, F]
  std::int32_t* tokens = nullptr;  // [B, S]
  std::int32_t* labels = nullptr;  // [B] or [B, label_dims...]
  float* targets = nullptr;        // [B, label_dims...]
};

// What a dataset is, beside the form of its samples.
struct DataFacts {
  // Shapes, types and a sampled hash of the values that samples are made from: the same for the same ones, whatever
  // their files are called.
  std::string content;
  std::int64_t classes = 0;  // that labels are of; 0: none
  bool is_made_up = false;   // by random numbers
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t size() const = 0;
  virtual const SampleForm& form() const = 0;
  virtual DataFacts facts() const = 0;
  // Writes the samples of `indices`, each in [0, size()). Any number of threads may call it at once.
  virtual void fill(std::span<const std::int64_t> indices, const BatchView& out) const = 0;
};

// How the inputs of npy data become the model's; other data is refused with any of it. Nothing else is converted but
// the type of numbers, and bytes that are to be floats only with a scale.
struct DataConversion {
  std::string scale = {};      // what values are multiplied by, "1/255" or "2.5"; empty: by nothing
  bool channels_last = false;  // samples are [H, W, C] or [L, C], the model's [C, H, W] or [C, L]
  std::function<void(const std::string&)> note = {};  // gets a line about every file that is converted
};

// Opens what `spec` (the text of `data`) names:
//   fashion-mnist[:DIR]       images [1, 28, 28], 10 classes; from DIR, else
//                             $OVERTAKE_DATA/fashion-mnist, else Debian's /usr/share/datasets/fashion-mnist
//   npy:X.npy,Y.npy[,XT,YT]   arrays [N, ...]; the test split is XT, YT, else every tenth sample of X, Y
//   text:FILE                 bytes as tokens, labels the next ones; the test split is the last tenth of the file
//   masked-text:FILE          bytes as tokens, some of them hidden behind token 256; labels what was there
//   synthetic[:N]             N training samples (4096) with something to learn, a pure function of `seed`
// Labels of -100 in npy do not count. `wanted` is what the model takes: one that sees ahead is not given text:FILE,
// where that is the answer. Dimensions that are one are not compared, and data with fewer classes or a smaller
// vocabulary than the model's is fine; form() of the result then says what the model said. Empty input_dims mean: as
// the data has them (not for text and synthetic, which take them from the model). Where data and model do not fit: a
// user error that shows both.
std::unique_ptr<Dataset> open_dataset(std::string_view spec, Split split, const SampleForm& wanted, std::uint64_t seed,
                                      const DataConversion& conversion = {});

}  // namespace overtake
