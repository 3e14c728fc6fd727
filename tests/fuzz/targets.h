#pragma once
// What is fuzzed: each takes any bytes and gives "" where they were accepted, else the text of the user error. Every
// other exception, a crash, and an allocation out of proportion are findings.

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/safetensors.h"
#include "models/onnx/constant.h"
#include "models/onnx/import.h"
#include "models/onnx/proto.h"
#include "passes/recognise.h"

namespace overtake::fuzz {

template <class Read>
std::string error_of(const Read& read) {
  try {
    read();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// For constants, so that an execution is quick.
inline constexpr std::int64_t kMostConstants = 1 << 14;

// Computes what can be computed of a file, as an import does.
inline void fold_file(const onnx::File& file) {
  onnx::Budget budget(file.bytes, kMostConstants);
  std::map<std::string, onnx::Constant> known;
  for (const onnx::Tensor& tensor : file.initializers) {
    if (tensor.type != onnx::ElementType::text) known[tensor.name] = read_constant(tensor, budget, tensor.name);
  }
  for (const onnx::Node& node : file.nodes) {
    bool is_known = is_foldable(node);
    std::vector<const onnx::Constant*> inputs;
    for (const std::string& input : node.inputs) {
      const auto found = known.find(input);
      is_known = is_known && (input.empty() || found != known.end());
      inputs.push_back(found == known.end() ? nullptr : &found->second);
    }
    if (!is_known) continue;
    std::vector<onnx::Constant> results = fold(node, inputs, file.opset, budget);
    for (std::size_t i = 0; i < std::min(results.size(), node.outputs.size()); ++i) {
      known[node.outputs[i]] = std::move(results[i]);
    }
  }
}

// External data is looked for in a folder that is not there.
inline std::string feed_onnx(std::string_view bytes) {
  return error_of(
      [&] { fold_file(onnx::parse_file(std::make_shared<const std::string>(bytes), "/nowhere/fuzz.onnx")); });
}

// All of an import: to the graph that training begins with.
inline std::string feed_import(std::string_view bytes) {
  const ImportOptions options{.settings = ModelSettings({{"batch", 3}}),
                              .loss = bytes.size() % 2 == 0 ? "cross-entropy" : "mse",
                              .most_constants = kMostConstants};
  return error_of([&] {
    Network network = import_onnx(std::make_shared<const std::string>(bytes), "/nowhere/fuzz.onnx", options);
    recognise(std::move(network.graph));
  });
}

inline std::string feed_safetensors(std::string_view bytes) {
  return error_of([&] { parse_safetensors(std::make_shared<const std::string>(bytes), "fuzz.safetensors"); });
}

}  // namespace overtake::fuzz
