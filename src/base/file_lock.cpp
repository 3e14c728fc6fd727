#include "base/file_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"

namespace overtake {
namespace {

constexpr std::string_view kBeginning = "process ";

bool is_same(int file, const std::filesystem::path& path) {
  struct stat a {
  }, b{};
  return ::fstat(file, &a) == 0 && ::lstat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::string signature_of(pid_t process) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}{} on {}", kBeginning, process, host.data());
}

// The first line.
std::string content_of(int file) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  const std::string_view all(text.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
  return std::string(all.substr(0, all.find('\n')));
}

// Whether there may be such a process: not if it is one of this host that is gone.
bool may_live(std::string_view signature) {
  if (!signature.starts_with(kBeginning)) return false;
  const std::string_view number = signature.substr(kBeginning.size());
  pid_t process = 0;
  if (std::from_chars(number.data(), number.data() + number.size(), process).ec != std::errc{}) return false;
  return signature != signature_of(process) || ::kill(process, 0) == 0 || errno == EPERM;
}

// Of a lock that another process has. It signs right after it got it; until then the last one's signature may stand.
std::string holder_of(int file) {
  using namespace std::chrono_literals;
  constexpr int tries = 100;
  std::string signature = content_of(file);
  for (int i = 0; i < tries && !may_live(signature); ++i) {
    std::this_thread::sleep_for(10ms);
    signature = content_of(file);
  }
  return may_live(signature) ? signature : "another process";
}

}  // namespace

std::string FileLock::open_file() {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    const int code = errno;
    fail_user("{}: cannot lock: {}; remove it if nobody uses it, or choose another path", path_.string(),
              std::strerror(code));
  }
  std::string content = content_of(descriptor_);
  if (content.empty() || content.starts_with(kBeginning)) return content;
  ::close(std::exchange(descriptor_, -1));
  fail_user("{}: cannot lock: this file is no lock of Overtake's; move it, or choose another path", path_.string());
}

FileLock::FileLock(std::filesystem::path path) : path_(std::move(path)) {
  for (;;) {
    other_ = open_file();
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      state_ = errno == EWOULDBLOCK ? State::taken : State::unknown;
      if (state_ == State::unknown) return;
      other_ = holder_of(descriptor_);
      ::close(std::exchange(descriptor_, -1));
      return;
    }
    if (is_same(descriptor_, path_)) break;
    ::close(std::exchange(descriptor_, -1));  // whoever had it has just removed the file
  }
  sign();
}

// Says who holds it. On a full disk nobody does, but it is held.
void FileLock::sign() const {
  const std::string line = signature_of(::getpid()) + "\n";
  if (::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, line.data(), line.size(), 0) >= 0) return;
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  if (is_same(descriptor_, path_)) ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace overtake
