#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;

// The reason in words; errno codes are small positive numbers.
std::string reason(int code) { return std::strerror(code); }

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }

 private:
  int number_;
};

int open_retrying(const fs::path& path, int flags) {
  int number;
  do {
    number = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (number < 0 && errno == EINTR);
  return number;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Makes what was created or renamed in `folder` durable. Some file systems cannot and say EINVAL; there is nothing
// better to do there.
void sync_folder(const fs::path& folder) {
  const Descriptor opened(open_retrying(folder, O_RDONLY | O_DIRECTORY));
  if (opened.number() < 0 || (::fsync(opened.number()) != 0 && errno != EINVAL)) {
    const int code = errno;
    fail_user("{}: cannot make the folder durable: {}; check the disk", folder.string(), reason(code));
  }
}

// Devices and pipes are written where they are: a rename would replace them.
bool is_written_directly(const fs::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return false;
  if (S_ISDIR(status.st_mode)) {
    fail_user("{}: cannot write: it is a folder; give the path of a file", path.string());
  }
  return !S_ISREG(status.st_mode);
}

// A new file beside `destination`; the process id in its name keeps processes apart.
std::pair<int, fs::path> create_beside(const fs::path& destination) {
  for (int attempt = 0;; ++attempt) {
    fs::path path = destination;
    path += fmt::format(".partial-{}-{}", ::getpid(), attempt);
    const int number = open_retrying(path, O_WRONLY | O_CREAT | O_EXCL);
    if (number >= 0) return {number, std::move(path)};
    if (errno == EEXIST) continue;
    const int code = errno;
    fail_user("{}: cannot write: {}; choose a path in a folder you may write to", destination.string(), reason(code));
  }
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file(open_retrying(path, O_RDONLY));
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) {
    const int code = errno;
    fail_user("{}: cannot read: {}; check the path", path.string(), reason(code));
  }
  if (S_ISDIR(status.st_mode)) fail_user("{}: cannot read: it is a folder; give the path of a file", path.string());

  // The size is a hint: pipes and /proc say 0, and a file may grow meanwhile.
  constexpr std::size_t least_room = 4096;
  std::string content(static_cast<std::size_t>(status.st_size) + 1, '\0');
  std::size_t filled = 0;
  for (;;) {
    if (filled == content.size()) content.resize(std::max(least_room, content.size() * 2));
    const ssize_t got = ::read(file.number(), content.data() + filled, content.size() - filled);
    if (got == 0) break;
    if (got > 0) {
      filled += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      const int code = errno;
      fail_user("{}: cannot read: {}; check the disk", path.string(), reason(code));
    }
  }
  content.resize(filled);
  return content;
}

std::filesystem::path user_cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg / "overtake";
  if (const auto home = variable("HOME"); !home.empty()) return home / ".cache" / "overtake";
  return {};
}

void create_folders(const fs::path& folder) {
  const auto fail = [&](const std::string& why) {
    fail_user("{}: cannot create the folder: {}; choose a place you may write to", folder.string(), why);
  };
  std::error_code error;
  std::vector<fs::path> missing;  // the deepest first
  for (fs::path at = folder; !at.empty() && !fs::exists(at, error); at = at.parent_path()) missing.push_back(at);
  for (; !missing.empty(); missing.pop_back()) {
    fs::create_directory(missing.back(), error);
    if (error) fail(error.message());
    sync_folder(folder_of(missing.back()));
  }
  if (!fs::is_directory(folder, error)) fail(reason(error ? error.value() : ENOTDIR));
}

void check_writable(const fs::path& path) {
  if (!path.has_filename()) fail_user("{}: cannot write: it names no file; add a file name", path.string());
  create_folders(folder_of(path));
  if (!is_written_directly(path)) {
    const auto [number, probe] = create_beside(path);
    ::close(number);
    ::unlink(probe.c_str());
    return;
  }
  const Descriptor opened(open_retrying(path, O_WRONLY | O_NONBLOCK));
  // ENXIO: a pipe that nobody reads yet.
  if (opened.number() < 0 && errno != ENXIO) {
    const int code = errno;
    fail_user("{}: cannot write: {}; choose another path", path.string(), reason(code));
  }
}

AtomicFile::AtomicFile(fs::path destination) : destination_(std::move(destination)) {
  if (!destination_.has_filename()) {
    fail_user("{}: cannot write: it names no file; add a file name", destination_.string());
  }
  direct_ = is_written_directly(destination_);
  if (!direct_) {
    std::tie(descriptor_, written_path_) = create_beside(destination_);
    return;
  }
  written_path_ = destination_;
  descriptor_ = open_retrying(destination_, O_WRONLY);
  if (descriptor_ < 0) {
    const int code = errno;
    fail_user("{}: cannot write: {}; choose another path", destination_.string(), reason(code));
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!direct_ && !written_path_.empty()) ::unlink(written_path_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  OVERTAKE_CHECK(descriptor_ >= 0, "{} is written after its commit", destination_.string());
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    } else if (errno != EINTR) {
      const int code = errno;
      fail_user("{}: cannot write: {}; the file keeps what it had: free space or choose another path",
                destination_.string(), reason(code));
    }
  }
}

void AtomicFile::close_durably() {
  OVERTAKE_CHECK(descriptor_ >= 0, "{} is committed twice", destination_.string());
  // Devices and pipes cannot be synced and say EINVAL or ENOTSUP.
  const bool synced = ::fsync(descriptor_) == 0 || direct_;
  const int sync_code = errno;
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  if (synced && closed) return;
  const int code = synced ? errno : sync_code;
  fail_user("{}: cannot write: {}; the file keeps what it had: free space or choose another path",
            destination_.string(), reason(code));
}

void AtomicFile::commit() { commit_as(destination_.filename().string()); }

void AtomicFile::commit_as(const std::string& file_name) {
  close_durably();
  if (direct_) return;
  const fs::path folder = folder_of(destination_);
  const fs::path target = destination_.has_parent_path() ? folder / file_name : fs::path(file_name);
  if (::rename(written_path_.c_str(), target.c_str()) != 0) {
    const int code = errno;
    fail_user("{}: cannot write: {}; choose another path", target.string(), reason(code));
  }
  written_path_.clear();
  sync_folder(folder);
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace overtake
