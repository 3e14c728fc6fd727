#pragma once
// The files of a Chakra trace: PREFIX.0.et, PREFIX.1.et, ...

#include <cstdint>
#include <filesystem>
#include <map>

namespace overtake::chakra {

std::filesystem::path file_of_rank(const std::filesystem::path& prefix, std::size_t rank);

// Those that are there, by rank. `prefix` may be the path of one of them, and is made the prefix.
std::map<std::uint64_t, std::filesystem::path> find_files(std::filesystem::path& prefix);

}  // namespace overtake::chakra
