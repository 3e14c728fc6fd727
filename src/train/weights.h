#pragma once
// Weights in files: how a parameter is stored there, weights of other programs taken in, trained ones given out.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "overtake/graph.h"
#include "train/checkpoint.h"

namespace overtake {

// A tensor of a file and where its rows lie in the parameter's buffer.
struct StoredTensor {
  std::string name;
  std::int64_t first_row = 0, rows = 0;  // rows 0: the whole buffer, as it is stored
};
// Nearly always one.
std::vector<StoredTensor> stored_tensors(const Graph& graph, const Parameter& parameter);
// The shape of one of them. The parameter's shape in files, which is PyTorch's: what its own file had, grouped
// convolutions [O, C / G, kh, kw], and [in, out] where the model says so.
std::vector<std::int64_t> stored_dims(const Graph& graph, const Parameter& parameter);
std::vector<std::int64_t> stored_dims(const Graph& graph, const Parameter& parameter, const StoredTensor& tensor);
// Its values there and ours, row-major.
std::vector<std::byte> to_stored(const Graph& graph, const Parameter& parameter, std::vector<std::byte> ours);
std::vector<std::byte> from_stored(const Graph& graph, const Parameter& parameter, std::span<const std::byte> stored);
StoredType stored_type(DType type);
std::vector<float> as_floats(std::span<const std::byte> bytes, StoredType type);

// How the names of a file come from ours: Hugging Face keeps "transformer." before a name or not, depending on which
// class saved it.
struct NameRule {
  std::string remove, add;  // a prefix each
  std::string apply(const std::string& name) const;
};

struct FoundWeights {
  std::vector<NamedTensor> tensors = {};  // under our names, float32, in stored form
  NameRule names = {};
  std::vector<std::string> extra = {};  // what the file has and the graph has not, where that is allowed
};

enum class ExtraWeights : std::uint8_t { refused, allowed };

// The weights and states of a forward graph in a file (`init`). Names that start with one of `skip` are neither looked
// for nor complained of. Copies of tied weights and what PyTorch keeps beside weights (num_batches_tracked,
// position_ids, GPT-2's attention masks) are passed over. A user error lists all that is missing, misshapen or too
// much.
FoundWeights find_weights(const Graph& graph, const TensorFile& file, const std::vector<std::string>& skip,
                          const std::string& where, ExtraWeights extra = ExtraWeights::refused);

// Of a checkpoint that has its network: what TrainingRun::weights_hash() was when it was saved, on a CPU.
std::uint64_t weights_hash(const CheckpointState& state);

// The weights and running statistics of a checkpoint under the names they came with, without the optimizer's states,
// and with the num_batches_tracked that PyTorch's strict loading asks for.
std::vector<NamedTensor> exported_weights(const CheckpointState& state);

}  // namespace overtake
