#pragma once
// Text that came from outside (a file, another process, a store) as a terminal may get it. Such a text may hold any
// bytes, and some of them move the cursor, change colours or the window's title, or turn the direction of what follows.

#include <string>
#include <string_view>

namespace overtake {

// Whole output, lines and tabs included. Every byte that is not part of a letter is written as \x1b.
std::string printable(std::string_view text);

// A name inside a message: one line, and not longer than a line or two.
std::string printable_name(std::string_view name);

// Whether it is UTF-8, as JSON and TOML must be.
bool is_utf8(std::string_view text);

}  // namespace overtake
