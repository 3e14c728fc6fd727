#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "overtake/zoo.h"
#include "temporary_folder.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Every value of every tensor and number is `step`, so parts of two checkpoints cannot pass for one.
CheckpointState state_of(std::uint64_t step, std::size_t elements = 1000) {
  CheckpointState state{.step = step,
                        .epoch = step / 10,
                        .batch = step % 10,
                        .seed = 0xFFFFFFFFFFFFFFFFull,
                        .loss = 0.1 + static_cast<double>(step),
                        .model = "lenet",
                        .model_settings = {{"classes", 10}},
                        .settings = {{"optimizer", "adam"}, {"step", step}}};
  const std::vector<float> values(elements, static_cast<float>(step));
  for (const char* name : {"conv1.weight", "conv1.weight/adam.m"}) {
    state.tensors.push_back(
        owning_tensor(name, StoredType::f32, {static_cast<std::int64_t>(elements)}, std::as_bytes(std::span(values))));
  }
  return state;
}

void expect_state(const CheckpointState& state, std::uint64_t step) {
  EXPECT_EQ(state.step, step);
  EXPECT_EQ(state.epoch, step / 10);
  EXPECT_EQ(state.batch, step % 10);
  EXPECT_EQ(state.seed, 0xFFFFFFFFFFFFFFFFull);
  EXPECT_EQ(state.loss, 0.1 + static_cast<double>(step)) << "to the last bit";
  EXPECT_EQ(state.model, "lenet");
  EXPECT_EQ(state.model_settings, json({{"classes", 10}}));
  EXPECT_EQ(state.settings["step"], step);
  ASSERT_EQ(state.tensors.size(), 2u);
  for (const NamedTensor& tensor : state.tensors) {
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    EXPECT_EQ(values, std::vector<float>(values.size(), static_cast<float>(step))) << tensor.name;
  }
}

// The only tensors file in the folder.
fs::path tensors_path(const TemporaryFolder& folder) {
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (entry.path().extension() == ".safetensors") return entry.path();
  }
  ADD_FAILURE() << "no tensors file";
  return {};
}

TEST(Checkpoint, LoadsWhatWasSavedUnderEitherPath) {
  const TemporaryFolder folder;
  save_checkpoint(folder.path() / "runs" / "lenet", state_of(12));
  expect_state(load_checkpoint(folder.path() / "runs" / "lenet"), 12);
  expect_state(load_checkpoint(folder.path() / "runs" / "lenet.json"), 12);
  save_checkpoint(folder.path() / "runs" / "lenet.json", state_of(13));
  expect_state(load_checkpoint(folder.path() / "runs" / "lenet"), 13);
}

TEST(Checkpoint, PathsKeepDotsAndNeedAName) {
  EXPECT_EQ(checkpoint_json_path("runs/v1.5"), "runs/v1.5.json");
  EXPECT_EQ(checkpoint_json_path("runs/a.json"), "runs/a.json");
  EXPECT_EQ(checkpoint_json_path("a"), "./a.json");
  for (const char* path : {"", "runs/", ".", "runs/..", "runs/.json"}) {
    EXPECT_TRUE(says(user_error([&] { checkpoint_json_path(path); }), {"a checkpoint needs a name", "runs/lenet"}));
  }
}

TEST(Checkpoint, KeepsOnePairAndNothingOfOthers) {
  const TemporaryFolder folder;
  folder.write("a-7-0123456789abcdef.safetensors.partial-1-0", "left by a killed save");
  folder.write("a-7-0123456789abcdef.safetensors", "of an older one");
  folder.write("a.json.partial-1-0", "left by a killed save");
  folder.write("a-weights.safetensors", "the user's");
  folder.write("a-7.safetensors", "the user's");
  folder.write("ab-7-0123456789abcdef.safetensors", "of checkpoint ab");
  folder.write("a-7-7-0123456789abcdef.safetensors", "of checkpoint a-7");
  for (const std::uint64_t step : {1u, 2u, 2u, 3u}) save_checkpoint(folder.path() / "a", state_of(step));
  EXPECT_EQ(folder.file_count(), 6u) << "a.json, its tensors and four that are not its own";
  expect_state(load_checkpoint(folder.path() / "a"), 3);
}

// Two saves of one step with different content must not share a tensors file: it would be replaced before the JSON is.
TEST(Checkpoint, TensorsFilesOfDifferentContentHaveDifferentNames) {
  const TemporaryFolder folder;
  CheckpointState state = state_of(5);
  save_checkpoint(folder.path() / "a", state);
  const fs::path first = tensors_path(folder);
  state.tensors.pop_back();
  save_checkpoint(folder.path() / "a", state);
  EXPECT_NE(tensors_path(folder), first);
}

TEST(Checkpoint, KeepsTheNetwork) {
  const TemporaryFolder folder;
  CheckpointState state = state_of(1);
  save_checkpoint(folder.path() / "a", state);
  EXPECT_FALSE(load_checkpoint(folder.path() / "a").network.has_value());
  state.network = build_model("lenet", ModelSettings::parse("batch=2"));
  save_checkpoint(folder.path() / "a", state);
  const CheckpointState loaded = load_checkpoint(folder.path() / "a");
  ASSERT_TRUE(loaded.network.has_value());
  EXPECT_EQ(save_json(*loaded.network), save_json(*state.network));
  EXPECT_EQ(loaded.tensors.size(), state.tensors.size()) << "it is none of the weights";
  // One that does not hold together.
  state.network->operands[0] = kNone;
  save_checkpoint(folder.path() / "a", state);
  const std::string said = user_error([&] { load_checkpoint(folder.path() / "a"); });
  EXPECT_TRUE(says(said, {"damaged", "network"}));
  EXPECT_EQ(said.find("report"), std::string::npos) << "it is no fault of the program's: " << said;
}

TEST(Checkpoint, LossMayBeMissing) {
  const TemporaryFolder folder;
  CheckpointState state = state_of(1);
  state.loss = std::nan("");
  save_checkpoint(folder.path() / "a", state);
  EXPECT_TRUE(std::isnan(load_checkpoint(folder.path() / "a").loss));
}

TEST(Checkpoint, WritableIsCheckedBeforehand) {
  const TemporaryFolder folder;
  check_checkpoint_writable(folder.path() / "new" / "a");
  EXPECT_TRUE(fs::is_empty(folder.path() / "new"));
  const fs::path file = folder.write("file", "");
  EXPECT_TRUE(says(user_error([&] { check_checkpoint_writable(file / "a"); }), {"cannot create the folder"}));
  EXPECT_TRUE(says(user_error([&] { save_checkpoint(file / "a", state_of(1)); }), {"cannot create the folder"}));
}

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() { save_checkpoint(path(), state_of(4)); }

  fs::path path() const { return folder_.path() / "a"; }
  std::string error() const {
    return user_error([&] { load_checkpoint(path()); });
  }
  // Saves the JSON again after `change`.
  void edit(const std::function<void(json&)>& change) const {
    json described = json::parse(read_file(folder_.path() / "a.json"));
    change(described);
    folder_.write("a.json", described.dump());
  }

  TemporaryFolder folder_;
};

TEST_F(DamagedCheckpoint, MissingJson) {
  fs::remove(folder_.path() / "a.json");
  EXPECT_TRUE(says(error(), {"a.json: no such checkpoint", "check the path"}));
}

TEST_F(DamagedCheckpoint, TruncatedJson) {
  const std::string whole = read_file(folder_.path() / "a.json");
  for (std::size_t size = 0; size + 1 < whole.size(); size += 7) {
    folder_.write("a.json", std::string_view(whole).substr(0, size));
    EXPECT_TRUE(says(error(), {"a.json: the checkpoint is damaged: it is not JSON", "another checkpoint"})) << size;
  }
}

TEST_F(DamagedCheckpoint, ForeignJson) {
  folder_.write("a.json", R"({"scripts": {}})");
  EXPECT_TRUE(says(error(), {"a.json: no checkpoint of Overtake's", "check the path"}));
  folder_.write("a.json", "[1, 2]");
  EXPECT_TRUE(says(error(), {"a.json: no checkpoint of Overtake's"}));
}

TEST_F(DamagedCheckpoint, NewerVersion) {
  edit([](json& described) { described["version"] = 99; });
  EXPECT_TRUE(says(error(), {"checkpoint version 99, this Overtake reads 1 and 2", "use the Overtake that wrote it"}));
}

TEST_F(DamagedCheckpoint, MissingOrMistypedEntry) {
  for (const char* key : {"step", "epoch", "batch", "seed", "loss", "model", "settings", "tensors"}) {
    save_checkpoint(path(), state_of(4));
    edit([&](json& described) { described.erase(key); });
    EXPECT_TRUE(says(error(), {"a.json: the checkpoint is damaged", key, "another checkpoint"}));
  }
  for (const char* key : {"step", "epoch", "batch", "seed"}) {
    for (const json& value : {json(-1), json(1.5), json("1")}) {
      save_checkpoint(path(), state_of(4));
      edit([&](json& described) { described[key] = value; });
      EXPECT_TRUE(says(error(), {"a.json: the checkpoint is damaged", key}));
    }
  }
}

TEST_F(DamagedCheckpoint, MissingTensors) {
  const fs::path tensors = tensors_path(folder_);
  fs::remove(tensors);
  EXPECT_TRUE(says(error(), {"a.json: its tensors file is missing", tensors.string(), "copy it beside"}));
}

TEST_F(DamagedCheckpoint, TruncatedTensors) {
  const fs::path tensors = tensors_path(folder_);
  fs::resize_file(tensors, fs::file_size(tensors) - 1);
  EXPECT_TRUE(says(error(), {tensors.string(), "tensor ", "damaged"}));
}

TEST_F(DamagedCheckpoint, OneBitOfTheTensorsChanged) {
  const fs::path tensors = tensors_path(folder_);
  std::string content = read_file(tensors);
  content.back() = static_cast<char>(content.back() ^ 1);
  folder_.write(tensors.filename().string(), content);
  EXPECT_TRUE(says(error(), {tensors.string(), "hash ", "a.json says ", "copy both files again"}));
}

TEST_F(DamagedCheckpoint, TensorsOfAnotherCheckpoint) {
  const fs::path tensors = tensors_path(folder_);
  const TemporaryFolder other;
  save_checkpoint(other.path() / "a", state_of(5));
  fs::copy_file(tensors_path(other), tensors, fs::copy_options::overwrite_existing);
  EXPECT_TRUE(says(error(), {"not of one checkpoint", "copy both files again"}));
}

TEST_F(DamagedCheckpoint, TensorsSomewhereElse) {
  edit([](json& described) { described["tensors"]["file"] = "../secret.safetensors"; });
  EXPECT_TRUE(says(error(), {"../secret.safetensors is not beside it"}));
}

TEST_F(DamagedCheckpoint, ForeignTensors) {
  folder_.write(tensors_path(folder_).filename().string(), "PK\x03\x04 this is a zip archive, not tensors");
  EXPECT_TRUE(says(error(), {"no safetensors file"}));
}

// A process that saves checkpoint after checkpoint, from step `first` on, until it is killed; gone with this object.
class SavingChild {
 public:
  SavingChild(const fs::path& path, std::uint64_t first, std::size_t elements) {
    if (::pipe(reports_) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ < 0) throw std::runtime_error("no process");
    if (process_ == 0) {
      for (std::uint64_t step = first;; ++step) {
        save_checkpoint(path, state_of(step, elements));
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
// one that the child reported as saved.
TEST(Checkpoint, SurvivesKillAtAnyMoment) {
  constexpr int kills = 100;
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  std::uint64_t step = 0;
  const auto begin = std::chrono::steady_clock::now();
  save_checkpoint(path, state_of(step, 20000));
  const std::chrono::duration<double> one_save = std::chrono::steady_clock::now() - begin;
  std::minstd_rand random(1);
  std::uniform_real_distribution<double> saves(0.1, 4);
  for (int i = 0; i < kills; ++i) {
    SavingChild child(path, step + 1, i % 2 == 0 ? 100 : 20000);
    std::this_thread::sleep_for(one_save * saves(random));
    child.kill_now();
    const std::uint64_t reported = child.last_reported(step);
    const CheckpointState state = load_checkpoint(path);
    EXPECT_GE(state.step, reported);
    EXPECT_LE(state.step, reported + 1);
    expect_state(state, state.step);
    if (HasFailure()) return;
    step = state.step;
  }
  EXPECT_GT(step, 0u) << "the children did save meanwhile";
  save_checkpoint(path, state_of(step));
  EXPECT_EQ(folder.file_count(), 2u) << "what the killed saves left is gone";
}

// A reader beside a running trainer never sees a half.
TEST(Checkpoint, CanBeLoadedWhileAnotherProcessSaves) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  save_checkpoint(path, state_of(0));
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
