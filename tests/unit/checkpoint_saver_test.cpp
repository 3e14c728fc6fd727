#include "train/checkpoint_saver.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/file.h"
#include "checkpoint_case.h"
#include "limited_files.h"
#include "temporary_folder.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;

std::vector<std::uint64_t> steps_on_disk(const fs::path& path) {
  std::vector<std::uint64_t> steps;
  for (const Generation& g : generations_beside(path.string() + ".json")) steps.push_back(g.step);
  return steps;
}

fs::path generation_at(const fs::path& path, std::uint64_t step) {
  for (const Generation& g : generations_beside(path.string() + ".json"))
    if (g.step == step) return path.parent_path() / g.file();
  ADD_FAILURE() << "no generation of step " << step;
  return {};
}

std::string saver_error(const fs::path& path, const SaverOptions& options = {}) {
  return user_error([&] { CheckpointSaver(path, options); });
}

using Steps = std::vector<std::uint64_t>;

TEST(CheckpointSaver, PathsKeepDotsAndNeedAName) {
  EXPECT_EQ(checkpoint_json_path("runs/v1.5"), "runs/v1.5.json");
  EXPECT_EQ(checkpoint_json_path("runs/a.json"), "runs/a.json");
  EXPECT_EQ(checkpoint_json_path("a"), "./a.json");
  for (const char* path : {"", "runs/", ".", "runs/..", "runs/.json"}) {
    EXPECT_TRUE(says(user_error([&] { checkpoint_json_path(path); }), {"a checkpoint needs a name", "runs/lenet"}));
  }
}

TEST(CheckpointSaver, GenerationsHaveTheirNames) {
  const Generation g{.name = "a-7", .step = 12, .checksum = "0123456789abcdef"};
  EXPECT_EQ(g.file(), "a-7-12-0123456789abcdef.safetensors");
  EXPECT_EQ(generation_of(g.file()), g);
  for (const char* file : {"a.safetensors", "a-12.safetensors", "-12-0123456789abcdef.safetensors",
                           "a-012-0123456789abcdef.safetensors", "a-12-0123456789ABCDEF.safetensors",
                           "a-12-0123456789abcde.safetensors", "a-12-0123456789abcdef.safetensors.bak",
                           "a--0123456789abcdef.safetensors", "a-99999999999999999999-0123456789abcdef.safetensors"})
    EXPECT_FALSE(generation_of(file)) << file;
}

TEST(CheckpointSaver, NamesThatCouldNotBeReadBack) {
  const TemporaryFolder folder;
  EXPECT_TRUE(says(saver_error(folder.path() / "a\xff"), {"`save ", "not UTF-8"}));
  EXPECT_TRUE(says(saver_error(folder.path() / "a.safetensors"), {"`save ", ".safetensors"}));
  EXPECT_TRUE(says(saver_error(folder.path() / std::string(215, 'n')), {"`save ", "too long by ", "shorter"}));
  EXPECT_EQ(folder.file_count(), 0u);
  // The longest that is taken can be saved at any step.
  const std::string refused = saver_error(folder.path() / std::string(215, 'n'));
  const std::size_t too_long = std::stoul(refused.substr(refused.find("too long by ") + 12));
  const fs::path longest = folder.path() / std::string(215 - too_long, 'n');
  CheckpointSaver saver(longest, {});
  saver.save(state_of(1000));
  expect_state(load_checkpoint(longest), 1000);
  EXPECT_TRUE(says(saver_error(folder.path() / std::string(216 - too_long, 'n')), {"too long by 1 "}));
}

TEST(CheckpointSaver, PlacesThatCannotBeWritten) {
  const TemporaryFolder folder;
  { const CheckpointSaver saver(folder.path() / "new" / "folder" / "a", {}); }
  EXPECT_TRUE(fs::is_empty(folder.path() / "new" / "folder")) << "nothing was saved";
  const fs::path file = folder.write("file", "");
  EXPECT_TRUE(says(saver_error(file / "a"), {"cannot create the folder"}));
  EXPECT_TRUE(says(saver_error("/proc/a"), {"/proc/a"}));
}

TEST(CheckpointSaver, RemovesOnlyItsOwn) {
  const TemporaryFolder folder;
  folder.write("a-7-0123456789abcdef.safetensors.partial-1-0", "left by a killed save");
  folder.write("a.json.partial-1-0", "left by a killed save");
  const std::vector<std::string> others = {
      "a.json.partial-notes",                              // a user's
      "a-weights.safetensors",                             // a user's
      "a-7.safetensors",                                   // a user's
      "a-7-0123456789abcdef.safetensors",                  // a user's, though it looks like one of ours
      "a-7-0123456789abcdef.safetensors.bak",              // a user's
      "a-7-0123456789abcdef.safetensors.partial-1-0.tar",  // a user's
      "ab-7-0123456789abcdef.safetensors",                 // of checkpoint ab
      "a-7-7-0123456789abcdef.safetensors",                // of checkpoint a-7
      "ab.json.partial-1-0"};                              // of checkpoint ab
  for (const std::string& name : others) folder.write(name, "of somebody else");
  fs::create_directory(folder.path() / "a-8-0123456789abcdef.safetensors");
  CheckpointSaver saver(folder.path() / "a", {});
  for (const std::uint64_t step : {1u, 2u, 2u, 3u}) saver.save(state_of(step));
  for (const std::string& name : others) EXPECT_EQ(read_file(folder.path() / name), "of somebody else");
  EXPECT_EQ(folder.file_count(), others.size() + 4) << "a.json, its tensors, the lock and a folder";
  expect_state(load_checkpoint(folder.path() / "a"), 3);
}

TEST(CheckpointSaver, KeepsGenerations) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  {
    CheckpointSaver saver(path, {.keep = 3});
    for (std::uint64_t step = 1; step <= 5; ++step) {
      saver.save(state_of(step));
      EXPECT_EQ(saver.newest(), step);
    }
    EXPECT_EQ(steps_on_disk(path), (Steps{3, 4, 5}));
    for (const std::uint64_t step : {3u, 4u, 5u}) expect_state(load_checkpoint(generation_at(path, step)), step);
  }
  expect_state(load_checkpoint(path), 5);
  {
    CheckpointSaver saver(path, {.keep = 4, .resume = path});
    saver.save(state_of(9));
    EXPECT_EQ(steps_on_disk(path), (Steps{3, 4, 5, 9}));
  }
  CheckpointSaver saver(path, {.resume = generation_at(path, 9)});
  saver.save(state_of(10));
  EXPECT_EQ(steps_on_disk(path), (Steps{10}));
}

// A save that is killed before it deletes leaves a generation more; a run that is over never saves again.
TEST(CheckpointSaver, GoesOnWithAsManyAsAreKept) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  {
    CheckpointSaver saver(path, {.keep = 4});
    for (std::uint64_t step = 1; step <= 4; ++step) saver.save(state_of(step));
  }
  const CheckpointSaver saver(path, {.keep = 3, .resume = path});
  EXPECT_EQ(steps_on_disk(path), (Steps{2, 3, 4}));
  expect_state(load_checkpoint(path), 4);
}

TEST(CheckpointSaver, AnotherRunsCheckpointStays) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a", other = folder.path() / "b";
  save_once(path, state_of(7));
  save_once(other, state_of(3));
  for (const fs::path& resume : {fs::path(), other, generation_at(other, 3)})
    EXPECT_TRUE(says(saver_error(path, {.resume = resume}), {"`save ", "there is a checkpoint", "`overwrite`"}));
  expect_state(load_checkpoint(path), 7);
  // Given up, it stays until there is something in its place.
  CheckpointSaver saver(path, {.keep = 5, .overwrite = true});
  EXPECT_FALSE(saver.newest());
  expect_state(load_checkpoint(path), 7);
  saver.save(state_of(2));
  EXPECT_EQ(steps_on_disk(path), (Steps{2})) << "generations of two runs never stand side by side";
  expect_state(load_checkpoint(path), 2);
  expect_state(load_checkpoint(other), 3);
}

TEST(CheckpointSaver, FilesWithoutTheirJsonAreACheckpointToo) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  save_once(path, state_of(7));
  fs::remove(folder.path() / "a.json");
  EXPECT_TRUE(says(saver_error(path), {"there is a checkpoint"}));
  CheckpointSaver saver(path, {.resume = generation_at(path, 7)});
  saver.save(state_of(8));
  expect_state(load_checkpoint(path), 8);
}

// Between the tensors and NAME.json of its first save.
TEST(CheckpointSaver, ARunKilledInItsFirstSaveCanStartAnew) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  save_once(path, state_of(7));
  fs::remove(folder.path() / "a.json");
  folder.write("a.overtake-lock", "process 1 on a host\n");
  CheckpointSaver saver(path, {});
  saver.save(state_of(3));
  EXPECT_EQ(steps_on_disk(path), (Steps{3}));
}

TEST(CheckpointSaver, TheNewestGenerationOnlyGrows) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  {
    CheckpointSaver saver(path, {.keep = 3});
    for (const std::uint64_t step : {1u, 2u, 3u}) saver.save(state_of(step));
    EXPECT_THROW(saver.save(state_of(2)), InternalError);
  }
  const fs::path first = generation_at(path, 1);
  EXPECT_TRUE(says(saver_error(path, {.resume = first}), {"at step 3 already", "from step 1", "`overwrite`"}));
  CheckpointSaver saver(path, {.keep = 3, .resume = first, .overwrite = true});
  EXPECT_EQ(steps_on_disk(path), (Steps{1, 2, 3}));
  saver.save(state_of(2, 10));
  EXPECT_EQ(steps_on_disk(path), (Steps{1, 2})) << "those that were given up are gone";
  expect_state(load_checkpoint(path), 2);
}

TEST(CheckpointSaver, OneProcessSavesUnderAName) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  fs::create_directory_symlink(folder.path(), folder.path() / "link");
  {
    const CheckpointSaver saver(path, {});
    for (const fs::path& same : {path, folder.path() / "a.json", folder.path() / "link" / "a"})
      EXPECT_TRUE(says(saver_error(same, {.overwrite = true}),
                       {"`save ", fmt::format("process {} on ", ::getpid()), "saves there already"}));
    const CheckpointSaver other(folder.path() / "b", {});
  }
  EXPECT_EQ(folder.file_count(), 1u) << "the locks are gone";
  folder.write("a.overtake-lock", "process 1 on a host that is long gone\n");
  { const CheckpointSaver saver(path, {}); }
  // A file that only has such a name.
  folder.write("a.overtake-lock", "a user's");
  EXPECT_TRUE(says(saver_error(path), {"a.overtake-lock", "no lock of Overtake's"}));
  EXPECT_EQ(read_file(folder.path() / "a.overtake-lock"), "a user's");
}

// The one before was killed, and the present one has not signed yet: nobody is named who is gone.
TEST(CheckpointSaver, NamesNoProcessThatIsGone) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const fs::path lock = folder.write("a.overtake-lock", fmt::format("process {} on {}\n", child, host));
  const int file = ::open(lock.c_str(), O_RDONLY);
  ASSERT_EQ(::flock(file, LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(says(saver_error(folder.path() / "a"), {"another process saves there already"}));
  ::close(file);
}

TEST(CheckpointSaver, WhatCannotBeWrittenCanBeTriedAgain) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  CheckpointSaver saver(path, {.keep = 2});
  const auto fails_at = [&](std::uint64_t step, std::size_t elements, rlim_t bytes) {
    const LimitedFiles limited(bytes);
    EXPECT_TRUE(says(user_error([&] { saver.save(state_of(step, elements)); }), {"cannot write: File too large"}));
  };
  fails_at(1, 1000, 3000);  // the tensors
  EXPECT_FALSE(saver.newest());
  EXPECT_EQ(folder.file_count(), 1u) << "the lock";
  saver.save(state_of(2));
  fails_at(3, 1000, 3000);
  EXPECT_EQ(saver.newest(), 2u);
  expect_state(load_checkpoint(path), 2);
  EXPECT_EQ(folder.file_count(), 3u);
  // The JSON file, which is larger than a checkpoint of next to nothing.
  CheckpointState state = state_of(4, 1);
  state.settings["filler"] = std::vector<int>(1000, 1);  // a line each
  {
    const LimitedFiles limited(5000);
    EXPECT_TRUE(says(user_error([&] { saver.save(state); }), {"a.json: cannot write: File too large"}));
  }
  EXPECT_EQ(saver.newest(), 2u);
  expect_state(load_checkpoint(path), 2);
  saver.save(state_of(5));
  EXPECT_EQ(steps_on_disk(path), (Steps{2, 5}));
  EXPECT_EQ(folder.file_count(), 4u) << "nothing of the saves that failed is left";
}

// A process that saves checkpoint after checkpoint, from step `first` on, until it is killed; gone with this object.
class SavingChild {
 public:
  SavingChild(const fs::path& path, std::uint64_t first, std::size_t elements, std::uint64_t keep = 1) {
    if (::pipe(reports_) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ < 0) throw std::runtime_error("no process");
    if (process_ == 0) {
      CheckpointSaver saver(path, {.keep = keep, .resume = path});
      for (std::uint64_t step = first;; ++step) {
        saver.save(state_of(step, elements));
        if (::write(reports_[1], &step, sizeof(step)) != sizeof(step)) ::_exit(1);
      }
    }
    ::close(reports_[1]);
  }
  ~SavingChild() {
    kill_now();
    ::close(reports_[0]);
  }
  SavingChild(const SavingChild&) = delete;
  SavingChild& operator=(const SavingChild&) = delete;

  void kill_now() {
    if (process_ < 0) return;
    int status = 0;
    ::kill(process_, SIGKILL);
    EXPECT_EQ(::waitpid(std::exchange(process_, -1), &status, 0) > 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0,
              SIGKILL)
        << "the child ended by itself";
  }

  // The last step that it had saved when it was killed; `none` when there is no such step.
  std::uint64_t last_reported(std::uint64_t none) const {
    std::uint64_t step = none;
    while (::read(reports_[0], &step, sizeof(step)) == sizeof(step)) {
    }
    return step;
  }

 private:
  int reports_[2];
  pid_t process_;
};

// Whatever the moment of the kill, the checkpoint is whole, its parts belong together and it is not older than the last
// one that the child reported as saved; and so is every older generation.
TEST(CheckpointSaver, SurvivesKillAtAnyMoment) {
  constexpr int kills = 40;
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  std::uint64_t step = 0;
  const auto begin = std::chrono::steady_clock::now();
  save_once(path, state_of(step, 20000));
  const std::chrono::duration<double> one_save = std::chrono::steady_clock::now() - begin;
  std::minstd_rand random(1);
  std::uniform_real_distribution<double> saves(0.1, 4);
  for (int i = 0; i < kills; ++i) {
    SavingChild child(path, step + 1, i % 2 == 0 ? 100 : 20000, /*keep=*/3);
    std::this_thread::sleep_for(one_save * saves(random));
    child.kill_now();
    const std::uint64_t reported = child.last_reported(step);
    const CheckpointState state = load_checkpoint(path);
    EXPECT_GE(state.step, reported);
    EXPECT_LE(state.step, reported + 1);
    expect_state(state, state.step);
    const std::vector<Generation> generations = generations_beside(path.string() + ".json");
    for (const Generation& g : generations) expect_state(load_checkpoint(folder.path() / g.file()), g.step);
    EXPECT_GE(generations.size(), std::min<std::uint64_t>(3, state.step + 1));
    EXPECT_LE(generations.size(), 6u) << "three, one that is to go, and two forms of one that NAME.json does not name";
    if (testing::Test::HasFailure()) return;
    step = state.step;
  }
  EXPECT_GT(step, 0u) << "the children did save meanwhile";
  save_once(path, state_of(step));
  EXPECT_EQ(folder.file_count(), 2u) << "what the killed saves left is gone";
}

// A reader beside a running trainer never sees a half.
TEST(CheckpointSaver, CanBeLoadedWhileAnotherProcessSaves) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  save_once(path, state_of(0));
  const SavingChild child(path, 1, 1000);
  std::uint64_t last = 0;
  for (int i = 0; i < 300; ++i) {
    const CheckpointState state = load_checkpoint(path);
    expect_state(state, state.step);
    EXPECT_GE(state.step, last);
    last = state.step;
  }
}

}  // namespace
}  // namespace overtake
