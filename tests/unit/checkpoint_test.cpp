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
#include "checkpoint_case.h"
#include "overtake/zoo.h"
#include "temporary_folder.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

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
  save_once(folder.path() / "runs" / "lenet", state_of(12));
  expect_state(load_checkpoint(folder.path() / "runs" / "lenet"), 12);
  expect_state(load_checkpoint(folder.path() / "runs" / "lenet.json"), 12);
  save_once(folder.path() / "runs" / "lenet.json", state_of(13));
  expect_state(load_checkpoint(folder.path() / "runs" / "lenet"), 13);
}

// Two saves of one step with different content must not share a tensors file: it would be replaced before the JSON is.
TEST(Checkpoint, TensorsFilesOfDifferentContentHaveDifferentNames) {
  const TemporaryFolder folder;
  CheckpointState state = state_of(5);
  save_once(folder.path() / "a", state);
  const fs::path first = tensors_path(folder);
  state.tensors.pop_back();
  save_once(folder.path() / "a", state);
  EXPECT_NE(tensors_path(folder), first);
}

TEST(Checkpoint, KeepsTheNetwork) {
  const TemporaryFolder folder;
  CheckpointState state = state_of(1);
  save_once(folder.path() / "a", state);
  EXPECT_FALSE(load_checkpoint(folder.path() / "a").network.has_value());
  state.network = build_model("lenet", ModelSettings::parse("batch=2"));
  save_once(folder.path() / "a", state);
  const CheckpointState loaded = load_checkpoint(folder.path() / "a");
  ASSERT_TRUE(loaded.network.has_value());
  EXPECT_EQ(save_json(*loaded.network), save_json(*state.network));
  EXPECT_EQ(loaded.tensors.size(), state.tensors.size()) << "it is none of the weights";
  // One that does not hold together.
  state.network->operands[0] = kNone;
  save_once(folder.path() / "a", state);
  const std::string said = user_error([&] { load_checkpoint(folder.path() / "a"); });
  EXPECT_TRUE(says(said, {"damaged", "network"}));
  EXPECT_EQ(said.find("report"), std::string::npos) << "it is no fault of the program's: " << said;
}

TEST(Checkpoint, LossMayBeMissing) {
  const TemporaryFolder folder;
  CheckpointState state = state_of(1);
  state.loss = std::nan("");
  save_once(folder.path() / "a", state);
  EXPECT_TRUE(std::isnan(load_checkpoint(folder.path() / "a").loss));
}

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() { save_once(path(), state_of(4)); }

  fs::path path() const { return folder_.path() / "a"; }
  std::string error() const {
    return user_error([&] { load_checkpoint(path()); });
  }
  // Writes the JSON again after `change`, as a version without checksums would.
  void edit(const std::function<void(json&)>& change) const {
    json described = json::parse(read_file(folder_.path() / "a.json"));
    described.erase("checksum");
    described["version"] = 2;
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
  EXPECT_TRUE(says(error(), {"checkpoint version 99, this Overtake reads 1 to 3", "use the Overtake that wrote it"}));
}

// Whatever byte of the JSON changes, it is found, or what is read is what was written: of "\u00e9" and "\u00E9", say.
TEST_F(DamagedCheckpoint, EveryByteOfTheJson) {
  const std::string whole = read_file(folder_.path() / "a.json");
  int found = 0;
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << byte % 8));
    folder_.write("a.json", damaged);
    try {
      expect_state(load_checkpoint(path()), 4);
    } catch (const UserError&) {
      ++found;
    }
    ASSERT_FALSE(HasFailure()) << "byte " << byte;
  }
  EXPECT_GT(found, std::ssize(whole) / 2);
}

TEST_F(DamagedCheckpoint, ChangedStep) {
  json described = json::parse(read_file(folder_.path() / "a.json"));
  described["step"] = 5;
  folder_.write("a.json", described.dump());
  EXPECT_TRUE(says(error(), {"a.json: the checkpoint is damaged", "checksum", "resume from another checkpoint"}));
  EXPECT_TRUE(says(error(), {tensors_path(folder_).string()})) << "which is whole";
  expect_state(load_checkpoint(tensors_path(folder_)), 4);
  described.erase("checksum");
  folder_.write("a.json", described.dump());
  EXPECT_TRUE(says(error(), {"checksum"}));
}

TEST_F(DamagedCheckpoint, EarlierVersionsHaveNoChecksum) {
  edit([](json&) {});
  const CheckpointState state = load_checkpoint(path());
  expect_state(state, 4);
  EXPECT_FALSE(state.has_checksum);
  save_once(path(), state_of(4));
  EXPECT_TRUE(load_checkpoint(path()).has_checksum);
}

TEST_F(DamagedCheckpoint, GenerationsAreWholeByThemselves) {
  const fs::path tensors = tensors_path(folder_);
  const std::string content = read_file(tensors);
  const auto error_of = [](const fs::path& file) { return user_error([&] { load_checkpoint(file); }); };
  std::string changed = content;
  changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 1);
  folder_.write(tensors.filename().string(), changed);
  EXPECT_TRUE(says(error_of(tensors), {"damaged", "checksum", "its name says"}));
  const fs::path renamed = folder_.write("best.safetensors", content);
  EXPECT_TRUE(says(error_of(renamed), {"best.safetensors", "-STEP-CHECKSUM.safetensors"}));
  EXPECT_TRUE(says(error_of(folder_.path() / "a-9-0123456789abcdef.safetensors"), {"no such checkpoint"}));
  // Of earlier versions the description is in the JSON file alone.
  fs::remove(tensors);
  const WrittenTensors plain =
      write_safetensors(folder_.path() / "plain", state_of(4).tensors, {{"writer", "overtake"}});
  const fs::path old = folder_.path() / fmt::format("a-4-{}.safetensors", hash_text(plain.hash));
  fs::rename(folder_.path() / "plain", old);
  EXPECT_TRUE(says(error_of(old), {"earlier version", "JSON file"}));
}

TEST_F(DamagedCheckpoint, MissingOrMistypedEntry) {
  for (const char* key : {"step", "epoch", "batch", "seed", "loss", "model", "settings", "tensors"}) {
    save_once(path(), state_of(4));
    edit([&](json& described) { described.erase(key); });
    EXPECT_TRUE(says(error(), {"a.json: the checkpoint is damaged", key, "another checkpoint"}));
  }
  for (const char* key : {"step", "epoch", "batch", "seed"}) {
    for (const json& value : {json(-1), json(1.5), json("1")}) {
      save_once(path(), state_of(4));
      edit([&](json& described) { described[key] = value; });
      EXPECT_TRUE(says(error(), {"a.json: the checkpoint is damaged", key}));
    }
  }
}

// Readers take them at their word: those of a field as its value, those of names as texts.
TEST_F(DamagedCheckpoint, SettingsOfAnotherType) {
  const auto refuses = [&](const std::function<void(json&)>& change, std::initializer_list<std::string_view> words) {
    save_once(path(), state_of(4));
    edit(change);
    EXPECT_TRUE(says(error(), {"a.json: the checkpoint is damaged", "another checkpoint"}));
    EXPECT_TRUE(says(error(), words));
  };
  for (const json& value : {json(3), json("x"), json::array({1}), json(nullptr)}) {
    refuses([&](json& described) { described["settings"] = value; }, {"settings"});
    refuses([&](json& described) { described["model"]["settings"] = value; }, {"settings"});
    refuses([&](json& described) { described["settings"]["weight_names"] = value; }, {});
    refuses([&](json& described) { described["settings"]["weight_names"] = {{"remove", value}, {"add", 1}}; }, {});
  }
  for (const json& value : {json("two"), json(-1), json(1.5), json::object()})
    refuses([&](json& described) { described["settings"]["parts"] = value; }, {"parts", "a whole number from 1"});
}

// What works on a value calls itself for each level; this one would overflow the stack.
TEST_F(DamagedCheckpoint, NestedTooDeeply) {
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  folder_.write("a.json", R"({"format": "overtake-checkpoint", "version": 2, "settings": )" + deep + "}");
  EXPECT_TRUE(says(error(), {"a.json: the checkpoint is damaged"}));
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
  save_once(other.path() / "a", state_of(5));
  fs::copy_file(tensors_path(other), tensors, fs::copy_options::overwrite_existing);
  EXPECT_TRUE(says(error(), {"not of one checkpoint", "copy both files again"}));
}

TEST_F(DamagedCheckpoint, TensorsSomewhereElse) {
  edit([](json& described) { described["tensors"]["file"] = "../secret.safetensors"; });
  EXPECT_TRUE(says(error(), {"../secret.safetensors is not beside it"}));
}

TEST_F(DamagedCheckpoint, ForeignTensors) {
  folder_.write(tensors_path(folder_).filename().string(), "PK\x03\x04 this is a zip archive, not tensors");
  EXPECT_TRUE(says(error(), {"it is a zip file of PyTorch"}));
  folder_.write(tensors_path(folder_).filename().string(), "this is a text, not tensors");
  EXPECT_TRUE(says(error(), {"no safetensors file"}));
}

}  // namespace
}  // namespace overtake
