#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace overtake {
namespace {

// A code point and the bytes it takes; 0 bytes: they are not UTF-8.
struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;
};

CodePoint first_of(std::string_view text) {
  struct Form {
    std::uint8_t mask, lead;
    char32_t least;  // shorter forms are not allowed
  };
  constexpr Form kForms[] = {{0x80, 0, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
  for (std::size_t length = 1; length <= std::min<std::size_t>(4, text.size()); ++length) {
    const Form& form = kForms[length - 1];
    if ((byte(0) & form.mask) != form.lead) continue;
    char32_t value = byte(0) & static_cast<std::uint8_t>(~form.mask);
    for (std::size_t i = 1; i < length; ++i) {
      if ((byte(i) & 0xc0) != 0x80) return {};
      value = value << 6 | (byte(i) & 0x3f);
    }
    const bool is_surrogate = value >= 0xd800 && value < 0xe000;
    if (value < form.least || value > 0x10ffff || is_surrogate) return {};
    return {value, length};
  }
  return {};
}

// Control characters of ASCII and of Latin-1, separators of lines, and marks that turn the direction of writing.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0x200e || c == 0x200f || c == 0x061c;
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = first_of(text);
    const std::size_t length = std::max<std::size_t>(1, c.bytes);
    const bool is_kept = c.bytes == 1 && kept.find(text[0]) != std::string_view::npos;
    if (is_kept || (c.bytes > 0 && !is_control(c.value))) {
      shown += text.substr(0, length);
    } else {
      for (const char one : text.substr(0, length))
        shown += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<std::uint8_t>(one)));
    }
    text.remove_prefix(length);
  }
  return shown;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, "\n\t"); }

std::string printable_name(std::string_view name) {
  constexpr std::size_t most = 160;
  if (name.size() <= most) return escaped(name, "");
  std::size_t end = most;
  while (end > most - 4 && (static_cast<std::uint8_t>(name[end]) & 0xc0) == 0x80) --end;
  return escaped(name.substr(0, end), "") + "...";
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = first_of(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace overtake
