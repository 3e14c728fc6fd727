#pragma once
// The one reader of TOML. Only source files include this, never a header.

#include <cstddef>
#include <string>
#include <string_view>

// In debug builds the library asserts what a damaged file does not hold ("[[[a]]]"; its pull request 301), and would
// end the program. Without the assertion it says that the file is not TOML, as in release builds.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

namespace overtake {

// Tables and arrays inside one another, by brackets and by the dots of one key. The library calls itself for each
// level.
inline constexpr std::size_t kMostTomlDepth = 32;

// What is not TOML or nested deeper is a user error that begins with the file and the line, and ends with `advice`.
toml::table parse_toml(std::string_view text, const std::string& file, std::string_view advice);

// A string as it stands in a TOML file, with its quotes.
std::string toml_string(std::string_view text);

}  // namespace overtake
