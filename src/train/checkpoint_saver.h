#pragma once
// Writes the generations of one checkpoint. Killed at any moment, a save leaves the newest generation or the one before
// as NAME.json's, complete and matching: the tensors come first, under a name of their own, then NAME.json is replaced
// at once, and only then older generations go.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "train/checkpoint.h"
#include "train/checkpoint_files.h"

namespace overtake {

struct SaverOptions {
  std::uint64_t keep = 1;             // generations
  std::filesystem::path resume = {};  // the checkpoint that the run goes on from; empty: none
  bool overwrite = false;             // what there is of another run under this name is given up with the first save
};

// One process saves under a name, from before it trains to its end: another one, another run's checkpoint, a newer
// generation than that of `resume`, and a place or a name that cannot be written are user errors.
class CheckpointSaver {
 public:
  CheckpointSaver(const std::filesystem::path& path, const SaverOptions& options);

  // Steps only grow. Where it cannot be written, a user error, and the generations that there are stay.
  void save(const CheckpointState& state);

  // The step of this run's newest generation, if there is one.
  std::optional<std::uint64_t> newest() const { return newest_; }
  // The file system has no locks: that nobody else saves here is the user's promise.
  bool is_without_lock() const { return lock_->state() == FileLock::State::unknown; }

 private:
  void lock();
  void take_over(const SaverOptions& options);
  void remove_unnamed();
  void remove_oldest();
  void remove_others() const;

  std::filesystem::path json_path_;
  std::uint64_t keep_;
  std::optional<FileLock> lock_;
  std::optional<std::uint64_t> newest_;
  std::vector<Generation> kept_;  // of this run, the oldest step first
  // Written by a save that then failed: NAME.json has another generation, as far as is known.
  std::optional<Generation> unnamed_;
};

}  // namespace overtake
