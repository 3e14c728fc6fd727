#include "launch/own_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMarkText =
    "A temporary folder of Overtake's. It goes with the process that made it, or when a later one finds it.\n";

int open_folder(const fs::path& path) { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

bool is_same(int file, const fs::path& path) {
  struct stat a {
  }, b{};
  return fstat(file, &a) == 0 && lstat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool is_this_users(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 && status.st_uid == geteuid();
}

// Written when the folder is locked: a folder without a mark is nobody's to remove. errno has what went wrong.
bool mark(int folder) {
  const int file = openat(folder, kOwnFolderMark, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const bool is_written = write(file, kMarkText.data(), kMarkText.size()) == std::ssize(kMarkText);
  const int code = errno;
  close(file);
  errno = code;
  return is_written;
}

bool has_mark(int folder) {
  const int file = openat(folder, kOwnFolderMark, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, kMarkText.size()> text{};
  const bool is_ours = is_this_users(file) && read(file, text.data(), text.size()) == std::ssize(text) &&
                       std::string_view(text.data(), text.size()) == kMarkText;
  close(file);
  return is_ours;
}

// Whoever gets the lock of a folder is the only one to know it.
bool is_abandoned(int folder, const fs::path& path) {
  return is_this_users(folder) && has_mark(folder) && flock(folder, LOCK_EX | LOCK_NB) == 0 && is_same(folder, path);
}

void remove_abandoned(const fs::path& parent, const std::string& beginning) {
  std::error_code ignored;
  for (fs::directory_iterator it(parent, ignored), end; it != end; it.increment(ignored)) {
    if (!it->path().filename().string().starts_with(beginning)) continue;
    const int folder = open_folder(it->path());
    if (folder < 0) continue;
    if (is_abandoned(folder, it->path())) fs::remove_all(it->path(), ignored);
    close(folder);
  }
}

}  // namespace

OwnFolder::OwnFolder(const fs::path& parent, const std::string& name) {
  remove_abandoned(parent, name + "-");
  std::string path = (parent / (name + "-XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr)
    fail_user("{}: cannot make a temporary folder here: {}; set TMPDIR", parent.string(), std::strerror(errno));
  path_ = path;
  lock_ = open_folder(path_);
  // Where folders have no locks, nobody takes them for abandoned.
  if (lock_ >= 0) flock(lock_, LOCK_EX | LOCK_NB);
  if (lock_ >= 0 && mark(lock_)) return;
  const std::string why = std::strerror(errno);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
  fail_user("{}: cannot write into a temporary folder here: {}; free space, or set TMPDIR", parent.string(), why);
}

OwnFolder::~OwnFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(lock_);
}

}  // namespace overtake
