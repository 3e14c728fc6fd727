#pragma once
// The TOML library as all readers of files use it. Only source files include this, never a header.

#include <string>
#include <string_view>

// In debug builds the library asserts what a damaged file does not hold ("[[[a]]]"; its pull request 301), and would
// end the program. Without the assertion it says that the file is not TOML, as in release builds.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

namespace overtake {

// A string as it stands in a TOML file, with its quotes.
std::string toml_string(std::string_view text);

}  // namespace overtake
