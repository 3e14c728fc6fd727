// The seeds of the fuzzers, and every input that once broke something, without libFuzzer. A file whose name begins with
// bad_ must be refused; other seeds must be read.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "fuzz/targets.h"

namespace overtake {
namespace {

// Files of a folder below tests/fuzz; a folder that is not there has none.
std::vector<std::filesystem::path> files_in(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(OVERTAKE_SOURCE_DIR) / "tests/fuzz" / folder;
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::exists(path)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  return files;
}

class FuzzCorpus : public testing::TestWithParam<fuzz::Target> {
 protected:
  static std::string feed(std::string_view bytes) { return GetParam().feed(bytes); }
  static std::string folder(const std::string& of) { return of + "/" + std::string(GetParam().name); }
};

TEST_P(FuzzCorpus, Seeds) {
  const std::vector<std::filesystem::path> seeds = files_in(folder("corpus"));
  EXPECT_GE(seeds.size(), 5u);
  for (const std::filesystem::path& seed : seeds) {
    const std::string error = feed(read_file(seed));
    EXPECT_EQ(error.empty(), !seed.filename().string().starts_with("bad_")) << seed << ": " << error;
  }
}

// Regressions, what the fuzzers found, and all seeds cut short: refused or read, but no other exception.
TEST_P(FuzzCorpus, Damage) {
  for (const char* of : {"regressions", "found"})
    for (const std::filesystem::path& file : files_in(folder(of))) EXPECT_NO_THROW(feed(read_file(file))) << file;
  constexpr std::size_t kMostCuts = 512;
  for (const std::filesystem::path& seed : files_in(folder("corpus"))) {
    const std::string content = read_file(seed);
    for (std::size_t length = 0; length < content.size(); length += 1 + content.size() / kMostCuts) {
      EXPECT_NO_THROW(feed(std::string_view(content).substr(0, length))) << seed << " cut to " << length;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzCorpus, testing::ValuesIn(fuzz::kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace overtake
