#include "base/error.h"

#include <string_view>

namespace overtake {

UserError::UserError(const std::string& text) : std::runtime_error(text) {
  const std::string_view all = text;
  if (const std::size_t end = all.find('`', 1); all.starts_with('`') && end != all.npos) {
    const std::string_view quoted = all.substr(1, end - 1);
    const std::size_t space = quoted.find(' ');
    field_ = quoted.substr(0, space);
    if (space != quoted.npos) value_ = quoted.substr(space + 1);
  }
  constexpr std::string_view kBeforeRemedy = "; ";
  if (const std::size_t last = all.rfind(kBeforeRemedy); last != all.npos)
    remedy_ = all.substr(last + kBeforeRemedy.size());
}

void fail_internal(const char* file, int line, const char* condition, const std::string& text) {
  throw InternalError(
      fmt::format("internal error: {} ({}:{}, broken promise: {}); please report it with the command you ran, and a "
                  "backtrace from `gdb -ex 'catch throw' -ex run -args overtake ...`",
                  text, file, line, condition),
      text);
}

}  // namespace overtake
