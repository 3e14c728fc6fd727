#pragma once
// Names of a file as errors show them. A file may hold any bytes; a terminal should not get them.

#include <string>
#include <string_view>

namespace overtake::onnx {

// Without control characters and not longer than a line or two.
inline std::string printable(std::string_view name) {
  constexpr std::size_t most = 160;
  std::string shown(name.substr(0, most));
  for (char& letter : shown) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = '?';
  }
  if (name.size() > most) shown += "...";
  return shown;
}

}  // namespace overtake::onnx
