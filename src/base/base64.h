#pragma once
// Any bytes as text, as RFC 4648 has it.

#include <optional>
#include <string>
#include <string_view>

namespace overtake {

std::string to_base64(std::string_view bytes);
// Nothing where the text is no base64, with its padding.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace overtake
