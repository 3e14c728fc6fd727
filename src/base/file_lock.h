#pragma once
// A lock between processes: a file beside what it guards. The kernel gives it back when its process ends, however that
// ends.

#include <cstdint>
#include <filesystem>
#include <string>

namespace overtake {

class FileLock {
 public:
  enum class State : std::uint8_t {
    held,
    taken,   // by another process
    unknown  // the file system has no locks
  };

  // Waits for nobody. A user error if the file cannot be made, or is none of these.
  explicit FileLock(std::filesystem::path path);
  // Gives it back, and removes the file.
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  State state() const { return state_; }
  // Of a lock that is taken, by whom, and of one that is held, who was killed while it held it: "process 12 on host",
  // or nobody.
  const std::string& other() const { return other_; }

 private:
  // Returns who signed it.
  std::string open_file();
  void sign() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  State state_ = State::held;
  std::string other_;
};

}  // namespace overtake
