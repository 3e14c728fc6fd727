#include "train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "ops/check_task.h"
#include "run/resume.h"
#include "train/checkpoint_files.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kCheckpointFormat = "overtake-checkpoint";
constexpr int kVersion = 3, kVersionWithoutChecksum = 2, kVersionWithoutNetwork = 1;
constexpr const char* kChecksum = "checksum";

std::string text_of(const json& described, int indent = -1) {
  return described.dump(indent, ' ', false, json::error_handler_t::replace);
}

// Over all entries but itself.
std::string checksum_of(json described) {
  described.erase(kChecksum);
  Hash64 hash;
  hash.add(text_of(described));
  return hash_text(hash.value());
}

// What to do about a damaged checkpoint: an older generation may be whole.
std::string remedy(const fs::path& json_path, const std::string& damaged = "") {
  const std::vector<Generation> all = generations_beside(json_path);
  const auto newest = std::find_if(all.rbegin(), all.rend(), [&](const Generation& g) { return g.file() != damaged; });
  if (newest == all.rend()) return "resume from another checkpoint";
  return fmt::format("resume from another checkpoint, for example {}",
                     (json_path.parent_path() / newest->file()).string());
}

// A description, known to be of a version that we read and to be as it was written. `advice` is for a damaged one.
json parse_description(const std::string& text, const std::string& where, const std::string& advice) {
  const json described = parse_json_or_discard(text);
  if (described.is_discarded()) fail_user("{}: the checkpoint is damaged: it is not JSON; {}", where, advice);
  if (!described.is_object() || described.value("format", json()) != kCheckpointFormat) {
    fail_user("{}: no checkpoint of Overtake's: \"format\" is not \"{}\"; check the path", where, kCheckpointFormat);
  }
  const json version = described.value("version", json());
  const bool is_without_checksum = version == kVersionWithoutChecksum || version == kVersionWithoutNetwork;
  if (version != kVersion && !is_without_checksum) {
    fail_user("{}: checkpoint version {}, this Overtake reads {} to {}; use the Overtake that wrote it", where,
              version.dump(), kVersionWithoutNetwork, kVersion);
  }
  return described;
}

// NAME.json.
json read_description(const fs::path& json_path) {
  const std::string where = json_path.string();
  std::error_code unreadable;  // then reading gives the reason
  if (!fs::exists(json_path, unreadable) && !unreadable) fail_user("{}: no such checkpoint; check the path", where);
  const json described = parse_description(read_file(json_path), where, remedy(json_path));
  if (!described.contains(kChecksum) && described["version"] != kVersion) return described;
  if (const std::string checksum = checksum_of(described); described.value(kChecksum, json()) != checksum) {
    fail_user("{}: the checkpoint is damaged: it has the checksum {}, and says {}; {}", where, checksum,
              text_of(described.value(kChecksum, json())), remedy(json_path));
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

const json& object_at(const json& described, const char* key) {
  const json& value = described.at(key);
  if (!value.is_object()) throw json::type_error::create(302, fmt::format("{} is {}", key, value.dump()), &value);
  return value;
}

// Those that are read here; the others are only compared.
json settings_from(const json& described) {
  const json& settings = object_at(described, "settings");
  check_kept(settings);
  if (settings.contains("weight_names")) {
    const json& names = object_at(settings, "weight_names");
    for (const char* key : {"remove", "add"}) names.at(key).get_ref<const std::string&>();
  }
  return settings;
}

// Everything but the tensors. Missing or mistyped entries surface as json exceptions.
CheckpointState state_from(const json& described) {
  CheckpointState state;
  state.step = natural(described, "step");
  state.epoch = natural(described, "epoch");
  state.batch = natural(described, "batch");
  state.seed = natural(described, "seed");
  if (!described.at("loss").is_null()) state.loss = described.at("loss").get<double>();
  state.model = described.at("model").at("name").get<std::string>();
  state.model_settings = object_at(described.at("model"), "settings");
  state.settings = settings_from(described);
  state.has_checksum = described.at("version") == kVersion;
  return state;
}

TensorsReference reference_of(const json& described) {
  const json& tensors = described.at("tensors");
  return {tensors.at("file").get<std::string>(), tensors.at("hash").get<std::string>()};
}

std::pair<CheckpointState, TensorsReference> read_state(const fs::path& json_path) {
  const json described = read_description(json_path);
  try {
    return {state_from(described), reference_of(described)};
  } catch (const std::exception& error) {  // what json throws, and of settings a UserError
    fail_user("{}: the checkpoint is damaged: {}; {}", json_path.string(), error.what(), remedy(json_path));
  }
}

TensorFile read_matching(const fs::path& path, const std::string& hash, const fs::path& json_path) {
  TensorFile tensors = read_safetensors(path);
  if (hash_text(tensors.hash) != hash) {
    fail_user(
        "{}: hash {} where {} says {}: the two are not of one checkpoint, or one is damaged; copy both files again, "
        "or {}",
        path.string(), hash_text(tensors.hash), json_path.string(), hash, remedy(json_path, path.filename().string()));
  }
  return tensors;
}

// The tensors beside the JSON file; nothing when there is no such file.
std::optional<TensorFile> read_tensors(const fs::path& json_path, const TensorsReference& reference) {
  if (fs::path(reference.file).has_parent_path()) {
    fail_user("{}: the checkpoint is damaged: its tensors file {} is not beside it; {}", json_path.string(),
              reference.file, remedy(json_path));
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
std::optional<Graph> take_network_from(std::vector<NamedTensor>& tensors, const fs::path& path) {
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
  fail_user("{}: the checkpoint is damaged: its network: {}; resume from another checkpoint", path.string(), why);
}

// A generation's own file, with all that is in a checkpoint.
CheckpointState load_generation(const fs::path& path) {
  const std::string where = path.string();
  const std::optional<Generation> generation = generation_of(path.filename().string());
  if (!generation) {
    fail_user("{}: no checkpoint: its name does not end in -STEP-CHECKSUM{}; give back the name that it had", where,
              kTensorsEnding);
  }
  std::error_code unreadable;  // then reading gives the reason
  if (!fs::exists(path, unreadable) && !unreadable) fail_user("{}: no such checkpoint; check the path", where);
  const std::string advice = remedy(path.parent_path() / (generation->name + ".json"), generation->file());
  TensorFile file = read_safetensors(path);
  if (hash_text(file.hash) != generation->checksum) {
    fail_user("{}: the checkpoint is damaged: it has the checksum {}, and its name says {}; {}", where,
              hash_text(file.hash), generation->checksum, advice);
  }
  const auto description = file.metadata.find(std::string(kDescriptionKey));
  if (description == file.metadata.end()) {
    fail_user("{}: these are tensors of a checkpoint of an earlier version; resume from its JSON file", where);
  }
  const json described = parse_description(description->second, where, advice);
  try {
    CheckpointState state = state_from(described);
    state.tensors = std::move(file.tensors);
    state.network = take_network_from(state.tensors, path);
    return state;
  } catch (const std::exception& error) {
    fail_user("{}: the checkpoint is damaged: {}; {}", where, error.what(), advice);
  }
}

}  // namespace

json description_of(const CheckpointState& state) {
  return {{"format", kCheckpointFormat},
          {"version", kVersion},
          {"step", state.step},
          {"epoch", state.epoch},
          {"batch", state.batch},
          {"seed", state.seed},
          {"loss", std::isfinite(state.loss) ? json(state.loss) : json(nullptr)},
          {"model", {{"name", state.model}, {"settings", state.model_settings}}},
          {"settings", state.settings}};
}

std::string checkpoint_json(json description, const std::string& tensors_file, const WrittenTensors& written) {
  description["tensors"] = {{"file", tensors_file}, {"bytes", written.bytes}, {"hash", hash_text(written.hash)}};
  description[kChecksum] = checksum_of(description);
  return text_of(description, 2) + "\n";
}

CheckpointFacts read_checkpoint_json(const fs::path& json_path) {
  const auto [state, reference] = read_state(json_path);
  return {state.step, reference.file};
}

CheckpointState load_checkpoint(const fs::path& path) {
  if (path.extension() == kTensorsEnding) return load_generation(path);
  const fs::path json_path = checkpoint_json_path(path);
  auto [state, reference] = read_state(json_path);
  for (int unchanged = 0;;) {
    if (std::optional<TensorFile> tensors = read_tensors(json_path, reference)) {
      state.tensors = std::move(tensors->tensors);
      state.network = take_network_from(state.tensors, json_path);
      return std::move(state);
    }
    // A run that is still saving may have replaced both files since the JSON was read: then look again.
    const std::string missing = std::exchange(reference.file, "");
    std::tie(state, reference) = read_state(json_path);
    unchanged = reference.file == missing ? unchanged + 1 : 0;
    if (unchanged == 2) {
      fail_user("{}: its tensors file is missing: {}; copy it beside the JSON file, or {}", json_path.string(),
                (json_path.parent_path() / missing).string(), remedy(json_path, missing));
    }
  }
}

}  // namespace overtake
