#include "base/toml.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {
namespace {

// Goes over a text once and finds what the library must not get: what is nested too deeply, and letters beyond ASCII
// where it asks whether they are white space (then its answer is undefined; TOML has none there). Of a text that is not
// TOML, it is right up to where that shows.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  // What is wrong in line(); "" for nothing.
  std::string_view fault() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        const std::size_t begin = at_;
        if (!skip_string(c)) return "a text of several lines with both a backslash and a letter beyond ASCII";
        // Anything else that it stands behind is no text to the library either, but a value that it looks for the end
        // of.
        if (std::string_view("\n=,[{").find(before_) == std::string_view::npos &&
            !std::ranges::all_of(text_.substr(begin, at_ - begin), is_ascii))
          return "a letter beyond ASCII in quotes where no value and no key begins";
        before_ = c;
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        count(c);
        if (depth_ > kMostTomlDepth || dots_ > kMostTomlDepth) return "nested too deeply";
        if (!is_ascii(c)) return "a letter beyond ASCII outside quotes";
        if (c != ' ' && c != '\t' && c != '\r') before_ = c;
        ++at_;
      }
    }
    return "";
  }

  std::ptrdiff_t line() const {
    const auto here = text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size()));
    return 1 + std::count(text_.begin(), here, '\n');
  }

 private:
  static bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

  void count(char c) {
    if (c == '.') ++dots_;
    if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) dots_ = 0;
    if (c == '[' || c == '{') ++depth_;
    if ((c == ']' || c == '}') && depth_ > 0) --depth_;
  }

  // To behind its end; false for one that the library must not get. Those in three quotes go over several lines.
  bool skip_string(char quote) {
    const std::string fence(text_.substr(at_, 3) == std::string(3, quote) ? 3 : 1, quote);
    bool has_escapes = false, is_plain = true;
    at_ += fence.size();
    while (at_ < text_.size() && text_.substr(at_, fence.size()) != fence) {
      const char c = text_[at_];
      if (fence.size() == 1 && c == '\n') return true;
      const bool is_escape = quote == '"' && c == '\\';
      has_escapes = has_escapes || is_escape;
      is_plain = is_plain && is_ascii(c);
      if (fence.size() == 3 && has_escapes && !is_plain) return false;
      // A quote may be escaped.
      at_ +=
          is_escape && text_.substr(at_ + 1, 1) != "\n" && at_ + 1 < text_.size() && is_ascii(text_[at_ + 1]) ? 2u : 1u;
    }
    at_ += fence.size();
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0, depth_ = 0, dots_ = 0;
  char before_ = '\n';  // the last one outside of quotes that is no space, or the quote itself
};

}  // namespace

toml::table parse_toml(std::string_view text, const std::string& file, std::string_view advice) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Scan scan(text);
  if (const std::string_view fault = scan.fault(); !fault.empty())
    fail_user("{}:{}: not TOML that can be read: {}; {}", file, scan.line(), fault, advice);
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    fail_user("{}:{}: not TOML: {}; {}", file, error.source().begin.line, error.description(), advice);
  }
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace overtake
