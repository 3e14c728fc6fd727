#pragma once
// Checkpoints: NAME.json and the tensors file it names, NAME-<step>-<hash>.safetensors. Killed at any moment, a save
// leaves the old pair or the new one, complete and matching: the tensors come first under a name of their own, then
// NAME.json is replaced at once, then older tensors files go.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/safetensors.h"
#include "overtake/graph.h"

namespace overtake {

// In the tensors file, beside the weights: the network as JSON.
inline constexpr std::string_view kNetworkTensor = "overtake.network";

struct CheckpointState {
  std::uint64_t step = 0;   // steps done
  std::uint64_t epoch = 0;  // position of the next batch: epoch and
  std::uint64_t batch = 0;  // index of the batch within it
  std::uint64_t seed = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();  // of the last step; NaN when there is none
  std::string model = {};                                  // name of the model
  nlohmann::json model_settings = nlohmann::json::object();
  nlohmann::json settings = nlohmann::json::object();  // of the training: optimizer, schedule, data, ...
  // The network that was trained: forward, of one micro-batch. None in checkpoints of version 1.
  std::optional<Graph> network = {};
  std::vector<NamedTensor> tensors = {};  // weights, running statistics, optimizer states, by name
};

// "runs/lenet" and "runs/lenet.json" both mean runs/lenet.json; a user error for a path that names no file ("runs/").
std::filesystem::path checkpoint_json_path(const std::filesystem::path& path);

// For before long work: creates the folder of `path` and proves that a checkpoint could be written there.
void check_checkpoint_writable(const std::filesystem::path& path);

// Creates the folder of `path` when it is missing.
void save_checkpoint(const std::filesystem::path& path, const CheckpointState& state);

// A missing, damaged, foreign or mismatched checkpoint is a user error that says what to do.
CheckpointState load_checkpoint(const std::filesystem::path& path);

}  // namespace overtake
