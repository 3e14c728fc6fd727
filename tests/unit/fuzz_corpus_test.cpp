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

using Feed = std::string (*)(std::string_view);

// Files of a folder below tests/fuzz; a folder that is not there has none.
std::vector<std::filesystem::path> files_in(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(OVERTAKE_SOURCE_DIR) / "tests/fuzz" / folder;
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::exists(path)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  return files;
}

void check_seeds(const std::string& format, Feed feed) {
  const std::vector<std::filesystem::path> seeds = files_in("corpus/" + format);
  EXPECT_GE(seeds.size(), 5u) << format;
  for (const std::filesystem::path& seed : seeds) {
    const std::string error = feed(read_file(seed));
    EXPECT_EQ(error.empty(), !seed.filename().string().starts_with("bad_")) << seed << ": " << error;
  }
}

// Regressions, what the fuzzers found, and all seeds cut short anywhere: refused or read, but no other exception.
void check_damage(const std::string& format, Feed feed) {
  for (const char* folder : {"regressions/", "found/"})
    for (const std::filesystem::path& file : files_in(folder + format)) EXPECT_NO_THROW(feed(read_file(file))) << file;
  for (const std::filesystem::path& seed : files_in("corpus/" + format)) {
    const std::string content = read_file(seed);
    for (std::size_t length = 0; length < content.size(); ++length) {
      EXPECT_NO_THROW(feed(std::string_view(content).substr(0, length))) << seed << " cut to " << length;
    }
  }
}

TEST(FuzzCorpus, OnnxSeeds) { check_seeds("onnx", fuzz::feed_onnx); }
TEST(FuzzCorpus, SafetensorsSeeds) { check_seeds("safetensors", fuzz::feed_safetensors); }
TEST(FuzzCorpus, ImportSeeds) { check_seeds("import", fuzz::feed_import); }
TEST(FuzzCorpus, OnnxDamage) { check_damage("onnx", fuzz::feed_onnx); }
TEST(FuzzCorpus, SafetensorsDamage) { check_damage("safetensors", fuzz::feed_safetensors); }
TEST(FuzzCorpus, ImportDamage) { check_damage("import", fuzz::feed_import); }

}  // namespace
}  // namespace overtake
