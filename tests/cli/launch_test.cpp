// `overtake launch`, as a user sees it and as a user interrupts it.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "command.h"

namespace overtake::tests {
namespace {

using namespace std::chrono_literals;

// Runs until it is killed.
const std::vector<std::string> kEndless = {"bench", "cnn",         "--set",    "width=4", "--batch",
                                           "4",     "--schedules", "in-order", "--steps", "1000000"};
// Runs until it is asked to stop, and then saves.
const std::vector<std::string> kTraining = {"train",  "cnn",          "--set",      "width=4",  "--batch", "4",
                                            "--data", "synthetic:64", "--schedule", "in-order", "--steps", "100000000"};

// What has not come by then hangs. No limit of speed: a busy machine may take its time.
constexpr std::chrono::seconds kHangs = 180s;

bool wait_until(const std::function<bool()>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + kHangs;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

// `overtake launch` of workers that do not end by themselves.
class EndlessLaunch {
 public:
  EndlessLaunch(int workers, const std::vector<std::string>& options = {},
                const std::vector<std::string>& command = kEndless) {
    std::vector<std::string> arguments = {"overtake", "launch", "-n", std::to_string(workers)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.push_back("--");
    arguments.insert(arguments.end(), command.begin(), command.end());
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    const std::string out = folder_ / "out", err = folder_ / "err", temporary = folder_ / "tmp";
    std::filesystem::create_directory(temporary);
    std::fflush(nullptr);
    id_ = fork();
    if (id_ == 0) {
      if (freopen(out.c_str(), "w", stdout) == nullptr || freopen(err.c_str(), "w", stderr) == nullptr) _exit(127);
      setenv("TMPDIR", temporary.c_str(), 1);
      setpgid(0, 0);
      execv(OVERTAKE_BINARY, argv.data());
      _exit(127);
    }
    // All of them are there, and at work.
    EXPECT_TRUE(wait_until([&] { return this->workers().size() == static_cast<std::size_t>(workers); })) << said();
    std::this_thread::sleep_for(300ms);
    workers_ = this->workers();
  }
  ~EndlessLaunch() {
    if (id_ > 0) {
      kill(id_, SIGKILL);
      waitpid(id_, nullptr, 0);
    }
  }
  EndlessLaunch(const EndlessLaunch&) = delete;
  EndlessLaunch& operator=(const EndlessLaunch&) = delete;

  // The launcher's children, in the order of ranks.
  std::vector<pid_t> workers() const {
    std::istringstream in(read_text("/proc/" + std::to_string(id_) + "/task/" + std::to_string(id_) + "/children"));
    std::vector<pid_t> out;
    for (pid_t id; in >> id;) out.push_back(id);
    return out;
  }
  void send_signal_to(std::size_t rank, int signal) {
    const pid_t id = workers_.at(rank);
    kill(id, signal);
    // What comes after a stop must find it stopped.
    EXPECT_TRUE(signal != SIGSTOP || wait_until([&] { return state_of(id) == 'T'; }));
  }
  void send_signal(int signal) { kill(id_, signal); }
  void send_signal_to_group(int signal) { kill(-id_, signal); }  // as a terminal does
  void wait_for_steps() const {
    EXPECT_TRUE(wait_until([&] { return said().find("\nstep ") != std::string::npos; })) << said();
  }
  std::string said() const { return read_text(folder_ / "err"); }
  std::size_t temporary_files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_ / "tmp"), {}));
  }
  // Another launcher, with the same folder for temporary files.
  int run_another() const {
    return std::system(
        fmt::format("TMPDIR={} {} launch -n 1 -- models >/dev/null", folder_ / "tmp", OVERTAKE_BINARY).c_str());
  }

  // The exit code, of a launcher that leaves nobody and nothing behind.
  int join() {
    int status = 0;
    if (!wait_until([&] { return waitpid(id_, &status, WNOHANG) == id_; })) {
      ADD_FAILURE() << "the launcher hangs: " << said();
      return -1;
    }
    id_ = 0;
    EXPECT_TRUE(wait_until([&] { return !any_worker(); })) << "a worker outlived its launcher";
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  // R, S, T and so on; Z where it only waits for whoever adopted it.
  static char state_of(pid_t id) {
    const std::string text = read_text("/proc/" + std::to_string(id) + "/stat");
    const std::size_t at = text.rfind(") ");
    return at == std::string::npos ? 'Z' : text[at + 2];
  }
  bool any_worker() const {
    return std::any_of(workers_.begin(), workers_.end(), [](pid_t id) { return state_of(id) != 'Z'; });
  }
  const ScratchFolder folder_;
  pid_t id_ = -1;
  std::vector<pid_t> workers_;
};

TEST(Launch, IsHeardAsRankZero) {
  const CommandResult alone = overtake("models --json");
  for (const char* launch : {"launch -n 3 -- ", "launch -n 3 "}) {
    const CommandResult r = overtake(std::string(launch) + "models --json");
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_EQ(r.out, alone.out);
    EXPECT_EQ(r.err, "");
  }
}

TEST(Launch, ClaimsAPlaceToMeet) {
  const ScratchFolder folder;
  const std::string place = folder / "jobs";
  const CommandResult r = overtake("launch -n 2 --store " + place + " -- models");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_TRUE(std::filesystem::is_empty(place));  // what was made for this run is gone
  const CommandResult named = overtake("launch -n 2 --job a --store " + place + " -- models");
  EXPECT_EQ(named.exit_code, 0) << named.err;
  const CommandResult again = overtake("launch -n 2 --job a --store " + place + " -- models");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.err.find("--job a: was started before, from rank 0 on, by process "), std::string::npos) << again.err;
}

TEST(Launch, ExitsAsTheWorkerThatFailed) {
  const CommandResult r = overtake("launch -n 2 -- models resnet-51");
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_NE(r.err.find("ended with exit code 2; the job ends"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("overtake: model 'resnet-51': no such network"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("rank 1: overtake: model 'resnet-51': no such network"), std::string::npos) << r.err;
}

TEST(Launch, WrongUseIsAUserError) {
  const struct {
    std::string arguments;
    std::vector<std::string> words;
  } table[] = {
      {"launch -n 0 -- train cnn", {"--workers", "0", "1 to 1024"}},
      {"launch -n two -- train cnn", {"two"}},
      {"launch -- train cnn", {"--workers"}},
      {"launch -n 2", {"nothing to run", "overtake launch -n 2 -- train"}},
      {"launch -n 2 --", {"nothing to run"}},
      {"launch -n 2 --frob -- train cnn", {"--frob", "no such option"}},
      {"launch -n 2 -- launch -n 2 -- train cnn", {"cannot launch"}},
      {"launch -n 2 --store /proc/none -- train cnn", {"/proc/none", "cannot make", "all ranks can write"}},
      {"launch -n 2 --store http://h -- train cnn", {"http://h", "etcd://"}},
      {"launch -n 2 --store etcd://h:x -- train cnn", {"'h:x'", "etcd://HOST:PORT"}},
      {"launch -n 2 --store etcd://127.0.0.1:1 -- train cnn", {"etcd at 127.0.0.1:1: "}},
      {"launch -n 2 --job a/b -- train cnn", {"--job a/b", "without '/'"}},
      {"launch -n 2 --first-rank 2 -- train cnn", {"--first-rank 2", "--size"}},
      {"launch -n 2 --size 3 --first-rank 2 -- train cnn", {"--size 3", "ranks 2 to 3"}},
      {"launch -n 2 --size 4 -- train cnn", {"--size 4", "--store"}},
      {"launch -n 2 --size 4 --store s -- train cnn", {"--size 4", "--job"}},
      {"launch -n 2 --size 4 --store s --job j -- train cnn", {"--size 4", "--address"}},
  };
  for (const auto& row : table) {
    const CommandResult r = overtake(row.arguments);
    EXPECT_EQ(r.exit_code, 2) << row.arguments << "\n" << r.err;
    EXPECT_TRUE(r.err.starts_with("overtake: ")) << r.err;
    for (const std::string& word : row.words)
      EXPECT_NE(r.err.find(word), std::string::npos) << "no '" << word << "' in: " << r.err;
  }
}

TEST(Launch, EndsWhenAWorkerIsKilled) {
  EndlessLaunch launch(3);
  launch.send_signal_to(1, SIGKILL);
  EXPECT_EQ(launch.join(), 128 + SIGKILL);
  EXPECT_NE(launch.said().find("launch: rank 1 was killed by SIGKILL"), std::string::npos) << launch.said();
  EXPECT_EQ(launch.temporary_files(), 0u);
}

TEST(Launch, EndsWorkersThatAreStopped) {
  EndlessLaunch launch(2);
  launch.send_signal_to(1, SIGSTOP);
  launch.send_signal_to(0, SIGKILL);
  EXPECT_EQ(launch.join(), 128 + SIGKILL);
}

TEST(Launch, KilledLeavesNobody) {
  EndlessLaunch launch(3);
  launch.send_signal(SIGKILL);
  EXPECT_EQ(launch.join(), 128 + SIGKILL);
  EXPECT_EQ(launch.temporary_files(), 1u);  // until the next one comes
  EXPECT_EQ(launch.run_another(), 0);
  EXPECT_EQ(launch.temporary_files(), 0u);
}

TEST(Launch, AskedToEndLetsWorkersSave) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const ScratchFolder folder;
    std::vector<std::string> command = kTraining;
    command.insert(command.end(), {"--save", folder / "run"});
    EndlessLaunch launch(1, {}, command);
    EXPECT_TRUE(wait_until([&] { return launch.said().find("step ") != std::string::npos; })) << launch.said();
    launch.send_signal(signal);
    EXPECT_EQ(launch.join(), 128 + signal);
    EXPECT_NE(launch.said().find("stopped after step "), std::string::npos) << launch.said();
    EXPECT_TRUE(std::filesystem::exists(folder / "run.json")) << launch.said();
    EXPECT_EQ(launch.temporary_files(), 0u);
  }
}

// Training by several processes that is interrupted goes on elsewhere as if it had not been.
TEST(Launch, InterruptedRanksSaveTogether) {
  const std::string options = "lenet --batch 16 --data synthetic:64 --seed 3 --parts 2 ";
  for (const bool is_whole_group : {false, true}) {
    const ScratchFolder folder;
    EndlessLaunch launch(4, {}, {"train",   "lenet",     "--batch",         "16",          "--data",   "synthetic:64",
                                 "--seed",  "3",         "--parts",         "2",           "--dp",     "2",
                                 "--pp",    "2",         "--micro-batches", "2",           "--reduce", "by-layer",
                                 "--steps", "100000000", "--save",          folder / "run"});
    launch.wait_for_steps();
    is_whole_group ? launch.send_signal_to_group(SIGINT) : launch.send_signal(SIGINT);
    EXPECT_EQ(launch.join(), 128 + SIGINT);
    EXPECT_NE(launch.said().find("stopped after step "), std::string::npos) << launch.said();
    EXPECT_EQ(launch.temporary_files(), 0u);
    const auto step = nlohmann::json::parse(read_text(folder / "run.json")).at("step").get<int>();
    const std::string rest =
        fmt::format("train {}--json --micro-batches 4 --gradient-groups 2 --steps {} ", options, step + 3);
    const CommandResult resumed = overtake(rest + "--resume " + (folder / "run"));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(resumed.json().at("weights_hash"), overtake(rest).json().at("weights_hash")) << "from step " << step;
  }
}

// One rank is asked alone, by a batch system for example: all stop after the same step.
TEST(Launch, OneRankThatIsAskedToStopStopsAll) {
  const ScratchFolder folder;
  EndlessLaunch launch(2, {},
                       {"train", "lenet", "--batch", "16", "--data", "synthetic:64", "--dp", "2", "--steps",
                        "100000000", "--save", folder / "run"});
  launch.wait_for_steps();
  launch.send_signal_to(1, SIGTERM);
  EXPECT_EQ(launch.join(), 130);
  EXPECT_NE(launch.said().find("stopped after step "), std::string::npos) << launch.said();
  EXPECT_TRUE(std::filesystem::exists(folder / "run.json"));
}

// The time-out is longer than any that is not stopped is kept from running by a busy machine.
TEST(Launch, AllNameTheRankThatStalls) {
  EndlessLaunch launch(4, {},
                       {"train", "lenet", "--batch", "16", "--data", "synthetic:64", "--dp", "2", "--pp", "2",
                        "--micro-batches", "2", "--reduce", "by-layer", "--steps", "100000000", "--time-out", "10"});
  launch.wait_for_steps();
  launch.send_signal_to(2, SIGSTOP);
  EXPECT_EQ(launch.join(), 75);
  for (const char* who : {"\novertake: ", "rank 1: overtake: ", "rank 3: overtake: "})
    EXPECT_NE(launch.said().find(std::string(who) + "rank 2: "), std::string::npos) << launch.said();
}

// Rank 0 searches for longer than the time-out, and the others hear that it is alive; until their patience ends.
TEST(Launch, PlanningIsNoSilence) {
  const std::string train =
      "launch -n 2 -- train lenet --batch 16 --data synthetic:64 --steps 2 --pp 2 --micro-batches 4 --pipeline search ";
  const CommandResult r = overtake(train + "--search-tries 6000000 --time-out 10");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const CommandResult hasty = overtake(train + "--search-tries 1000000000000 --patience 8");
  EXPECT_EQ(hasty.exit_code, 75) << hasty.err;
  EXPECT_NE(hasty.err.find("rank 0: rank 1 waited 8 s for broadcast"), std::string::npos) << hasty.err;
  EXPECT_NE(hasty.err.find("it is alive"), std::string::npos) << hasty.err;
}

// nohup does so.
TEST(Launch, GoesOnWhereHangUpsAreIgnored) {
  const auto before = signal(SIGHUP, SIG_IGN);
  EndlessLaunch launch(2);
  signal(SIGHUP, before);
  launch.send_signal(SIGHUP);
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(launch.workers().size(), 2u);
  EXPECT_EQ(launch.said(), "");
}

TEST(Launch, SecondInterruptKills) {
  EndlessLaunch launch(2);
  launch.send_signal_to(1, SIGSTOP);  // so it does not leave
  launch.send_signal(SIGINT);
  EXPECT_TRUE(wait_until([&] { return launch.said().find("again to kill") != std::string::npos; }));
  std::this_thread::sleep_for(200ms);
  launch.send_signal(SIGINT);
  EXPECT_EQ(launch.join(), 128 + SIGINT);
}

TEST(Launch, KillsWorkersThatDoNotLeave) {
  EndlessLaunch launch(2, {"--leave-seconds", "0.5"});
  launch.send_signal_to(1, SIGSTOP);
  launch.send_signal(SIGTERM);
  EXPECT_EQ(launch.join(), 128 + SIGTERM);
  EXPECT_NE(launch.said().find("rank 1 did not leave; it is killed"), std::string::npos) << launch.said();
}

// Several processes come to the weights of one.
TEST(Launch, TrainsToTheSameWeights) {
  const std::string train = "train lenet --batch 16 --data synthetic:64 --steps 3 --seed 3 --parts 2 --json ";
  const auto one = overtake(train + "--micro-batches 4").json();
  for (const char* flags : {"-n 2 -- ", "-n 4 -- "}) {
    const bool is_pair = std::string(flags) == "-n 2 -- ";
    const CommandResult r =
        overtake("launch " + (flags + train) +
                 (is_pair ? "--pp 2 --micro-batches 4 --pipeline zb-h1" : "--dp 4 --reduce by-layer"));
    ASSERT_EQ(r.exit_code, 0) << r.err;
    EXPECT_EQ(r.json().at("weights_hash"), one.at("weights_hash"));
    EXPECT_NEAR(r.json().at("loss").get<double>(), one.at("loss").get<double>(), 1e-5);
    EXPECT_NEAR(r.json().at("test_loss").get<double>(), one.at("test_loss").get<double>(), 1e-5);
  }
}

TEST(Launch, ClipsTheGradientsOfAllProcesses) {
  const std::string train = "train lenet --batch 16 --data synthetic:64 --steps 3 --seed 3 --parts 2 --json ";
  const std::string alone = train + "--micro-batches 4 --gradient-groups 2 ", clip = "--clip-norm 0.2 ";
  const auto hash = overtake(alone + clip).json().at("weights_hash");
  EXPECT_NE(hash, overtake(alone).json().at("weights_hash"));
  const CommandResult r =
      overtake("launch -n 4 -- " + train + clip + "--dp 2 --pp 2 --micro-batches 2 --reduce scatter-gather");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.json().at("weights_hash"), hash);
}

TEST(Launch, SynchronisesBatchNorms) {
  const std::string train =
      "train cnn --set width=4 --batch 16 --data synthetic:64 --steps 3 --seed 3 --parts 2 --json ";
  const CommandResult one = overtake(train + "--schedule in-order");
  const CommandResult r = overtake("launch -n 2 -- " + train + "--dp 2 --sync-batch-norm");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.json().at("weights_hash"), overtake(train + "--dp 2 --sync-batch-norm").json().at("weights_hash"));
  // As one batch that is not cut, but for rounding.
  for (const char* loss : {"loss", "test_loss"})
    EXPECT_NEAR(r.json().at(loss).get<double>(), one.json().at(loss).get<double>(), 1e-3) << loss;
}

TEST(Launch, GoesOnWithFewerProcesses) {
  const ScratchFolder folder;
  const std::string train = "train lenet --batch 16 --data synthetic:64 --seed 3 --parts 2 --json ";
  const auto whole = overtake(train + "--micro-batches 4 --steps 6").json();
  const std::string save = folder / "run";
  const CommandResult first = overtake("launch -n 4 -- " + train + "--dp 4 --steps 3 --save " + save);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const CommandResult rest =
      overtake("launch -n 2 -- " + train + "--pp 2 --micro-batches 4 --steps 6 --resume " + save);
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(rest.json().at("weights_hash"), whole.at("weights_hash"));
}

// Without a word about its layout or anything else; only rank 0 reads the checkpoint, and the others hear of it.
TEST(Launch, GoesOnAsItWas) {
  const ScratchFolder folder;
  const std::string train = "train lenet --batch 16 --data synthetic:64 --seed 3 --parts 2 --lr 0.05 --json ";
  const std::string save = folder / "run";
  ASSERT_EQ(overtake("launch -n 2 -- " + train + "--dp 2 --steps 3 --save " + save).exit_code, 0);
  const CommandResult rest = overtake("launch -n 2 -- train --json --steps 6 --resume " + save);
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(rest.json().at("weights_hash"), overtake(train + "--dp 2 --steps 6").json().at("weights_hash"));
  const CommandResult over = overtake("launch -n 2 -- train --json --resume " + save);
  ASSERT_EQ(over.exit_code, 0) << over.err;
  EXPECT_NE(over.err.find("finished at step 6"), std::string::npos) << over.err;
  EXPECT_EQ(over.json().at("weights_hash"), rest.json().at("weights_hash"));
}

// The number of layers is found, said on stderr with what was predicted and measured, and changes nothing else.
TEST(Launch, ChoosesAndPredicts) {
  const std::string train = "train lenet --batch 16 --data synthetic:64 --steps 3 --seed 3 --parts 2 --json --dp 2 ";
  const CommandResult found = overtake("launch -n 2 -- " + train + "--reduce first-k --predict");
  ASSERT_EQ(found.exit_code, 0) << found.err;
  for (const char* word : {"the link moves", "predicted", "measured", "by-layer", "  chosen"})
    EXPECT_NE(found.err.find(word), std::string::npos) << "no '" << word << "' in: " << found.err;
  const auto json = found.json();
  EXPECT_EQ(json.at("reduce"), "first-k");
  const auto k = json.at("first_k").get<int>();
  EXPECT_GE(k, 0);
  EXPECT_GT(json.at("predicted_ms").get<double>(), 0);
  EXPECT_GT(json.at("step_ms").get<double>(), 0);
  ASSERT_EQ(json.at("predicted_idle").size(), 2u);
  for (const auto& idle : json.at("predicted_idle")) {
    EXPECT_GE(idle.get<double>(), 0);
    EXPECT_LT(idle.get<double>(), 1);
  }
  const CommandResult given = overtake("launch -n 2 -- " + train + "--reduce first-k --first-k " + std::to_string(k));
  ASSERT_EQ(given.exit_code, 0) << given.err;
  EXPECT_EQ(given.json().at("weights_hash"), json.at("weights_hash"));
  EXPECT_EQ(given.json().at("loss"), json.at("loss"));
  EXPECT_FALSE(given.json().contains("predicted_ms"));
}

// One process does what all devices would, one after the other: the prediction is the sum.
TEST(Launch, PredictsOneProcessAsWell) {
  const std::string train = "train lenet --batch 32 --data synthetic:64 --steps 8 --json --predict --threads 1 ";
  const auto one = overtake(train + "--micro-batches 2").json(), two = overtake(train + "--dp 2").json();
  EXPECT_GT(one.at("predicted_ms").get<double>(), 0);
  EXPECT_GT(two.at("predicted_ms").get<double>(), 0);
  // One device does everything and waits for nobody.
  for (const auto* run : {&one, &two}) {
    ASSERT_EQ(run->at("predicted_idle").size(), 1u) << *run;
    EXPECT_NEAR(run->at("predicted_idle")[0].get<double>(), 0, 0.01) << *run;
  }
  const auto alone = overtake(train + "--schedule in-order").json();  // measures nothing, so it predicts nothing
  EXPECT_TRUE(alone.at("predicted_ms").is_null());
  const CommandResult text = overtake("train lenet --batch 32 --data synthetic:64 --steps 4 --predict --dp 2");
  EXPECT_NE(text.out.find("predicted      "), std::string::npos) << text.out;
}

TEST(Launch, RefusesAnotherNumberOfProcesses) {
  const CommandResult r = overtake("launch -n 2 -- train lenet --data synthetic:64 --batch 12 --dp 3");
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_NE(r.err.find("that is 3 processes, but the job has 2"), std::string::npos) << r.err;
}

// Processes with a GPU each: where there are none for them, one says so and the job ends.
TEST(Launch, GpusThatAreNotThere) {
  const std::string train = "launch -n 9 -- train lenet --data synthetic:64 --batch 18 --dp 9 --device cuda ";
  const CommandResult r = overtake(train);
  EXPECT_EQ(r.exit_code, 2) << r.err;
  EXPECT_NE(r.err.find("--device cuda"), std::string::npos) << r.err;
  const CommandResult split = overtake(train + "--virtual-gpus 9");
  EXPECT_EQ(split.exit_code, 2) << split.err;
  EXPECT_NE(split.err.find("every one has a GPU of its own"), std::string::npos) << split.err;
  const CommandResult null = overtake("launch -n 2 -- train lenet --data synthetic:64 --batch 12 --dp 2 --device null");
  EXPECT_EQ(null.exit_code, 2) << null.err;
  EXPECT_NE(null.err.find("CPUs or GPUs"), std::string::npos) << null.err;
}

TEST(Launch, RefusesFlagsThatWouldDoNothing) {
  for (const char* reduce : {"first-k", "auto"}) {
    const CommandResult one =
        overtake("train lenet --data synthetic:64 --batch 12 --pp 2 --reduce " + std::string(reduce));
    EXPECT_EQ(one.exit_code, 2);
    EXPECT_NE(one.err.find("one replica has nothing to bring together"), std::string::npos) << one.err;
  }
  const CommandResult unknown = overtake("train lenet --data synthetic:64 --batch 12 --dp 2 --reduce first");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("--reduce first: it must be one of buckets, by-layer, scatter-gather, first-k, auto"),
            std::string::npos)
      << unknown.err;
  const CommandResult alone = overtake("train lenet --data synthetic:64 --batch 12 --dp 2 --first-k 3");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_NE(alone.err.find("--first-k 3: it is for --reduce first-k"), std::string::npos) << alone.err;
  const CommandResult lonely = overtake("train resnet-18 --data synthetic:64 --sync-batch-norm");
  EXPECT_EQ(lonely.exit_code, 2);
  EXPECT_NE(lonely.err.find("--sync-batch-norm: it is over replicas"), std::string::npos) << lonely.err;
  const CommandResult none = overtake("train lenet --data synthetic:64 --batch 12 --dp 2 --sync-batch-norm");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("--sync-batch-norm: lenet has no batch norm"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace overtake::tests
