#pragma once
// Where the ranks of a job find each other: names with values that, once put, stay.

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace overtake {

// Its calls come from any thread, and throw UserError where the store is gone.
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

// A folder, or etcd://HOST[:PORT][,HOST[:PORT]...][/NAME]: names under NAME in etcd (see etcd/etcd_store.h). So in both
// forms `text + "/" + job` is a store of one job. An etcd that does not answer for `patience` is gone.
std::unique_ptr<Store> open_store(const std::string& text,
                                  std::chrono::milliseconds patience = std::chrono::milliseconds(5000));

}  // namespace overtake
