#include "launch/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace overtake {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));  // exec only reads
  out.push_back(nullptr);
  return out;
}

struct Pipe {
  int ends[2];  // to read, to write
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0)
      fail_user("launch: cannot make a pipe: {}; allow more open files", strerror(errno));
  }
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int end) {
    close(ends[end]);
    ends[end] = -1;
  }
};

// All that the new process needs, made before the fork: after it, nothing may be allocated.
struct Start {
  std::vector<char*> arguments, environment;
  cpu_set_t cores;
  bool has_cores, is_heard;
  const sigset_t* signals;
  int errors, failure;  // to write to
  pid_t parent;
};

// The new process, until it is the program. Whatever fails is told by its errno.
[[noreturn]] void become(const Start& start) {
  const auto fail = [&] {
    const int error = errno;
    [[maybe_unused]] const auto told = write(start.failure, &error, sizeof error);
    _exit(127);
  };
  setpgid(0, 0);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail();
  if (getppid() != start.parent) _exit(127);  // it went before the line above
  if (start.has_cores) sched_setaffinity(0, sizeof start.cores, &start.cores);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) fail();
  if (!start.is_heard && (dup2(nothing, STDOUT_FILENO) < 0 || dup2(start.errors, STDERR_FILENO) < 0)) fail();
  signal(SIGPIPE, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  sigprocmask(SIG_SETMASK, start.signals, nullptr);
  execvpe(start.arguments[0], start.arguments.data(), start.environment.data());
  fail();
  _exit(127);
}

}  // namespace

bool ProcessEnd::is_well() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
int ProcessEnd::exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
std::optional<int> ProcessEnd::signal() const {
  if (WIFEXITED(status)) return std::nullopt;
  return WTERMSIG(status);
}
std::string ProcessEnd::text() const {
  if (WIFEXITED(status)) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  return fmt::format("was killed by {}",
                     name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", WTERMSIG(status)));
}

Process::Process(const ProcessOptions& options) {
  Pipe errors, failure;
  Start start{.arguments = pointers_to(options.command),
              .environment = pointers_to(options.environment),
              .cores = {},
              .has_cores = !options.cores.empty(),
              .is_heard = options.is_heard,
              .signals = &options.signals,
              .errors = errors.ends[1],
              .failure = failure.ends[1],
              .parent = getpid()};
  CPU_ZERO(&start.cores);
  for (const int core : options.cores) CPU_SET(static_cast<std::size_t>(core), &start.cores);
  id_ = fork();
  if (id_ < 0) fail_user("launch: cannot start a process: {}; start fewer", strerror(errno));
  if (id_ == 0) become(start);

  failure.close_end(1);
  int cause = 0;
  ssize_t size;
  while ((size = read(failure.ends[0], &cause, sizeof cause)) < 0 && errno == EINTR) {
  }
  if (size > 0) {
    waitpid(id_, nullptr, 0);
    fail_user("launch: cannot start {}: {}; name a program that is there", options.command[0], strerror(cause));
  }
  if (!options.is_heard) {
    errors_ = std::exchange(errors.ends[0], -1);
    fcntl(errors_, F_SETFL, O_NONBLOCK);
  }
}

Process::~Process() {
  if (!end_) {
    send_signal(SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  if (errors_ >= 0) close(errors_);
}

void Process::send_signal(int signal) {
  if (end_) return;
  if (kill(-id_, signal) != 0) kill(id_, signal);  // it has left its group
}

const std::optional<ProcessEnd>& Process::poll_end() {
  if (end_) return end_;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return end_;
  kill(-id_, SIGKILL);  // the rest of the group; its number is this process's until the next line
  ProcessEnd ended{};
  waitpid(id_, &ended.status, 0);
  end_ = ended;
  read_errors();
  return end_;
}

bool Process::is_stopped() const {
  siginfo_t info{};
  return !end_ && waitid(P_PID, static_cast<id_t>(id_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == id_;
}

void Process::read_errors() {
  char bytes[4096];
  // As much as a pipe holds, so that one who never stops does not keep us from all else.
  for (int i = 0; i < 32 && errors_ >= 0; ++i) {
    const ssize_t size = read(errors_, bytes, sizeof bytes);
    if (size > 0) {
      last_errors_.add({bytes, static_cast<std::size_t>(size)});
    } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
      close(std::exchange(errors_, -1));
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

}  // namespace overtake
