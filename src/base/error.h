#pragma once
// Two kinds of error: the user's (exit code 2, says what to do) and ours (a bug, says so).

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace overtake {

// Something the user gave is wrong. The text reads "<where>: <what>: <values>; <what to do>".
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A broken promise inside Overtake itself.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

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
