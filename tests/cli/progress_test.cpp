// What a terminal shows while training: lines that never wrap, and some that stay.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>

#include "command.h"

namespace overtake::tests {
namespace {

// What `overtake ARGUMENTS...` prints to a terminal of so many columns.
std::string on_terminal(std::vector<std::string> arguments, unsigned short columns) {
  const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    unsetenv("COLUMNS");
    std::vector<char*> argv = {const_cast<char*>("overtake")};
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    execv(OVERTAKE_BINARY, argv.data());
    _exit(127);
  }
  std::string out;
  std::array<char, 4096> chunk;
  for (;;) {  // until the other end is closed
    const ssize_t n = read(terminal, chunk.data(), chunk.size());
    if (n <= 0) break;
    out.append(chunk.data(), static_cast<std::size_t>(n));
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(terminal);
  EXPECT_EQ(status, 0) << out;
  return out;
}

// The lines of progress, each with whether it stays.
std::vector<std::pair<std::string, bool>> progress_lines(const std::string& out) {
  const std::string begin = "\r\033[K";
  std::vector<std::pair<std::string, bool>> lines;
  for (std::size_t at = out.find(begin); at != std::string::npos; at = out.find(begin, at)) {
    at += begin.size();
    const std::size_t end = std::min(out.find_first_of("\r\n", at), out.size());
    lines.emplace_back(out.substr(at, end - at), out.compare(end, 2, "\r\n") == 0);
  }
  return lines;
}

TEST(ProgressLine, FitsTheTerminalAndLeavesTheLossCurve) {
  for (const unsigned short columns : std::array<unsigned short, 3>{120, 60, 30}) {
    const auto lines = progress_lines(on_terminal(
        {"train", "lenet", "--batch", "16", "--data", "synthetic:1600", "--epochs", "3", "--schedule", "in-order"},
        columns));
    ASSERT_FALSE(lines.empty());
    for (const auto& [line, stays] : lines) {
      EXPECT_LT(line.size(), columns) << line;
      EXPECT_TRUE(line.starts_with("step ")) << line;
      EXPECT_NE(line.find("loss"), std::string::npos) << line;
    }
    EXPECT_TRUE(lines.front().second) << "the first line says where the curve begins";
    EXPECT_TRUE(lines.back().second) << "the last line says where it ends";
  }
}

}  // namespace
}  // namespace overtake::tests
