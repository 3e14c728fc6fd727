#include "cli/output_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace overtake {

void check_output(const OutputFile& file, bool overwrites) {
  if (file.path.empty()) return;
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::status(file.path, unknown);
  const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(file.path, unknown));
  const bool is_stream = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  if (!is_stream) {
    const std::filesystem::path ending = std::filesystem::path(file.path).extension();
    if (std::ranges::find(file.kind.endings, ending.string()) == file.kind.endings.end())
      fail_user("{} {}: what is written is {}; give a name that ends in {}", file.flag, file.path, file.kind.what,
                fmt::join(file.kind.endings, " or "));
    if (is_there && !overwrites)
      fail_user("{} {}: this file is there already; give another name, or replace it with --overwrite", file.flag,
                file.path);
  }
  check_writable(file.path);
}

}  // namespace overtake
