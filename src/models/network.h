#pragma once
// A network by name, wherever it comes from: the zoo, or an ONNX file.

#include <functional>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "overtake/zoo.h"

namespace overtake {

// A forward graph and the values its weights start from, where these are not drawn at random: under the names of the
// graph's parameters and in the form files have them.
struct Network {
  Graph graph;
  std::vector<NamedTensor> values = {};
  std::vector<std::string> listed = {};  // all tensors of the PyTorch model, where an ONNX file lists them
};

// What a name leaves open; all but the first two are of ONNX files.
struct ImportOptions {
  ModelSettings settings = {};                          // of a file: batch, and its symbolic dimensions by name
  std::int64_t pieces = 1;                              // of the batch, given or not: the graph takes one of them
  std::string loss = "cross-entropy";                   // or "mse"
  std::string output = {};                              // the output that is trained; empty: the first
  std::vector<std::string> freeze = {};                 // beginnings of names of tensors that are not trained
  std::vector<std::string> train_tensors = {};          // of tensors that are, where the file does not say
  bool accept_folded = false;                           // train what is left where the export lost parameters
  std::int64_t most_constants = std::int64_t{1} << 26;  // elements of constants, beyond what the file's size allows
  std::function<void(const std::string&)> note = {};    // gets lines for the user: what was assumed
};

// Marks the weights whose names begin with one of `prefixes` as not trained; a user error for a beginning that no name
// has.
void freeze(Graph& graph, const std::vector<std::string>& prefixes);

// Samples in one of the equal pieces of a batch. A batch that the user gave must be a multiple of them, or it is a user
// error; a network's own is rounded up to the next multiple.
std::int64_t samples_of_a_piece(std::int64_t batch, std::int64_t pieces, bool is_given);

// Whether a model is named by a file.
bool is_onnx_file(const std::string& model);

// `model` is a name of the zoo or the path of an ONNX file.
Network load_network(const std::string& model, const ImportOptions& options);

}  // namespace overtake
