#pragma once
// What python/overtake_export.py writes beside a network, because ONNX has no words for it: which tensors of the model
// PyTorch trains.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace overtake::onnx {

class TrainingFacts {
 public:
  enum class Status : std::uint8_t {
    trained,    // a parameter that a gradient of the model's outputs comes to
    untrained,  // another tensor of the state_dict: a buffer, or a parameter that is frozen or out of reach
    constant,   // in no state_dict: what is not listed
  };

  // A user error that names `path` for a text that is none, or of a newer version.
  TrainingFacts(std::string_view text, const std::string& path);

  // The name in `trained` or `untrained` of a tensor that has several.
  const std::string& first_name(const std::string& name) const;
  // By any of the names of a tensor that has several.
  Status of(const std::string& name) const;
  const std::vector<std::string>& trained() const { return trained_; }

  // The entry of a file's metadata that holds it.
  static constexpr std::string_view kKey = "overtake.training";

 private:
  std::vector<std::string> trained_;
  std::map<std::string, Status> status_;
  std::map<std::string, std::string> first_name_;
};

}  // namespace overtake::onnx
