#include "train/checkpoint_files.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <tuple>

#include "base/error.h"
#include "base/safetensors.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial-";

bool is_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// What comes before and behind the last `mark`; an empty first half where there is none.
std::pair<std::string_view, std::string_view> cut_at_last(std::string_view text, char mark) {
  const std::size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return {};
  return {text.substr(0, at), text.substr(at + 1)};
}

// The file that a name of AtomicFile's ("FILE.partial-12-0") is the beginning of; empty for other names.
std::string_view finished_name(std::string_view file) {
  const std::size_t at = file.rfind(kPartial);
  if (at == std::string_view::npos) return {};
  const auto [process, attempt] = cut_at_last(file.substr(at + kPartial.size()), '-');
  return is_digits(process) && is_digits(attempt) ? file.substr(0, at) : std::string_view{};
}

std::vector<std::string> files_beside(const fs::path& json_path) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (fs::directory_iterator it(json_path.parent_path(), ignored), end; it != end; it.increment(ignored)) {
    std::error_code unknown;
    if (fs::is_regular_file(it->symlink_status(unknown))) files.push_back(it->path().filename().string());
  }
  return files;
}

}  // namespace

std::string Generation::file() const { return fmt::format("{}-{}-{}{}", name, step, checksum, kTensorsEnding); }

std::optional<Generation> generation_of(std::string_view file) {
  if (!file.ends_with(kTensorsEnding)) return std::nullopt;
  const auto [before, checksum] = cut_at_last(file.substr(0, file.size() - kTensorsEnding.size()), '-');
  const auto [name, step] = cut_at_last(before, '-');
  constexpr std::size_t digits = 16;
  Generation generation{.name = std::string(name), .checksum = std::string(checksum)};
  const bool is_one = !name.empty() && checksum.size() == digits && is_digits(step) &&
                      checksum.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
                      std::from_chars(step.data(), step.data() + step.size(), generation.step).ec == std::errc{};
  if (!is_one || generation.file() != file) return std::nullopt;
  return generation;
}

fs::path checkpoint_json_path(const fs::path& path) {
  if (!path.has_filename() || path.filename() == "." || path.filename() == ".." || path.filename() == ".json") {
    fail_user("{}: a checkpoint needs a name; write a path such as runs/lenet", path.string());
  }
  fs::path json_path = path;
  if (path.extension() != ".json") json_path += ".json";
  return json_path.has_parent_path() ? json_path : "." / json_path;
}

std::string checkpoint_name(const fs::path& json_path) { return json_path.stem().string(); }

std::vector<Generation> generations_beside(const fs::path& json_path) {
  std::vector<Generation> found;
  for (const std::string& file : files_beside(json_path))
    if (auto generation = generation_of(file); generation && generation->name == checkpoint_name(json_path))
      found.push_back(*std::move(generation));
  std::ranges::sort(found, {}, [](const Generation& g) { return std::tie(g.step, g.checksum); });
  return found;
}

std::vector<fs::path> unfinished_beside(const fs::path& json_path) {
  std::vector<fs::path> found;
  for (const std::string& file : files_beside(json_path)) {
    const std::string_view finished = finished_name(file);
    const auto generation = generation_of(finished);
    if (finished == json_path.filename().string() || (generation && generation->name == checkpoint_name(json_path)))
      found.push_back(json_path.parent_path() / file);
  }
  return found;
}

bool is_written_by_overtake(const fs::path& tensors) {
  try {
    const TensorMetadata metadata = read_safetensors_metadata(tensors);
    const auto writer = metadata.find("writer");
    return writer != metadata.end() && writer->second == "overtake";
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace overtake
