#pragma once
// Checkpoints: what is in one, and reading it. train/checkpoint_files.h has the names of its files, and
// train/checkpoint_saver.h writes them.
//
// NAME.json has a description (version, step, model, settings), names a file of tensors with that file's size and
// checksum, and ends with a checksum over all of that. The tensors' file has the same description in its metadata, so
// that it is a whole checkpoint by itself: one of an older generation.

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
// In its metadata: the description as JSON.
inline constexpr std::string_view kDescriptionKey = "checkpoint";

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
  bool has_checksum = true;               // over its description; those of versions 1 and 2 have none
};

// All but the tensors and the network.
nlohmann::json description_of(const CheckpointState& state);
// The text of NAME.json: a description and the tensors that belong to it.
std::string checkpoint_json(nlohmann::json description, const std::string& tensors_file, const WrittenTensors& written);

// `path` is that of a checkpoint, for its newest generation, or of a generation's own file of tensors. A missing,
// damaged, foreign or mismatched one is a user error that says what to do.
CheckpointState load_checkpoint(const std::filesystem::path& path);
// Of NAME.json alone.
struct CheckpointFacts {
  std::uint64_t step = 0;
  std::string tensors_file;
};
CheckpointFacts read_checkpoint_json(const std::filesystem::path& json_path);

}  // namespace overtake
