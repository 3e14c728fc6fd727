#pragma once
// What a RunSpec means: the network and where it starts, and the options of the training loop.

#include <functional>
#include <string>
#include <vector>

#include "models/network.h"
#include "overtake/run_spec.h"
#include "train/loop.h"
#include "train/weights.h"

namespace overtake {

// With what is left open filled in: the device's precision, and synthetic data.
RunSpec completed(RunSpec spec);

// A forward graph, of one micro-batch, and what its weights start from: the model file's, those of `init`, or nothing.
struct StartingPoint {
  Graph graph;
  std::vector<NamedTensor> initial;
  NameRule names;  // how the weights are called where they came from
};
StartingPoint load_start(const RunSpec& spec, const std::function<void(const std::string&)>& note);

// Samples in a step, where `graph` takes a micro-batch.
std::int64_t whole_batch(const RunSpec& spec, const Graph& graph);

// User errors that show before anything is opened or measured: fields that contradict one another.
void check_spec(const RunSpec& spec);
// What the loop keeps in checkpoints is of a completed spec. `note` gets lines for people about the data. A user error
// if a model of the user's own has no data.
LoopOptions loop_options(const RunSpec& spec, const std::function<void(const std::string&)>& note = {});

}  // namespace overtake
