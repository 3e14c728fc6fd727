#pragma once
// The text of --synthetic: a pipeline from nothing. "stages=8,micro=16,f=1,b=1,w=1", or a value per stage as in
// "f=1/2/1,b=1/1/2".

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/divide/workload.h"

namespace overtake {

class Synthetic {
 public:
  // User errors name --synthetic. `stages` and `micro_batches` are those of a text that does not say.
  Synthetic(const std::string& text, std::uint32_t stages, std::uint32_t micro_batches);

  std::uint32_t stages() const { return stages_; }
  std::uint32_t micro_batches() const { return micro_batches_; }
  // `most_blocks`: as --blocks says; 0: it does not.
  Workload workload(std::uint32_t most_blocks) const;

 private:
  // The words of a setting, one or one per stage; none: it is not given.
  std::vector<std::string> words(const std::string& name) const;
  std::uint32_t whole(const std::string& name, std::uint32_t fallback) const;
  // By stage, in nanoseconds or bytes.
  std::vector<std::int64_t> times(const std::string& name) const;
  std::vector<std::int64_t> sizes(const std::string& name) const;
  template <class Value>
  std::vector<std::int64_t> by_stage(const std::string& name, std::int64_t fallback, Value value) const;

  std::string text_;
  std::map<std::string, std::string> values_;
  std::uint32_t stages_ = 1, micro_batches_ = 1;
  bool has_lists_ = false;  // some setting has a value per stage
};

}  // namespace overtake
