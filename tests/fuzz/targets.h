#pragma once
// What is fuzzed: each takes any bytes and gives "" where they were accepted, else the text of the user error. Every
// other exception, a crash, and an allocation out of proportion are findings.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/safetensors.h"
#include "machine/measured_step.h"
#include "machine/profile.h"
#include "models/onnx/constant.h"
#include "models/onnx/import.h"
#include "models/onnx/proto.h"
#include "ops/check_task.h"
#include "overtake/cluster.h"
#include "overtake/program.h"
#include "overtake/version.h"
#include "passes/recognise.h"
#include "plan/program.h"
#include "report/timeline_page.h"
#include "run/spec_file.h"
#include "sim/chakra/chakra.h"
#include "train/checkpoint.h"
#include "train/npy.h"
#include "train/weights.h"

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

// A file that lies in memory only, for readers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    OVERTAKE_CHECK(descriptor_ >= 0 && ::write(descriptor_, content.data(), content.size()) == std::ssize(content),
                   "no file in memory");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

// The input with what stands for `mark` in it, if it is there: what no mutation could find, and no seed can know.
inline std::string filled_in(std::string_view bytes, std::string_view mark, std::string_view value) {
  std::string text(bytes);
  if (const std::size_t at = text.find(mark); at != text.npos) text.replace(at, mark.size(), value);
  return text;
}

// Between the files of two ranks in one input.
inline constexpr std::string_view kNextFile = "----";

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
                              .train_tensors = {"*"},
                              .most_constants = kMostConstants};
  return error_of([&] {
    Network network = import_onnx(std::make_shared<const std::string>(bytes), "/nowhere/fuzz.onnx", options);
    recognise(std::move(network.graph));
  });
}

inline std::string feed_safetensors(std::string_view bytes) {
  return error_of([&] { parse_safetensors(std::make_shared<const std::string>(bytes), "fuzz.safetensors"); });
}

// All elements, as training converts them.
inline std::string feed_npy(std::string_view bytes) {
  return error_of([&] {
    const MemoryFile file(bytes);
    const NpyArray array = read_npy(file.path());
    const std::int64_t count = element_count(array);
    std::vector<float> values(static_cast<std::size_t>(count));
    copy_elements(array, 0, count, values.data());
    if (!is_float(array.type) && count > 0) element_range(array);
  });
}

// Where checkpoints are read: the input becomes the JSON file, beside tensors that are always the same.
class CheckpointFolder {
 public:
  CheckpointFolder()
      : folder_(std::filesystem::temp_directory_path() / fmt::format("overtake-fuzz-checkpoint-{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
    const float values[] = {1, 2, 3, 4};
    const NamedTensor weight = owning_tensor("fc.weight", StoredType::f32, {2, 2}, std::as_bytes(std::span(values)));
    hash_ = hash_text(write_safetensors(folder_ / "tensors.safetensors", std::span(&weight, 1)).hash);
  }
  ~CheckpointFolder() { std::filesystem::remove_all(folder_); }

  CheckpointState load(std::string_view bytes) const {
    const std::string json = filled_in(bytes, "@HASH@", hash_);
    std::ofstream(folder_ / "c.json", std::ios::binary).write(json.data(), std::ssize(json));
    return load_checkpoint(folder_ / "c");
  }

 private:
  std::filesystem::path folder_;
  std::string hash_;
};

inline std::string feed_checkpoint(std::string_view bytes) {
  static const CheckpointFolder folder;
  return error_of([&] { exported_weights(folder.load(bytes)); });
}

// The network that a checkpoint keeps is JSON of its own, which its tensors file holds.
inline std::string feed_network(std::string_view bytes) {
  return error_of([&] {
    const Graph network = load_graph_json(bytes);
    try {
      check_tasks(network);
    } catch (const InternalError&) {  // a checkpoint's reader says so in its words
    }
  });
}

// `overtake report`: figures and the page.
inline std::string feed_trace(std::string_view bytes) {
  return error_of([&] {
    const MemoryFile file(bytes);
    const TraceFile traces = read_traces({file.path()});
    timeline_page(traces, figures_of(traces));
  });
}

inline std::string feed_machine(std::string_view bytes) {
  return error_of([&] { save_cluster(parse_cluster(bytes, "fuzz.toml")); });
}

// Plan files are of one version of the program; seeds are of any.
inline std::string feed_plan(std::string_view bytes) {
  return error_of([&] { load_program_json(filled_in(bytes, "@VERSION@", version()), "fuzz.plan"); });
}

// Of one rank; those of several have one more empty file.
inline std::string feed_chakra(std::string_view bytes) {
  return error_of([&] {
    const std::size_t half = bytes.find(kNextFile);
    std::vector<ChakraFile> files = {{"fuzz.0.et", std::string(bytes.substr(0, half))}};
    if (half != bytes.npos) files.push_back({"fuzz.1.et", std::string(bytes.substr(half + kNextFile.size()))});
    read_chakra(files);
  });
}

// Of the cache of measured times, and of the steps that machine files name.
inline std::string feed_profile(std::string_view bytes) {
  return error_of([&] {
    try {
      if (load_profile_json(bytes, "key", 3)) return;
    } catch (const nlohmann::json::exception&) {  // then it is measured anew
    }
    const MemoryFile file(bytes);
    load_measured_step(file.path());
  });
}

inline std::string feed_spec(std::string_view bytes) {
  return error_of([&] { toml_of(spec_from_toml(std::string(bytes), "fuzz.toml")); });
}

struct Target {
  std::string_view name;
  std::string (*feed)(std::string_view);
  std::size_t room;  // beside the bound per byte of input
};

inline constexpr std::size_t kKiB = 1 << 10, kMiB = 1 << 20;

inline constexpr Target kTargets[] = {
    // The constants that the target allows, in both forms, and 1 MiB of inlined functions.
    {"onnx", feed_onnx, 8 * kMiB},
    {"import", feed_import, 8 * kMiB},
    // Error texts, the buffers of parsers.
    {"safetensors", feed_safetensors, 64 * kKiB},
    {"npy", feed_npy, 64 * kKiB},
    {"checkpoint", feed_checkpoint, 64 * kKiB},
    {"network", feed_network, 64 * kKiB},
    {"trace", feed_trace, 256 * kKiB},
    {"chakra", feed_chakra, 256 * kKiB},
    {"profile", feed_profile, 64 * kKiB},
    {"spec", feed_spec, 256 * kKiB},
    // The devices and links that are described, of which a line can stand for a million; the plan of a step.
    {"machine", feed_machine, 512 * kMiB},
    {"plan", feed_plan, 512 * kMiB},
};

constexpr const Target* find_target(std::string_view name) { return std::ranges::find(kTargets, name, &Target::name); }

}  // namespace overtake::fuzz
