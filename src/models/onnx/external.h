#pragma once
// The files beside an ONNX file that hold the values of its large tensors.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace overtake::onnx {

// Opens files of the folder of one ONNX file, each once.
class ExternalData {
 public:
  explicit ExternalData(std::filesystem::path model) : model_(std::move(model)) {}

  struct Part {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };
  // `length` bytes of the file called `location`, from `offset` on. A user error that names `where` for a location that
  // leaves the folder, a file that is not there and a part that the file does not have.
  Part read(std::string_view location, std::int64_t offset, std::int64_t length, const std::string& where);

  std::int64_t total_bytes() const { return total_bytes_; }  // of the files opened so far

 private:
  std::filesystem::path locate(std::string_view location, const std::string& where) const;

  std::filesystem::path model_;
  std::map<std::filesystem::path, std::shared_ptr<const std::string>> files_;
  std::int64_t total_bytes_ = 0;
};

}  // namespace overtake::onnx
