#include "launch/supervisor.h"

#include <poll.h>
#include <sched.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "launch/process.h"

namespace overtake {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long others may take to end as well before the one at fault is named: others that failed by themselves, and, when
// there are only such that lost a rank, that rank.
constexpr milliseconds kMoment{300}, kMomentForLost{2000};
constexpr int kInterruptedExit = 130;  // of a worker that saved and left, whatever signal asked for it

// Signals to be read instead of obeyed, as long as this lives. Those that whoever started us wants ignored (nohup) are.
class SignalQueue {
 public:
  SignalQueue() {
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    for (const int s : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction now {};
      sigaction(s, nullptr, &now);
      if (now.sa_handler != SIG_IGN) sigaddset(&taken, s);
    }
    child_handler_ = signal(SIGCHLD, SIG_DFL);  // where it is ignored, children cannot be waited for
    pipe_handler_ = signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &taken, &before_);
    file_ = signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
    OVERTAKE_CHECK(file_ >= 0, "no file for signals");
  }
  ~SignalQueue() {
    while (next()) {
    }
    close(file_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    signal(SIGPIPE, pipe_handler_);
    signal(SIGCHLD, child_handler_);
  }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int file() const { return file_; }
  const sigset_t& before() const { return before_; }
  std::optional<int> next() {
    signalfd_siginfo info;
    if (read(file_, &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  int file_ = -1;
  sigset_t before_;
  sighandler_t child_handler_, pipe_handler_;
};

// The cores of one of several workers: an even share of those this process may use, or one of them in turn.
std::vector<int> share_of_cores(int worker, int workers) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::vector<int> all;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &allowed)) all.push_back(core);
  }
  const int count = static_cast<int>(all.size());
  if (workers >= count) return {all[static_cast<std::size_t>(worker % count)]};
  return {all.begin() + worker * count / workers, all.begin() + (worker + 1) * count / workers};
}

// This process's own, but for what tells a worker who it is.
std::vector<std::string> environment_of(const Worker& worker) {
  std::vector<std::string> out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto is = [&](std::string_view name) { return text.starts_with(name); };
    if (is("OVERTAKE_RANK=") || is("OVERTAKE_SIZE=") || is("OVERTAKE_LOCAL_RANK=") || is("OVERTAKE_JOB=") ||
        is("OVERTAKE_STORE=") || is("OVERTAKE_ADDRESS=")) {
      continue;
    }
    out.emplace_back(text);
  }
  out.push_back(fmt::format("OVERTAKE_RANK={}", worker.rank));
  out.push_back(fmt::format("OVERTAKE_SIZE={}", worker.size));
  out.push_back(fmt::format("OVERTAKE_LOCAL_RANK={}", worker.local_rank));
  out.push_back("OVERTAKE_JOB=" + worker.job);
  out.push_back("OVERTAKE_STORE=" + worker.store);
  out.push_back("OVERTAKE_ADDRESS=" + worker.address);
  return out;
}

class Supervisor {
 public:
  explicit Supervisor(const Job& job) : job_(job) {}

  int run() {
    start();
    while (wait_for_news()) {
      while (const auto signal = signals_.next()) take(*signal);
      for (Supervised& w : workers_) {
        w.process->read_errors();
        if (!w.has_ended && w.process->poll_end()) take_end(w);
      }
      const auto now = Clock::now();
      if (judge_at_ && (now >= *judge_at_ || !is_any_left())) judge();
      if (kill_at_ && now >= *kill_at_) end_all();
      look_for_stopped(now);
    }
    return status();
  }

 private:
  struct Supervised {
    int rank;
    std::unique_ptr<Process> process;
    bool has_ended = false;
  };

  void start() {
    for (int i = 0; i < job_.workers; ++i) {
      Worker worker = job_.first;
      worker.rank += i;
      worker.local_rank += i;
      const ProcessOptions options{.command = job_.command,
                                   .environment = environment_of(worker),
                                   .is_heard = worker.rank == 0,
                                   .cores = job_.share_cores ? std::vector<int>() : share_of_cores(i, job_.workers),
                                   .signals = signals_.before()};
      workers_.push_back({worker.rank, std::make_unique<Process>(options)});
    }
  }

  bool is_any_left() const {
    return std::any_of(workers_.begin(), workers_.end(), [](const Supervised& w) { return !w.has_ended; });
  }

  // False when all is over.
  bool wait_for_news() {
    if (!is_any_left()) return false;
    std::vector<pollfd> files = {{signals_.file(), POLLIN, 0}};
    for (const Supervised& w : workers_) {
      if (w.process->errors() >= 0) files.push_back({w.process->errors(), POLLIN, 0});
    }
    auto patience = milliseconds(10'000);
    for (const auto& at : {judge_at_, kill_at_, stopped_until_}) {
      if (at) patience = std::min(patience, std::chrono::ceil<milliseconds>(*at - Clock::now()));
    }
    poll(files.data(), files.size(), static_cast<int>(std::max(patience, milliseconds(0)).count()));
    return true;
  }

  void take(int signal) {
    if (signal == SIGCHLD) return;  // only to wake us
    if (signal == SIGINT && (asked_by_ != 0 || culprit_ != nullptr)) {
      job_.say("launch: killing all ranks");
      end_all();
    }
    if (asked_by_ != 0 || culprit_ != nullptr) return;
    job_.say(fmt::format("launch: SIG{}: the ranks may save and leave{}", sigabbrev_np(signal),
                         signal == SIGINT ? "; press Ctrl-C again to kill them" : ""));
    ask_to_leave(signal);
  }

  void ask_to_leave(int signal) {
    asked_by_ = signal;
    kill_at_ = Clock::now() + job_.leave_time;
    sent_ = signal == SIGHUP ? SIGTERM : signal;  // which more programs take as a reason to save
    send_all(sent_);
  }

  void send_all(int signal) {
    for (Supervised& w : workers_) w.process->send_signal(signal);
  }

  void end_all() {
    if (asked_by_ != 0 && culprit_ == nullptr && !is_killing_) {
      for (const Supervised& w : workers_) {
        if (!w.has_ended) job_.say(fmt::format("launch: rank {} did not leave; it is killed", w.rank));
      }
    }
    is_killing_ = true;
    kill_at_.reset();
    send_all(SIGKILL);
  }

  // Whether a worker ended as it was asked to.
  bool has_left(const ProcessEnd& end) const {
    return asked_by_ != 0 && (end.exit_code() == kInterruptedExit || end.exit_code() == 128 + sent_);
  }

  void take_end(Supervised& w) {
    w.has_ended = true;
    const ProcessEnd& end = *w.process->end();
    if (end.is_well() || has_left(end) || is_killing_ || culprit_ != nullptr) return;
    if (asked_by_ == 0 && !end.signal() && end.exit_code() == kInterruptedExit) {
      job_.say(fmt::format("launch: rank {} was asked to stop: the others may save and leave", w.rank));
      return ask_to_leave(SIGINT);
    }
    failed_.push_back(&w);
    const auto at = Clock::now() + (lost_a_rank(w) ? kMomentForLost : kMoment);
    judge_at_ = std::min(judge_at_.value_or(at), at);
  }

  static bool lost_a_rank(const Supervised& w) { return w.process->end()->exit_code() == kLostARank; }

  // Whether those that failed only lost one that left as it was asked to, before it could do so together with them.
  bool was_left_early() const {
    return asked_by_ != 0 &&
           std::all_of(failed_.begin(), failed_.end(), [](const auto* w) { return lost_a_rank(*w); }) &&
           std::any_of(workers_.begin(), workers_.end(),
                       [&](const Supervised& w) { return w.has_ended && w.process->end()->signal() == sent_; });
  }

  // Of all that failed, in order, the one that did so by itself.
  void judge() {
    judge_at_.reset();
    if (was_left_early()) return failed_.clear();
    const auto doubt = [](const Supervised* w) { return w->process->end()->signal() ? 0 : lost_a_rank(*w) ? 2 : 1; };
    culprit_ = *std::min_element(failed_.begin(), failed_.end(),
                                 [&](const Supervised* a, const Supervised* b) { return doubt(a) < doubt(b); });
    const ProcessEnd& end = *culprit_->process->end();
    job_.say(fmt::format("launch: rank {} {}{}; the job ends", culprit_->rank, end.text(),
                         end.signal() == SIGKILL  ? " (by someone, or because memory ran out: see dmesg)"
                         : lost_a_rank(*culprit_) ? ": it lost another rank"
                                                  : ""));
    show(*culprit_);
    if (!is_any_left()) return;
    send_all(SIGTERM);
    kill_at_ = Clock::now() + job_.fail_time;
  }

  // Whoever is stopped when all others have ended will not end by itself.
  void look_for_stopped(Clock::time_point now) {
    const auto ended = std::count_if(workers_.begin(), workers_.end(), [](const auto& w) { return w.has_ended; });
    const auto is_stopped = [](const auto& w) { return w.process->is_stopped(); };
    const auto stopped = std::count_if(workers_.begin(), workers_.end(), is_stopped);
    const bool is_known = judge_at_ || culprit_ != nullptr || is_killing_ || asked_by_ != 0;
    if (ended == 0 || stopped == 0 || ended + stopped < std::ssize(workers_) || is_known) return stopped_until_.reset();
    if (!stopped_until_) stopped_until_ = now + job_.fail_time;
    if (now < *stopped_until_) return;
    culprit_ = &*std::find_if(workers_.begin(), workers_.end(), is_stopped);
    job_.say(fmt::format("launch: rank {} is stopped, and all others have ended; it is killed", culprit_->rank));
    end_all();
  }

  void show(const Supervised& w) const {
    for (const std::string& line : w.process->last_errors().lines()) job_.say(fmt::format("rank {}: {}", w.rank, line));
  }

  int status() {
    if (culprit_ != nullptr) {
      for (const Supervised& w : workers_) {
        if (&w != culprit_) show(w);
      }
      return culprit_->process->end()->exit_code();
    }
    const bool is_well =
        std::all_of(workers_.begin(), workers_.end(), [](const Supervised& w) { return w.process->end()->is_well(); });
    return is_well ? 0 : 128 + asked_by_;
  }

  const Job& job_;
  SignalQueue signals_;
  std::vector<Supervised> workers_;
  int asked_by_ = 0;                       // the signal by which the workers were asked to leave
  int sent_ = 0;                           // what they got instead
  std::vector<const Supervised*> failed_;  // in the order in which they ended
  const Supervised* culprit_ = nullptr;    // known when the job has failed
  std::optional<Clock::time_point> judge_at_, kill_at_, stopped_until_;
  bool is_killing_ = false;
};

}  // namespace

int supervise(const Job& job) {
  OVERTAKE_CHECK(job.workers > 0 && !job.command.empty() && job.say, "a job of {} workers", job.workers);
  return Supervisor(job).run();
}

}  // namespace overtake
