#include "comm/store.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace overtake {

FileStore::FileStore(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    fail_user("{}: cannot make this folder for ranks to meet in: {}; name one that all ranks can write to",
              folder_.string(), error.message());
  }
}

// Written aside and then linked: whoever sees the name sees all of the value, and a taken name stays as it is.
bool FileStore::put(const std::string& name, const std::string& value) {
  std::string aside = (folder_ / ".put-XXXXXX").string();
  const int file = mkstemp(aside.data());
  if (file < 0) fail_user("{}: cannot write here: {}; free or allow it", folder_.string(), std::strerror(errno));
  close(file);
  std::ofstream out(aside, std::ios::binary);
  out << value;
  out.close();
  const bool is_written = out.good();
  const bool is_put = is_written && link(aside.c_str(), (folder_ / name).c_str()) == 0;
  const int error = is_written ? errno : ENOSPC;
  unlink(aside.c_str());
  if (!is_put && error != EEXIST) {
    fail_user("{}: cannot write {}: {}; free or allow it", folder_.string(), name, std::strerror(error));
  }
  return is_put;
}

std::optional<std::string> FileStore::get(const std::string& name) {
  std::ifstream in(folder_ / name, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream value;
  value << in.rdbuf();
  return value.str();
}

}  // namespace overtake
