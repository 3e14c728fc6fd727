#pragma once
// A full disk, for as long as this object lives: files may have so many bytes.

#include <signal.h>
#include <sys/resource.h>

namespace overtake {

class LimitedFiles {
 public:
  explicit LimitedFiles(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limited{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~LimitedFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  LimitedFiles(const LimitedFiles&) = delete;
  LimitedFiles& operator=(const LimitedFiles&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace overtake
