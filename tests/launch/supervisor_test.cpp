#include "launch/supervisor.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "launch/last_lines.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using namespace std::chrono_literals;

struct Outcome {
  int status;
  std::string said;  // lines
};

// Sleeps, and tells if nobody ended it before.
const std::string kSleep = "{ sleep 60; echo >$F/slept; }";

class Supervise : public testing::Test {
 protected:
  // Workers that run a shell script in a folder of their own, $F.
  Job job(int workers, const std::string& script) const {
    Job out;
    out.command = {"/bin/sh", "-c", "F=" + folder_.path().string() + "\n" + script};
    out.workers = workers;
    out.first = {.rank = 0, .size = workers, .local_rank = 0, .job = "j", .store = "/s", .address = ""};
    return out;
  }
  static Outcome run(Job job) {
    Outcome out;
    job.say = [&](const std::string& line) { out.said += line + "\n"; };
    out.status = supervise(job);
    return out;
  }
  std::string text(const std::string& name) const {
    std::ifstream in(folder_.path() / name);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }
  bool has_slept() const { return std::filesystem::exists(folder_.path() / "slept"); }
  // Whether the process whose number is in this file is still there after a moment: one that was killed takes time to
  // die. A dead one may wait for whoever adopted it.
  bool is_alive(const std::string& name) const {
    const std::string number = text(name);
    EXPECT_FALSE(number.empty()) << name;
    for (int i = 0; i < 3000; ++i) {
      std::ifstream in("/proc/" + std::to_string(std::stoi(number)) + "/stat");
      std::string state;
      std::getline(in, state);
      if (state.empty() || state.find(") Z") != std::string::npos || state.find(") X") != std::string::npos)
        return false;
      std::this_thread::sleep_for(10ms);
    }
    return true;
  }
  TemporaryFolder folder_;
};

TEST_F(Supervise, TellsEveryWorkerWhoItIs) {
  Job two = job(2,
                "echo $OVERTAKE_RANK/$OVERTAKE_SIZE $OVERTAKE_LOCAL_RANK $OVERTAKE_JOB $OVERTAKE_STORE "
                "[$OVERTAKE_ADDRESS] >$F/$OVERTAKE_RANK; test $HOME; read x || echo no input >>$F/$OVERTAKE_RANK");
  two.first.rank = 2;
  two.first.size = 4;
  two.first.address = "10.0.0.2";
  setenv("OVERTAKE_RANK", "77", 1);  // whoever started the launcher may have been one of these, too
  const Outcome o = run(two);
  unsetenv("OVERTAKE_RANK");
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.said, "");
  EXPECT_EQ(text("2"), "2/4 0 j /s [10.0.0.2]\nno input\n");
  EXPECT_EQ(text("3"), "3/4 1 j /s [10.0.0.2]\nno input\n");
}

TEST_F(Supervise, HearsRankZeroOnly) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Outcome o = run(job(3, "echo out $OVERTAKE_RANK; echo err $OVERTAKE_RANK >&2"));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "out 0\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "err 0\n");
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.said, "");
}

TEST_F(Supervise, SharesTheCores) {
  const std::string script = "grep Cpus_allowed_list /proc/self/status | cut -f2 >$F/$OVERTAKE_RANK";
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const int cores = CPU_COUNT(&allowed);
  EXPECT_EQ(run(job(cores, script)).status, 0);
  std::set<std::string> lists;
  for (int rank = 0; rank < cores; ++rank) lists.insert(text(std::to_string(rank)));
  EXPECT_EQ(lists.size(), static_cast<std::size_t>(cores));  // each its own
  EXPECT_EQ(run(job(cores + 1, script)).status, 0);
  EXPECT_EQ(text(std::to_string(cores)), text("0"));  // in turn where there are too few
  Job all = job(2, script);
  all.share_cores = true;
  EXPECT_EQ(run(all).status, 0);
  EXPECT_EQ(text("0"), text("1"));
}

TEST_F(Supervise, SaysWhichRankFailedAndHow) {
  const Outcome o = run(job(3, "if [ $OVERTAKE_RANK = 1 ]; then echo first >&2; echo last >&2; exit 3; fi; " + kSleep));
  EXPECT_EQ(o.status, 3);
  EXPECT_TRUE(o.said.starts_with("launch: rank 1 ended with exit code 3; the job ends\nrank 1: first\nrank 1: last\n"))
      << o.said;
  EXPECT_FALSE(has_slept());
}

TEST_F(Supervise, SaysWhichSignalKilled) {
  const Outcome o = run(job(3, "if [ $OVERTAKE_RANK = 2 ]; then kill -KILL $$; fi; " + kSleep));
  EXPECT_EQ(o.status, 128 + SIGKILL);
  EXPECT_TRUE(o.said.starts_with("launch: rank 2 was killed by SIGKILL (by someone, or because memory ran out: see "))
      << o.said;
  EXPECT_FALSE(has_slept());
  EXPECT_EQ(run(job(1, "kill -SEGV $$")).status, 128 + SIGSEGV);
}

// Ranks that end because another did are not at fault, even if they end before it.
TEST_F(Supervise, BlamesTheOneThatFailedByItself) {
  const std::string lost = "echo rank 1: gone >&2; exit 75; ";
  const Outcome killed = run(job(3, "[ $OVERTAKE_RANK = 1 ] && sleep 0.1 && kill -KILL $$; exit 4"));
  EXPECT_EQ(killed.status, 128 + SIGKILL);
  const Outcome failed = run(job(3, "[ $OVERTAKE_RANK = 1 ] && sleep 0.8 && exit 4; " + lost));
  EXPECT_EQ(failed.status, 4);
  EXPECT_TRUE(says(failed.said, {"rank 1 ended with exit code 4", "rank 2: rank 1: gone"}));
  const Outcome stalled = run(job(3, "[ $OVERTAKE_RANK = 1 ] && " + kSleep + "; " + lost));
  EXPECT_EQ(stalled.status, 75);
  EXPECT_TRUE(says(stalled.said, {"rank 2: rank 1: gone"}));
  EXPECT_FALSE(has_slept());
}

TEST_F(Supervise, KillsWhoeverDoesNotLeave) {
  Job stubborn = job(3,
                     "echo $$ >$F/$OVERTAKE_RANK; [ $OVERTAKE_RANK = 0 ] && sleep 0.3 && exit 5; "
                     "trap 'echo >$F/asked$OVERTAKE_RANK' TERM; while :; do sleep 0.1; done");
  stubborn.fail_time = 1s;
  const Outcome o = run(stubborn);
  EXPECT_EQ(o.status, 5);
  for (const char* asked : {"asked1", "asked2"}) EXPECT_EQ(text(asked), "\n") << "before it was killed";
  for (const char* rank : {"1", "2"}) EXPECT_FALSE(is_alive(rank));
}

// By a batch system, say: the others know of it and may take their time.
TEST_F(Supervise, WaitsForOthersWhenOneWasAskedToStop) {
  Job two = job(2, "test $OVERTAKE_RANK = 1 && exit 130; trap '' INT; sleep 0.7; echo saved >$F/saved; exit 130");
  two.fail_time = 100ms;
  const Outcome o = run(two);
  EXPECT_EQ(o.status, 130);
  EXPECT_NE(o.said.find("rank 1 was asked to stop"), std::string::npos) << o.said;
  EXPECT_EQ(text("saved"), "saved\n");
}

// Ctrl-C before all can save: one goes at once, and another loses it.
TEST_F(Supervise, WhoLosesOneThatLeftIsNotBlamed) {
  const Outcome o = run(job(2,
                            "test $OVERTAKE_RANK = 1 && exec sleep 20; trap 'sleep 0.2; exit 75' INT; sleep 0.3; "
                            "kill -INT $PPID; sleep 20"));
  EXPECT_EQ(o.status, 130) << o.said;
  EXPECT_EQ(o.said.find("the job ends"), std::string::npos) << o.said;
}

TEST_F(Supervise, KillsTheLastOneIfItIsStopped) {
  Job two = job(2, "test $OVERTAKE_RANK = 1 && kill -STOP $$; exit 0");
  two.fail_time = 300ms;
  const Outcome o = run(two);
  EXPECT_EQ(o.status, 128 + SIGKILL);
  EXPECT_NE(o.said.find("rank 1 is stopped, and all others have ended"), std::string::npos) << o.said;
  // One that goes on in time is left alone.
  two = job(2, "test $OVERTAKE_RANK = 1 && { (sleep 0.3; kill -CONT $$) & kill -STOP $$; }; exit 0");
  EXPECT_EQ(run(two).status, 0);
}

TEST_F(Supervise, LetsWorkersCleanUp) {
  const Outcome o = run(job(2,
                            "[ $OVERTAKE_RANK = 0 ] && sleep 0.3 && exit 5; "
                            "trap 'echo saved >$F/saved; exit 1' TERM; while :; do sleep 0.1; done"));
  EXPECT_EQ(o.status, 5);
  EXPECT_EQ(text("saved"), "saved\n");
}

// What workers start goes with them: those that end well, and those that are ended.
TEST_F(Supervise, LeavesNoProcessOfWorkersBehind) {
  EXPECT_EQ(run(job(2, "sleep 60 & echo $! >$F/$OVERTAKE_RANK")).status, 0);
  for (const char* rank : {"0", "1"}) EXPECT_FALSE(is_alive(rank));
  EXPECT_EQ(
      run(job(2, "sleep 60 & echo $! >$F/$OVERTAKE_RANK; sleep 0.2; [ $OVERTAKE_RANK = 0 ] && exit 9; wait")).status,
      9);
  for (const char* rank : {"0", "1"}) EXPECT_FALSE(is_alive(rank));
}

TEST_F(Supervise, KeepsTheEndOfALongStory) {
  const Outcome o = run(job(2,
                            "[ $OVERTAKE_RANK = 0 ] && { sleep 60; }; "
                            "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done >&2; exit 3"));
  EXPECT_EQ(o.status, 3);
  EXPECT_TRUE(says(o.said, {"rank 1: line 19980\n", "rank 1: line 19999\n"}));
  EXPECT_EQ(o.said.find("line 19979\n"), std::string::npos);
}

TEST_F(Supervise, ProgramThatIsNotThere) {
  Job none = job(2, "");
  none.command = {"/no/such/program"};
  EXPECT_TRUE(
      says(user_error([&] { run(none); }), {"cannot start /no/such/program", "No such file", "name a program"}));
}

TEST(LastLines, AreThoseATerminalWouldShow) {
  LastLines lines(3, 8);
  lines.add("one\ntwo\n\nstep 1\rstep 2");
  EXPECT_EQ(lines.lines(), (std::deque<std::string>{"one", "two", "step 2"}));
  lines.add("\rstep 3\nlonger than eight\r\n");
  EXPECT_EQ(lines.lines(), (std::deque<std::string>{"two", "step 3", "longer t"}));
}

}  // namespace
}  // namespace overtake
