#include "base/base64.h"

#include <cstdint>

namespace overtake {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);  // bytes that become n + 1 digits
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::string_view four = text.substr(i, 4);
    while (i + 4 == text.size() && four.size() > 2 && four.back() == '=') four.remove_suffix(1);
    std::uint32_t bits = 0;
    for (const char c : four) {
      const std::size_t digit = kDigits.find(c);
      if (digit == std::string_view::npos) return std::nullopt;
      bits = bits << 6 | static_cast<std::uint32_t>(digit);
    }
    bits <<= 6 * (4 - four.size());
    for (std::size_t k = 0; k + 1 < four.size(); ++k) out += static_cast<char>(bits >> (16 - 8 * k) & 255);
  }
  return out;
}

}  // namespace overtake
