#include "sim/chakra/files.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace overtake::chakra {
namespace {

// Of "STEM.12.et": 12 and the length of STEM.
struct RankedName {
  std::uint64_t rank = 0;
  std::size_t stem = 0;
};

std::optional<RankedName> parse_name(std::string_view name) {
  if (!name.ends_with(".et")) return {};
  name.remove_suffix(3);
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view digits = name.substr(dot + 1);
  RankedName out{.rank = 0, .stem = dot};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.rank);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return {};
  if (digits.front() == '0' && digits.size() > 1) return {};
  return out;
}

}  // namespace

std::filesystem::path file_of_rank(const std::filesystem::path& prefix, std::size_t rank) {
  return prefix.string() + "." + std::to_string(rank) + ".et";
}

std::map<std::uint64_t, std::filesystem::path> find_files(std::filesystem::path& prefix) {
  if (const auto parsed = parse_name(prefix.filename().string()))
    prefix.replace_filename(prefix.filename().string().substr(0, parsed->stem));
  const std::string stem = prefix.filename().string();
  std::filesystem::path folder = prefix.parent_path();
  if (folder.empty()) folder = ".";
  std::map<std::uint64_t, std::filesystem::path> out;
  std::error_code ignored;  // a folder that cannot be read has no files for us
  for (std::filesystem::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    const auto parsed = parse_name(name);
    if (parsed && name.compare(0, parsed->stem, stem) == 0)
      out.emplace(parsed->rank, file_of_rank(prefix, parsed->rank));
  }
  return out;
}

}  // namespace overtake::chakra
