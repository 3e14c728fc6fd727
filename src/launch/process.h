#pragma once
// One process that does not outlive the one that started it.

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/last_lines.h"

namespace overtake {

struct ProcessOptions {
  std::vector<std::string> command;      // a program, looked for in PATH, and its arguments
  std::vector<std::string> environment;  // all of it, NAME=VALUE
  bool is_heard = true;                  // its output is this process's own; else only the end of its errors is kept
  std::vector<int> cores;                // that it may use; empty: all that this process may
  sigset_t signals;                      // that it blocks
};

// How a process ended.
struct ProcessEnd {
  int status;  // as waitpid() has it
  bool is_well() const;
  // Its exit code, 128 + the signal's number where one killed it, as shells have it.
  int exit_code() const;
  std::optional<int> signal() const;
  std::string text() const;  // "ended with exit code 3", "was killed by SIGKILL"
};

// In a process group of its own, with whatever processes it starts; it reads nothing. When the starting thread ends,
// however it does, the process is killed.
class Process {
 public:
  // UserError where the program cannot be started.
  explicit Process(const ProcessOptions& options);
  // Kills.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // To the whole group, until it has ended.
  void send_signal(int signal);
  // Nothing as long as it runs. Processes that it leaves behind in its group are killed.
  const std::optional<ProcessEnd>& poll_end();
  const std::optional<ProcessEnd>& end() const { return end_; }
  bool is_stopped() const;  // by SIGSTOP, and not going on

  // The errors of one that is not heard, to wait for; -1 when there are no more.
  int errors() const { return errors_; }
  // Takes what is there, without waiting.
  void read_errors();
  const LastLines& last_errors() const { return last_errors_; }

 private:
  pid_t id_ = -1;
  int errors_ = -1;
  LastLines last_errors_;
  std::optional<ProcessEnd> end_;
};

}  // namespace overtake
