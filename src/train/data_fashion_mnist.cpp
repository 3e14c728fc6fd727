#include <zlib.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "base/error.h"
#include "train/data_sources.h"

// Images of clothes in the idx format: a magic number, the dimensions, the bytes; numbers are big-endian.

namespace overtake {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kPixels = kSide * kSide;
constexpr std::int64_t kClasses = 10;
constexpr std::size_t kMostFileBytes = std::size_t{1} << 30;  // far above the 47 MB of the real thing
// Of the training images, with pixels in [0, 1].
constexpr double kMean = 0.2860, kDeviation = 0.3530;

fs::path folder_of(const std::string& argument) {
  if (!argument.empty()) return argument;
  const char* root = std::getenv("OVERTAKE_DATA");
  return fs::path(root != nullptr && *root != '\0' ? root : "/usr/share/datasets") / "fashion-mnist";
}

[[noreturn]] void fail_damaged(const fs::path& path, const std::string& reason) {
  fail_user("{}: damaged: {}; install it again: apt reinstall dataset-fashion-mnist", path.string(), reason);
}

// The file, uncompressed; `path` may or may not be packed.
std::string read_gzip(const fs::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    fail_user(
        "{}: cannot read: Fashion-MNIST is not there; fetch it with `apt install dataset-fashion-mnist`, or name a "
        "folder that has its four .gz files: `data fashion-mnist:DIR`; without it, `data synthetic` trains on random "
        "samples",
        path.string());
  }
  std::string content;
  std::array<char, 1 << 16> piece;
  int got;
  while ((got = gzread(file, piece.data(), piece.size())) > 0 && content.size() < kMostFileBytes) {
    content.append(piece.data(), static_cast<std::size_t>(got));
  }
  // zlib reports a file that ends too early only when it is closed.
  int code = Z_OK;
  const std::string message = gzerror(file, &code);
  const int closed = gzclose_r(file);
  if (got < 0 || closed != Z_OK) fail_damaged(path, message.empty() ? "it ends too early" : message);
  return content;
}

std::int64_t big_endian(const std::string& content, std::size_t at) {
  std::int64_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value * 256 + static_cast<unsigned char>(content[at + i]);
  return value;
}

// The bytes of an array [N, item...] of unsigned bytes behind its header.
std::string read_idx(const fs::path& path, const std::vector<std::int64_t>& item) {
  std::string content = read_gzip(path);
  constexpr std::int64_t unsigned_bytes = 0x0800;
  const std::size_t header = 4 * (2 + item.size());
  if (content.size() < header || big_endian(content, 0) != unsigned_bytes + 1 + std::ssize(item)) {
    fail_damaged(path, "not an idx file of the kind expected");
  }
  std::int64_t bytes = big_endian(content, 4);
  for (std::size_t i = 0; i < item.size(); ++i) {
    const std::int64_t dim = big_endian(content, 8 + 4 * i);
    if (dim != item[i]) fail_damaged(path, fmt::format("a dimension is {}, not {}", dim, item[i]));
    bytes *= dim;
  }
  if (bytes == 0 || bytes != std::ssize(content) - static_cast<std::int64_t>(header)) {
    fail_damaged(path, fmt::format("it should hold {} bytes of data and has {}", bytes, content.size() - header));
  }
  content.erase(0, header);
  return content;
}

class FashionMnist final : public Dataset {
 public:
  FashionMnist(SampleForm form, std::string pixels, std::string labels)
      : form_(std::move(form)), pixels_(std::move(pixels)), labels_(std::move(labels)) {
    for (std::size_t pixel = 0; pixel < normalised_.size(); ++pixel) {
      normalised_[pixel] = static_cast<float>((static_cast<double>(pixel) / 255 - kMean) / kDeviation);
    }
  }

  std::int64_t size() const override { return std::ssize(labels_); }
  const SampleForm& form() const override { return form_; }
  DataFacts facts() const override {
    const std::array<std::int64_t, 3> dims = {size(), kSide, kSide};
    return {.content = content_text("uint8", dims, std::as_bytes(std::span(pixels_))) + ", " +
                       content_text("uint8", std::span(dims).first(1), std::as_bytes(std::span(labels_))),
            .classes = kClasses};
  }

  void fill(std::span<const std::int64_t> indices, const BatchView& out) const override {
    float* value = out.values;  // [B, 28, 28, 1]
    std::int32_t* label = out.labels;
    for (const std::int64_t index : indices) {
      const char* pixel = pixels_.data() + index * kPixels;
      for (std::int64_t i = 0; i < kPixels; ++i) *value++ = normalised_[static_cast<unsigned char>(pixel[i])];
      *label++ = labels_[static_cast<std::size_t>(index)];
    }
  }

 private:
  SampleForm form_;
  std::string pixels_;  // [N, 28, 28]
  std::string labels_;  // [N]
  std::array<float, 256> normalised_;
};

}  // namespace

std::unique_ptr<Dataset> open_fashion_mnist(const SourceRequest& request) {
  const SampleForm data{.input = InputForm::values,
                        .input_dims = {1, kSide, kSide},
                        .label = LabelForm::class_per_sample,
                        .label_dims = {},
                        .classes = kClasses};
  SampleForm form = fit_form(data, request);
  const fs::path folder = folder_of(request.argument);
  const std::string prefix = request.split == Split::train ? "train" : "t10k";
  const fs::path label_path = folder / (prefix + "-labels-idx1-ubyte.gz");
  std::string pixels = read_idx(folder / (prefix + "-images-idx3-ubyte.gz"), {kSide, kSide});
  std::string labels = read_idx(label_path, {});
  if (std::ssize(pixels) != std::ssize(labels) * kPixels) {
    fail_damaged(label_path, fmt::format("{} labels for {} images", labels.size(), std::ssize(pixels) / kPixels));
  }
  for (const char label : labels) {
    if (label < 0 || label >= kClasses) fail_damaged(label_path, fmt::format("a label is {}", static_cast<int>(label)));
  }
  return std::make_unique<FashionMnist>(std::move(form), std::move(pixels), std::move(labels));
}

}  // namespace overtake
