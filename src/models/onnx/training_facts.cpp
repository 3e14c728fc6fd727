#include "models/onnx/training_facts.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace overtake::onnx {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;

json parsed(std::string_view text, const std::string& path) {
  json facts = parse_json_or_discard(text);
  if (!facts.is_object())
    fail_user("{}: its entry {} cannot be read; export the model again with python/overtake_export.py", path,
              TrainingFacts::kKey);
  return facts;
}

}  // namespace

TrainingFacts::TrainingFacts(std::string_view text, const std::string& path) {
  const json facts = parsed(text, path);
  try {
    if (const int version = checked<int>(facts.at("version")); version != kVersion)
      fail_user("{}: its entry {} is of version {}, and this program reads {}; use the two of one release", path, kKey,
                version, kVersion);
    facts.at("trained").get_to(trained_);
    for (const std::string& name : trained_) status_[name] = Status::trained;
    for (const std::string& name : facts.at("untrained").get<std::vector<std::string>>())
      status_[name] = Status::untrained;
    facts.at("same").get_to(first_name_);
  } catch (const json::exception& e) {
    fail_user("{}: its entry {}: {}; export the model again with python/overtake_export.py", path, kKey, e.what());
  }
}

const std::string& TrainingFacts::first_name(const std::string& name) const {
  const auto it = first_name_.find(name);
  return it == first_name_.end() ? name : it->second;
}

TrainingFacts::Status TrainingFacts::of(const std::string& name) const {
  const auto it = status_.find(first_name(name));
  return it == status_.end() ? Status::constant : it->second;
}

}  // namespace overtake::onnx
