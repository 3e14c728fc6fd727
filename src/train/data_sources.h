#pragma once
// The sources behind open_dataset(), one file each, and what they share: the fit of data to model.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "train/data.h"

namespace overtake {

// `where` begins the text of errors: the field `data` with its text. `argument` is what follows the colon in it, empty
// if nothing.
struct SourceRequest {
  std::string where;
  std::string argument;
  Split split = Split::train;
  SampleForm wanted;
  std::uint64_t seed = 0;
  DataConversion conversion = {};
};

std::unique_ptr<Dataset> open_fashion_mnist(const SourceRequest& request);
std::unique_ptr<Dataset> open_npy(const SourceRequest& request);
std::unique_ptr<Dataset> open_text(const SourceRequest& request);
std::unique_ptr<Dataset> open_masked_text(const SourceRequest& request);
std::unique_ptr<Dataset> open_synthetic(const SourceRequest& request);

// Equal but for dimensions that are one.
bool same_but_ones(std::span<const std::int64_t> a, std::span<const std::int64_t> b);

// "uint8 [60000, 28, 28] 0123456789abcdef": of DataFacts::content.
std::string content_text(std::string_view type, std::span<const std::int64_t> dims, std::span<const std::byte> values);

// "images or features [1, 28, 28], one class of 10 per sample", for errors.
std::string describe(const SampleForm& form);

// The form for a model that takes request.wanted of data that has `data`, by the rules of open_dataset(); a user error
// when they do not fit.
SampleForm fit_form(const SampleForm& data, const SourceRequest& request);

}  // namespace overtake
