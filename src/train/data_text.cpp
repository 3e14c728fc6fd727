#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"
#include "train/data_sources.h"

namespace overtake {
namespace {

constexpr std::int64_t kVocabulary = 256;

DataFacts facts_of(const std::string& text, std::string_view kind) {
  const std::int64_t bytes = std::ssize(text);
  return {.content = content_text(kind, std::span(&bytes, 1), std::as_bytes(std::span(text))), .classes = kVocabulary};
}

// Windows of a text, one behind the other: S tokens and, one on, their S labels.
class TextDataset final : public Dataset {
 public:
  TextDataset(SampleForm form, std::string text) : form_(std::move(form)), text_(std::move(text)) {}

  std::int64_t size() const override { return (std::ssize(text_) - 1) / input_elements(form_); }
  const SampleForm& form() const override { return form_; }
  DataFacts facts() const override { return facts_of(text_, "text"); }

  void fill(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t length = input_elements(form_);
    std::int32_t* token = out.tokens;  // [B, S]
    std::int32_t* label = out.labels;  // [B, S]
    for (const std::int64_t index : indices) {
      const char* window = text_.data() + index * length;
      for (std::int64_t i = 0; i < length; ++i) {
        *token++ = static_cast<unsigned char>(window[i]);
        *label++ = static_cast<unsigned char>(window[i + 1]);
      }
    }
  }

 private:
  SampleForm form_;
  std::string text_;  // of this split
};

// The same windows with some tokens hidden, as BERT is trained: of 15 % of the places the label is the byte that was
// there; 80 % of them show the mask instead, 10 % any byte, 10 % what was there. All other places do not count.
class MaskedTextDataset final : public Dataset {
 public:
  static constexpr std::int32_t kMask = kVocabulary;

  MaskedTextDataset(SampleForm form, std::string text, std::uint64_t seed)
      : form_(std::move(form)),
        text_(std::move(text)),
        key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)} {}

  std::int64_t size() const override { return std::ssize(text_) / input_elements(form_); }
  const SampleForm& form() const override { return form_; }
  DataFacts facts() const override { return facts_of(text_, "masked text"); }

  void fill(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t length = input_elements(form_);
    std::int32_t* token = out.tokens;  // [B, S]
    std::int32_t* label = out.labels;  // [B, S]
    for (const std::int64_t index : indices) {
      for (std::int64_t i = index * length; i < (index + 1) * length; ++i) {
        const std::int32_t there = static_cast<unsigned char>(text_[static_cast<std::size_t>(i)]);
        const auto words = philox(key_, static_cast<std::uint64_t>(i), 0);
        const bool is_chosen = unit_float(words[0]) < 0.15f;
        const float how = unit_float(words[1]);
        const std::int32_t shown = how < 0.8f ? kMask : how < 0.9f ? static_cast<std::int32_t>(words[2] % 256) : there;
        *token++ = is_chosen ? shown : there;
        *label++ = is_chosen ? there : kNotCounted;
      }
    }
  }

 private:
  SampleForm form_;
  std::string text_;  // of this split
  PhiloxKey key_;
};

std::unique_ptr<Dataset> open(const SourceRequest& request, bool is_masked) {
  if (request.argument.empty())
    fail_user("{}: no file; write {}:FILE", request.where, is_masked ? "masked-text" : "text");
  if (request.wanted.input != InputForm::tokens || request.wanted.input_dims.empty()) {
    fail_user("{}: a text is for models that take tokens, this one takes {}; choose other data or another model",
              request.where, describe(request.wanted));
  }
  if (!is_masked && request.wanted.sees_ahead)
    fail_user(
        "{}: the model's attention sees the whole text, and with it the next byte that it should guess; write "
        "masked-text:{}, or choose a causal model",
        request.where, request.argument);
  SampleForm form = fit_form({.input = InputForm::tokens,
                              .input_dims = request.wanted.input_dims,
                              .label = LabelForm::class_per_position,
                              .label_dims = request.wanted.input_dims,
                              .classes = kVocabulary,
                              .vocabulary = kVocabulary + (is_masked ? 1 : 0)},
                             request);
  std::string text = read_file(request.argument);
  const std::size_t whole = text.size(), train = whole - whole / 10;
  text = request.split == Split::train ? text.substr(0, train) : text.substr(train);
  const std::int64_t needed = input_elements(form) + 1;
  if (std::ssize(text) < needed) {
    fail_user(
        "{}: the {} part has {} of the file's {} bytes, fewer than one window of {}; give a longer text or a shorter "
        "sequence",
        request.where, request.split == Split::train ? "training" : "test", text.size(), whole, needed);
  }
  if (is_masked) return std::make_unique<MaskedTextDataset>(std::move(form), std::move(text), request.seed);
  return std::make_unique<TextDataset>(std::move(form), std::move(text));
}

}  // namespace

std::unique_ptr<Dataset> open_text(const SourceRequest& request) { return open(request, false); }
std::unique_ptr<Dataset> open_masked_text(const SourceRequest& request) { return open(request, true); }

}  // namespace overtake
