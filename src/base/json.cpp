#include "base/json.h"

#include <fmt/format.h>

namespace overtake {
namespace {

using nlohmann::json;

// Where the text is nested too deeply; npos: nowhere. Of a text that is not JSON, it is right up to where that shows.
std::size_t too_deep_at(std::string_view text) {
  std::size_t depth = 0;
  bool is_in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (is_in_string) {
      if (c == '\\') ++at;
      if (c == '"') is_in_string = false;
    } else if (c == '"') {
      is_in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostJsonDepth) return at;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return std::string_view::npos;
}

}  // namespace

json parse_json(std::string_view text, const json::parser_callback_t& take) {
  if (const std::size_t at = too_deep_at(text); at != std::string_view::npos)
    throw json::parse_error::create(
        101, at, fmt::format("nested too deeply: there are more than {} levels", kMostJsonDepth), nullptr);
  try {
    return json::parse(text, take);
  } catch (const json::out_of_range& error) {
    constexpr int kNumberOverflow = 406;
    if (error.id != kNumberOverflow) throw;
    throw json::parse_error::create(101, 0, "a number is larger than any double", nullptr);
  }
}

json parse_json_or_discard(std::string_view text) {
  if (too_deep_at(text) != std::string_view::npos) return json(json::value_t::discarded);
  return json::parse(text, nullptr, false);
}

}  // namespace overtake
