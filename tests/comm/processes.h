#pragma once
// Ranks as processes of their own, forked from the test, each with a text to say at its end.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace overtake {

// What has not ended by then, since the start of all, hangs. No limit of speed: a busy machine may take its time.
constexpr double kHangsSeconds = 120;

struct Said {
  std::string text;  // empty where the process was killed
};

class Processes {
 public:
  Processes() = default;
  ~Processes() {
    for (Process& p : processes_) end(p);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void start(const std::function<std::string()>& run) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t id = fork();
    ASSERT_GE(id, 0);
    if (id == 0) {
      close(ends[0]);
      std::string text;
      try {
        text = run();
      } catch (const std::exception& error) {
        text = std::string("thrown: ") + error.what();
      }
      [[maybe_unused]] const auto written = write(ends[1], text.data(), text.size());
      _exit(0);
    }
    close(ends[1]);
    processes_.push_back({id, ends[0]});
  }

  void send_signal(std::size_t index, int signal) { kill(processes_[index].id, signal); }

  // What a process said; fails when it hangs.
  Said join(std::size_t index) {
    Process& p = processes_[index];
    Said out;
    while (true) {
      pollfd ready{p.out, POLLIN, 0};
      const double left = kHangsSeconds - seconds();
      if (left <= 0 || poll(&ready, 1, static_cast<int>(left * 1000) + 1) == 0) {
        ADD_FAILURE() << "process " << index << " still runs after " << kHangsSeconds << " s";
        break;
      }
      char bytes[4096];
      const auto size = read(p.out, bytes, sizeof bytes);
      if (size <= 0) break;
      out.text.append(bytes, static_cast<std::size_t>(size));
    }
    end(p);
    return out;
  }

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count(); }

 private:
  struct Process {
    pid_t id;
    int out;
  };
  static void end(Process& p) {
    if (p.id == 0) return;
    kill(p.id, SIGKILL);
    kill(p.id, SIGCONT);
    waitpid(p.id, nullptr, 0);
    close(p.out);
    p.id = 0;
  }
  std::vector<Process> processes_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace overtake
