#pragma once
// A temporary folder that goes with this process. Those of processes that were killed go when the next one is made:
// folders of this user that carry the mark of such a folder, and none else, whatever their names.

#include <filesystem>
#include <string>

namespace overtake {

// A file in the folder, with a line that says whose it is.
inline constexpr const char* kOwnFolderMark = ".overtake-temporary-folder";

class OwnFolder {
 public:
  // PARENT/NAME-XXXXXX.
  OwnFolder(const std::filesystem::path& parent, const std::string& name);
  ~OwnFolder();
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;  // held as long as this process lives
};

}  // namespace overtake
