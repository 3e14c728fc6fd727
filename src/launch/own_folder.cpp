#include "launch/own_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;

int open_folder(const fs::path& path) { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

bool is_same(int file, const fs::path& path) {
  struct stat a {
  }, b{};
  return fstat(file, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Whoever gets the lock of a folder is the only one to know it.
void remove_abandoned(const fs::path& parent, const std::string& beginning) {
  std::error_code ignored;
  for (fs::directory_iterator it(parent, ignored), end; it != end; it.increment(ignored)) {
    if (!it->path().filename().string().starts_with(beginning)) continue;
    const int folder = open_folder(it->path());
    if (folder < 0) continue;
    if (flock(folder, LOCK_EX | LOCK_NB) == 0 && is_same(folder, it->path())) fs::remove_all(it->path(), ignored);
    close(folder);
  }
}

}  // namespace

OwnFolder::OwnFolder(const fs::path& parent, const std::string& name) {
  remove_abandoned(parent, name + "-");
  // One that is taken for abandoned before it is locked is made anew.
  while (true) {
    std::string path = (parent / (name + "-XXXXXX")).string();
    if (mkdtemp(path.data()) == nullptr)
      fail_user("{}: cannot make a temporary folder here: {}; set TMPDIR", parent.string(), std::strerror(errno));
    lock_ = open_folder(path);
    // Where folders have no locks, nobody takes them for abandoned.
    const bool is_taken = lock_ < 0 || (flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
    if (!is_taken && is_same(lock_, path)) {
      path_ = path;
      return;
    }
    if (lock_ >= 0) close(lock_);
  }
}

OwnFolder::~OwnFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(lock_);
}

}  // namespace overtake
