#pragma once
// The names of a checkpoint's files. NAME.json describes its newest generation; NAME-<step>-<checksum>.safetensors is
// one generation each, with its description and the checksum of all its bytes in its name.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace overtake {

inline constexpr std::string_view kTensorsEnding = ".safetensors";

// A file of tensors by its name.
struct Generation {
  std::string name;  // of the checkpoint
  std::uint64_t step = 0;
  std::string checksum;

  std::string file() const;
  bool operator==(const Generation&) const = default;
};
// Nothing where that is no such name.
std::optional<Generation> generation_of(std::string_view file);

// "runs/lenet" and "runs/lenet.json" both mean runs/lenet.json; a user error for a path that names no file ("runs/").
std::filesystem::path checkpoint_json_path(const std::filesystem::path& path);
// NAME of NAME.json.
std::string checkpoint_name(const std::filesystem::path& json_path);

// Files beside NAME.json that have the names of its generations, the oldest step first.
std::vector<Generation> generations_beside(const std::filesystem::path& json_path);
// Those that saves of this checkpoint have not brought to an end, because they were killed.
std::vector<std::filesystem::path> unfinished_beside(const std::filesystem::path& json_path);

// Whether Overtake wrote this file: what only has such a name is somebody's own.
bool is_written_by_overtake(const std::filesystem::path& tensors);

}  // namespace overtake
