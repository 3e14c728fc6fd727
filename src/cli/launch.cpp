#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "base/error.h"
#include "base/nearest_word.h"
#include "cli/commands.h"
#include "cli/mistakes.h"
#include "cli/say.h"
#include "comm/store.h"
#include "launch/own_folder.h"
#include "launch/supervisor.h"

namespace overtake {
namespace {

struct LaunchFlags {
  int workers = 0;
  std::string store, job, address;
  int size = 0, first_rank = 0;
  double leave_seconds = 60;
  bool share_cores = false;
  std::vector<std::string> command;  // of this program
};

// Where the ranks meet, and under which name. What was made for this run alone goes with it.
class MeetingPlace {
 public:
  explicit MeetingPlace(const LaunchFlags& flags) : store(flags.store), job(flags.job) {
    if (job.empty()) job = new_job_id();
    if (store.empty()) {
      std::error_code error;
      const auto folder = std::filesystem::temp_directory_path(error);
      if (error) fail_user("launch: no folder for temporary files: {}; set TMPDIR, or give --store", error.message());
      store = temporary_.emplace(folder, "overtake-launch").path().string();
    } else if (flags.job.empty() && store.find("://") == std::string::npos) {
      own_ = std::filesystem::path(store) / job;
    }
  }
  ~MeetingPlace() {
    std::error_code ignored;
    if (!own_.empty()) std::filesystem::remove_all(own_, ignored);
  }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  std::string store, job;

 private:
  static std::string new_job_id() {
    std::random_device random;
    return fmt::format("{:08x}{:08x}", random(), random());
  }
  std::optional<OwnFolder> temporary_;
  std::filesystem::path own_;
};

void check(const LaunchFlags& flags, const std::vector<std::string>& commands) {
  if (!std::isfinite(flags.leave_seconds))  // CLI11's ranges let NaN pass
    fail_user("launch: --leave-seconds {}: it must be a number from 0 to 1000000", flags.leave_seconds);
  if (flags.command.empty()) {
    fail_user(
        "launch: nothing to run: no command was given; name one of this program's behind the options, for "
        "example `overtake launch -n 2 -- train cnn`");
  }
  if (flags.command[0].starts_with('-')) {
    fail_user(
        "launch: {}: no such option; `overtake launch --help` lists them, and those of the workers come behind "
        "their command",
        flags.command[0]);
  }
  if (std::ranges::find(commands, flags.command[0]) == commands.end())
    fail_user("launch: {}: no such command to start workers with; there are {}{}", flags.command[0],
              fmt::join(commands, ", "), did_you_mean(flags.command[0], commands));
  if (flags.command[0] == "launch") fail_user("launch: a worker cannot launch workers; name another command");
  if (flags.job.find('/') != std::string::npos || flags.job == "." || flags.job == "..") {
    fail_user("launch: --job {}: must be a name without '/'; choose another", flags.job);
  }
  if (flags.size == 0 && flags.first_rank > 0) {
    fail_user("launch: --first-rank {}: how many ranks are there on all hosts? Give --size", flags.first_rank);
  }
  if (flags.size == 0) return;
  if (flags.first_rank + flags.workers > flags.size) {
    fail_user("launch: --size {}: too small for ranks {} to {}; count the ranks of all hosts", flags.size,
              flags.first_rank, flags.first_rank + flags.workers - 1);
  }
  const auto need = [&](const char* flag, const std::string& value, const char* what) {
    if (!value.empty() || flags.size == flags.workers) return;
    fail_user("launch: --size {}: ranks on other hosts need {}; give {}", flags.size, what, flag);
  };
  need("--store", flags.store, "a place to meet that all hosts see");
  need("--job", flags.job, "a name of this run, new every time and the same on all hosts");
  need("--address", flags.address, "the address by which they reach this host");
}

// Proves that ranks will be able to meet, and that no other launcher has this job.
void claim(const Worker& first) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const auto store = open_store(first.store + "/" + first.job);
  const std::string name = fmt::format("launch-{}", first.rank);
  if (!store->put(name, fmt::format("process {} on {}", getpid(), host))) {
    fail_user("launch: --job {}: was started before, from rank {} on, by {}; give every run its own name", first.job,
              first.rank, store->get(name).value_or("someone"));
  }
}

int launch(const LaunchFlags& flags, const std::vector<std::string>& commands) {
  check(flags, commands);
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  OVERTAKE_CHECK(!error, "/proc/self/exe: {}", error.message());

  const MeetingPlace place(flags);
  Job job{.command = {program.string()},
          .workers = flags.workers,
          .first = {.rank = flags.first_rank,
                    .size = flags.size > 0 ? flags.size : flags.workers,
                    .local_rank = 0,
                    .job = place.job,
                    .store = place.store,
                    .address = flags.address},
          .share_cores = flags.share_cores,
          .leave_time = std::chrono::milliseconds(static_cast<std::int64_t>(flags.leave_seconds * 1000)),
          .say = [](const std::string& line) { say(stderr, "{}\n", line); }};
  job.command.insert(job.command.end(), flags.command.begin(), flags.command.end());
  claim(job.first);
  return supervise(job);
}

}  // namespace

void add_launch_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<LaunchFlags>();
  CLI::App* c = app.add_subcommand("launch", "run a command as several processes that work together");
  c->add_option("-n,--workers", flags->workers, "processes on this host")->required()->check(CLI::Range(1, 1024));
  c->add_option("--store", flags->store,
                "where ranks meet: a folder that all hosts see, or etcd://HOST:PORT[,HOST:PORT...]; default: a "
                "temporary folder");
  c->add_flag("--share-cores", flags->share_cores, "all workers use all cores; default: each its own share");
  c->add_option("--leave-seconds", flags->leave_seconds, "how long workers may take to save after Ctrl-C")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  c->add_option("--size", flags->size, "on several hosts: ranks on all of them; default: those on this one")
      ->check(CLI::Range(1, 1'000'000));
  c->add_option("--first-rank", flags->first_rank, "on several hosts: the first rank on this one")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  c->add_option("--job", flags->job, "on several hosts: a name of this run, new every time, the same on all");
  c->add_option("--address", flags->address, "on several hosts: by which the others reach this one");
  c->prefix_command();
  c->footer(
      "Rank 0 is heard, and its output, --json included, is that of the job. A worker that fails ends the job: launch\n"
      "says which and why, and exits as it did.\n"
      "Example:\n  overtake launch -n 2 -- train cnn --dp 2 --data fashion-mnist --steps 100 --json\n"
      "On the second of two hosts:\n"
      "  overtake launch -n 2 --first-rank 2 --size 4 --store /shared/jobs --job run-17 --address 10.0.0.2 -- train "
      "cnn --dp 4");
  c->callback([flags, c, &exit_code] {
    flags->command = c->remaining();
    exit_code = launch(*flags, command_names(*c->get_parent()));
  });
}

}  // namespace overtake
