#pragma once
// The numbers a network is built with.

#include <cstdint>
#include <map>
#include <string>

namespace overtake {

// All of them, for the one who builds. What is out of range is a user error that names the network and the setting.
class Settings {
 public:
  Settings(std::string model, std::map<std::string, double> values)
      : model_(std::move(model)), values_(std::move(values)) {}

  static constexpr std::int64_t kMost = 1 << 24;

  const std::string& model() const { return model_; }
  std::int64_t whole(const std::string& name, std::int64_t least = 1, std::int64_t most = kMost) const;
  // A whole number that divides another setting: heads and width.
  std::int64_t divisor(const std::string& name, const std::string& of) const;
  double fraction(const std::string& name) const;  // at least 0, below 1
  double positive(const std::string& name) const;  // above 0, at most 16: a multiplier

 private:
  std::string model_;
  std::map<std::string, double> values_;
};

}  // namespace overtake
