#pragma once
// Where the ranks of a job find each other: names with values that, once put, stay.

#include <filesystem>
#include <optional>
#include <string>

namespace overtake {

class Store {
 public:
  virtual ~Store() = default;
  // False when the name is taken; of several at once, one gets it.
  virtual bool put(const std::string& name, const std::string& value) = 0;
  virtual std::optional<std::string> get(const std::string& name) = 0;
};

// A folder that all ranks see.
class FileStore final : public Store {
 public:
  // Makes the folder where it is not there.
  explicit FileStore(std::filesystem::path folder);
  bool put(const std::string& name, const std::string& value) override;
  std::optional<std::string> get(const std::string& name) override;

 private:
  std::filesystem::path folder_;
};

}  // namespace overtake
