#pragma once
// What `overtake models net.onnx` says of a file beside its row in the table.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "models/network.h"
#include "models/onnx/proto.h"

namespace overtake {

// A value that goes in or comes out: {"name": "input", "type": "float32", "shape": ["batch", 3, 64, 64]}.
// Of all: "inputs", "outputs"; "trained", "frozen", "statistics" and "constants", tensors with name and shape;
// "layers", how many there are of each kind, and "put_together", how many of them from the parts that the exporter made
// of them.
nlohmann::json onnx_summary(const onnx::File& file, const Network& network, const Graph& recognised);

// The same for people, a line for each.
std::string text_of(const nlohmann::json& summary);

}  // namespace overtake
