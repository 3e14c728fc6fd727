#pragma once
// How errors are thrown inside Overtake: the user's by fail_user, ours by OVERTAKE_CHECK.

#include <fmt/format.h>

#include <string>

#include "overtake/error.h"

namespace overtake {

template <class... Args>
[[noreturn]] void fail_user(fmt::format_string<Args...> text, Args&&... args) {
  throw UserError(fmt::format(text, std::forward<Args>(args)...));
}

[[noreturn]] void fail_internal(const char* file, int line, const char* condition, const std::string& text);

}  // namespace overtake

// Checks a promise of ours; `...` is a format string and its values.
#define OVERTAKE_CHECK(condition, ...)                                                       \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::overtake::fail_internal(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
