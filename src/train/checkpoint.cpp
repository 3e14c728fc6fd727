#include "train/checkpoint.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "ops/check_task.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kCheckpointFormat = "overtake-checkpoint";
constexpr int kVersion = 2, kVersionWithoutNetwork = 1;
constexpr std::string_view kTensorsEnding = ".safetensors";

// NAME of NAME.json.
std::string name_of(const fs::path& json_path) { return json_path.stem().string(); }

// The hash in the name makes it the content's own: a new checkpoint never writes over the tensors of the old one, not
// even of the same step.
std::string tensors_file_name(const std::string& name, std::uint64_t step, std::uint64_t hash) {
  return fmt::format("{}-{}-{}{}", name, step, hash_text(hash), kTensorsEnding);
}

bool all_of_text(std::string_view text, int (*is_kind)(int)) {
  return std::all_of(text.begin(), text.end(), [&](char c) { return is_kind(static_cast<unsigned char>(c)) != 0; });
}

// Whether a file is a tensors file of checkpoint `name`, or what a killed save left of one.
bool belongs_to(std::string_view file, std::string_view name) {
  constexpr std::size_t hash_digits = 16;
  const std::size_t ending = file.find(kTensorsEnding);
  if (ending == std::string_view::npos || !file.starts_with(name)) return false;
  const std::string_view behind = file.substr(ending + kTensorsEnding.size());
  if (!behind.empty() && !behind.starts_with(".partial-")) return false;
  const std::string_view middle = file.substr(0, ending).substr(std::min(name.size(), ending));  // "-<step>-<hash>"
  const std::size_t dash = middle.find('-', 1);
  if (!middle.starts_with('-') || dash == std::string_view::npos || dash == 1) return false;
  const std::string_view step = middle.substr(1, dash - 1), hash = middle.substr(dash + 1);
  return hash.size() == hash_digits && all_of_text(step, std::isdigit) && all_of_text(hash, std::isxdigit);
}

// Deletes the tensors files of earlier saves and what killed ones left. A file that cannot be deleted costs only space.
void remove_older(const fs::path& json_path, const std::string& current) {
  const std::string name = name_of(json_path);
  const std::string json_partial = json_path.filename().string() + ".partial-";
  std::vector<fs::path> old;
  std::error_code ignored;
  for (fs::directory_iterator it(json_path.parent_path(), ignored), end; it != end; it.increment(ignored)) {
    const std::string file = it->path().filename().string();
    if (file != current && (belongs_to(file, name) || file.starts_with(json_partial))) old.push_back(it->path());
  }
  for (const fs::path& path : old) fs::remove(path, ignored);
}

json description(const CheckpointState& state, const std::string& tensors_file, const WrittenTensors& written) {
  return {{"format", kCheckpointFormat},
          {"version", kVersion},
          {"step", state.step},
          {"epoch", state.epoch},
          {"batch", state.batch},
          {"seed", state.seed},
          {"loss", std::isfinite(state.loss) ? json(state.loss) : json(nullptr)},
          {"model", {{"name", state.model}, {"settings", state.model_settings}}},
          {"settings", state.settings},
          {"tensors", {{"file", tensors_file}, {"bytes", written.bytes}, {"hash", hash_text(written.hash)}}}};
}

// The JSON file, known to be a checkpoint of our version.
json read_description(const fs::path& json_path) {
  const std::string where = json_path.string();
  std::error_code unreadable;  // then reading gives the reason
  if (!fs::exists(json_path, unreadable) && !unreadable) fail_user("{}: no such checkpoint; check the path", where);
  const json described = json::parse(read_file(json_path), nullptr, false);
  if (described.is_discarded()) {
    fail_user("{}: the checkpoint is damaged: it is not JSON; resume from another checkpoint", where);
  }
  if (!described.is_object() || described.value("format", json()) != kCheckpointFormat) {
    fail_user("{}: no checkpoint of Overtake's: \"format\" is not \"{}\"; check the path", where, kCheckpointFormat);
  }
  const json version = described.value("version", json());
  if (version != kVersion && version != kVersionWithoutNetwork) {
    fail_user("{}: checkpoint version {}, this Overtake reads {} and {}; use the Overtake that wrote it", where,
              version.dump(), kVersionWithoutNetwork, kVersion);
  }
  return described;
}

struct TensorsReference {
  std::string file;
  std::string hash;
};

std::uint64_t natural(const json& described, const char* key) {
  const json& value = described.at(key);
  if (!value.is_number_unsigned())
    throw json::type_error::create(302, fmt::format("{} is {}", key, value.dump()), &value);
  return value.get<std::uint64_t>();
}

// Everything but the tensors. Missing or mistyped entries surface as json exceptions.
std::pair<CheckpointState, TensorsReference> state_from(const json& described) {
  CheckpointState state;
  state.step = natural(described, "step");
  state.epoch = natural(described, "epoch");
  state.batch = natural(described, "batch");
  state.seed = natural(described, "seed");
  if (!described.at("loss").is_null()) state.loss = described.at("loss").get<double>();
  state.model = described.at("model").at("name").get<std::string>();
  state.model_settings = described.at("model").at("settings");
  state.settings = described.at("settings");
  const json& tensors = described.at("tensors");
  return {std::move(state), {tensors.at("file").get<std::string>(), tensors.at("hash").get<std::string>()}};
}

std::pair<CheckpointState, TensorsReference> read_state(const fs::path& json_path) {
  const json described = read_description(json_path);
  try {
    return state_from(described);
  } catch (const json::exception& error) {
    fail_user("{}: the checkpoint is damaged: {}; resume from another checkpoint", json_path.string(), error.what());
  }
}

TensorFile read_matching(const fs::path& path, const std::string& hash, const fs::path& json_path) {
  TensorFile tensors = read_safetensors(path);
  if (hash_text(tensors.hash) != hash) {
    fail_user(
        "{}: hash {} where {} says {}: the two are not of one checkpoint, or one is damaged; copy both files again, "
        "or resume from another checkpoint",
        path.string(), hash_text(tensors.hash), json_path.string(), hash);
  }
  return tensors;
}

// The tensors beside the JSON file; nothing when there is no such file.
std::optional<TensorFile> read_tensors(const fs::path& json_path, const TensorsReference& reference) {
  if (fs::path(reference.file).has_parent_path()) {
    fail_user("{}: the checkpoint is damaged: its tensors file {} is not beside it; resume from another checkpoint",
              json_path.string(), reference.file);
  }
  const fs::path path = json_path.parent_path() / reference.file;
  try {
    return read_matching(path, reference.hash, json_path);
  } catch (const UserError&) {
    std::error_code unknown;
    if (!fs::exists(path, unknown) && !unknown) return std::nullopt;
    throw;
  }
}

// Takes the network out of the tensors; none of version 1.
std::optional<Graph> take_network_from(std::vector<NamedTensor>& tensors, const fs::path& json_path) {
  const auto found = std::ranges::find(tensors, kNetworkTensor, &NamedTensor::name);
  if (found == tensors.end()) return std::nullopt;
  const std::string text(reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size());
  tensors.erase(found);
  std::string why;
  try {
    Graph network = load_graph_json(text);
    verify(network);
    check_tasks(network);
    return network;
  } catch (const InternalError& error) {
    why = error.reason();
  } catch (const std::exception& error) {
    why = error.what();
  }
  fail_user("{}: the checkpoint is damaged: its network: {}; resume from another checkpoint", json_path.string(), why);
}

}  // namespace

fs::path checkpoint_json_path(const fs::path& path) {
  if (!path.has_filename() || path.filename() == "." || path.filename() == ".." || path.filename() == ".json") {
    fail_user("{}: a checkpoint needs a name; write a path such as runs/lenet", path.string());
  }
  fs::path json_path = path;
  if (path.extension() != ".json") json_path += ".json";
  return json_path.has_parent_path() ? json_path : "." / json_path;
}

void check_checkpoint_writable(const fs::path& path) { check_writable(checkpoint_json_path(path)); }

void save_checkpoint(const fs::path& path, const CheckpointState& state) {
  const fs::path json_path = checkpoint_json_path(path);
  const fs::path folder = json_path.parent_path();
  const std::string name = name_of(json_path);
  create_folders(folder);

  AtomicFile tensors(folder / tensors_file_name(name, state.step, 0));
  std::vector<NamedTensor> all = state.tensors;
  const std::string network = state.network ? save_json(*state.network) : "";
  if (state.network)
    all.push_back({.name = std::string(kNetworkTensor),
                   .type = StoredType::u8,
                   .dims = {std::ssize(network)},
                   .bytes = std::as_bytes(std::span(network))});
  const WrittenTensors written = write_safetensors(tensors, all, {{"writer", "overtake"}});
  const std::string tensors_file = tensors_file_name(name, state.step, written.hash);
  tensors.commit_as(tensors_file);
  write_file_atomically(
      json_path, description(state, tensors_file, written).dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  remove_older(json_path, tensors_file);
}

CheckpointState load_checkpoint(const fs::path& path) {
  const fs::path json_path = checkpoint_json_path(path);
  auto [state, reference] = read_state(json_path);
  for (;;) {
    if (std::optional<TensorFile> tensors = read_tensors(json_path, reference)) {
      state.tensors = std::move(tensors->tensors);
      state.network = take_network_from(state.tensors, json_path);
      return std::move(state);
    }
    // A run that is still saving may have replaced both files since the JSON was read: then look again.
    std::string missing = std::exchange(reference.file, "");
    std::tie(state, reference) = read_state(json_path);
    if (reference.file == missing) {
      fail_user("{}: its tensors file is missing: {}; copy it beside the JSON file, or resume from another checkpoint",
                json_path.string(), (json_path.parent_path() / missing).string());
    }
  }
}

}  // namespace overtake
