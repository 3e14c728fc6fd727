#pragma once
// Runs the program as a user would and keeps what it said.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace overtake::tests {

struct CommandResult {
  int exit_code = -1;
  std::string out, err;

  // The last line of the output as JSON.
  nlohmann::json json() const {
    std::string text = out;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const std::size_t at = text.rfind('\n');
    return nlohmann::json::parse(at == std::string::npos ? text : text.substr(at + 1));
  }
};

// A folder that goes with the test.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "overtake-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Writes the JSON of a checkpoint as earlier versions did, without a checksum: for tests that change it.
inline void write_as_before(const std::string& path, nlohmann::json checkpoint, int version = 2) {
  checkpoint.erase("checksum");
  checkpoint["version"] = version;
  write_text(path, checkpoint.dump());
}

// `overtake ARGUMENTS`, through the shell, with what comes before it there.
inline CommandResult overtake(const std::string& arguments, const std::string& before = "") {
  const ScratchFolder folder;
  const std::string err = folder / "err";
  const std::string command = before + std::string(OVERTAKE_BINARY) + " " + arguments + " 2>" + err;
  CommandResult result;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> chunk;
  while (const std::size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) result.out.append(chunk.data(), n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.err = read_text(err);
  return result;
}

// Starts `overtake ARGUMENTS...` without a shell and returns its process id; its output goes nowhere.
inline pid_t start_overtake(const std::vector<std::string>& arguments) {
  const pid_t child = fork();
  if (child != 0) return child;
  if (freopen("/dev/null", "w", stdout) == nullptr || freopen("/dev/null", "w", stderr) == nullptr) _exit(127);
  std::vector<char*> argv = {const_cast<char*>("overtake")};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  execv(OVERTAKE_BINARY, argv.data());
  _exit(127);
}

}  // namespace overtake::tests
