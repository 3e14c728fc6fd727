#pragma once
// How the program prints. Names in files and words of other processes come along with its own, so all of it is made
// printable here, whatever it is about: nothing can move a terminal's cursor or change its colours.

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/printable.h"

namespace overtake {

template <class... Args>
void say(std::FILE* stream, fmt::format_string<Args...> text, Args&&... args) {
  const std::string shown = printable(fmt::format(text, std::forward<Args>(args)...));
  std::fwrite(shown.data(), 1, shown.size(), stream);
}

template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  say(stdout, text, std::forward<Args>(args)...);
}

// The one line that --json prints, in ASCII; names that are no UTF-8 do no harm.
inline std::string dumped(const nlohmann::json& json) {
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace overtake
