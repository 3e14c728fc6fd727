#include "base/error.h"

namespace overtake {

void fail_internal(const char* file, int line, const char* condition, const std::string& text) {
  throw InternalError(fmt::format(
      "internal error: {} ({}:{}, broken promise: {}); please report it with the command you ran, and a backtrace from "
      "`gdb -ex 'catch throw' -ex run --args overtake ...`",
      text, file, line, condition));
}

}  // namespace overtake
