#pragma once
// The network of a run that is taken up again. It is not always the one that the model's name and settings stand for: a
// network may change its shape in training, when channels are pruned for example. Then it is the checkpoint's.

#include <string>

#include "train/checkpoint.h"

namespace overtake {

// The checkpoint's network as text, if it is not `built`, whatever the sizes of their micro-batches; otherwise empty. A
// user error if it is another one, and of micro-batches of another size.
std::string changed_network(const CheckpointState& state, const Graph& built, const std::string& resume);

// Starts from that network instead. All of its weights come from the checkpoint.
void take_network(Graph& graph, std::vector<NamedTensor>& initial, const std::string& network);

}  // namespace overtake
