#include "train/checkpoint_saver.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kLongestPartial = sizeof(".partial-4194304-99") - 1;

// The longest that a name of this checkpoint's files may become.
Generation longest_of(const std::string& name) {
  return {.name = name, .step = std::numeric_limits<std::uint64_t>::max(), .checksum = hash_text(0)};
}

// What is written must be found again under its name, which is in JSON.
void check_name(const fs::path& json_path) {
  const std::string name = checkpoint_name(json_path), where = (json_path.parent_path() / name).string();
  if (fs::path(name).extension() == kTensorsEnding)
    fail_user("`save {}`: {} is the ending of a checkpoint's tensors; leave it out", where, kTensorsEnding);
  try {
    static_cast<void>(json(name).dump());
  } catch (const json::exception&) {
    fail_user("`save {}`: the name is not UTF-8, and could not be read back; choose another name", where);
  }
}

// In a folder that is there.
void check_length(const fs::path& json_path) {
  const std::string name = checkpoint_name(json_path);
  const long most = ::pathconf(json_path.parent_path().c_str(), _PC_NAME_MAX);
  const std::size_t longest = longest_of(name).file().size() + kLongestPartial;
  if (most > 0 && longest > static_cast<std::size_t>(most))
    fail_user("`save {}`: the name is too long by {} bytes for the files of a checkpoint; choose a shorter one",
              (json_path.parent_path() / name).string(), longest - static_cast<std::size_t>(most));
}

bool is_there(const fs::path& path) {
  std::error_code unknown;
  return fs::symlink_status(path, unknown).type() != fs::file_type::not_found;
}

bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code unknown;
  return fs::equivalent(a, b, unknown) && !unknown;
}

// Of what the run goes on from, if that is a generation of this checkpoint.
std::optional<CheckpointFacts> own_start(const fs::path& json_path, const fs::path& resume) {
  if (resume.empty()) return std::nullopt;
  if (resume.extension() != kTensorsEnding)
    return is_same_file(checkpoint_json_path(resume), json_path) ? std::optional(read_checkpoint_json(json_path))
                                                                 : std::nullopt;
  const std::optional<Generation> generation = generation_of(resume.filename().string());
  if (!generation || !is_same_file(json_path.parent_path() / generation->file(), resume) ||
      generation->name != checkpoint_name(json_path))
    return std::nullopt;
  return CheckpointFacts{.step = generation->step, .tensors_file = generation->file()};
}

}  // namespace

CheckpointSaver::CheckpointSaver(const fs::path& path, const SaverOptions& options)
    : json_path_(checkpoint_json_path(path)), keep_(options.keep) {
  OVERTAKE_CHECK(keep_ > 0, "no generation is kept");
  check_name(json_path_);
  create_folders(json_path_.parent_path());
  check_length(json_path_);
  check_writable(json_path_);
  lock();
  take_over(options);
}

void CheckpointSaver::lock() {
  const fs::path file = json_path_.parent_path() / (checkpoint_name(json_path_) + ".overtake-lock");
  lock_.emplace(file);
  if (lock_->state() == FileLock::State::taken)
    fail_user("`save {}`: {} saves there already; wait for its end, or give another name",
              (json_path_.parent_path() / checkpoint_name(json_path_)).string(), lock_->other());
}

// What there is under this name before the run: its own, or another run's.
void CheckpointSaver::take_over(const SaverOptions& options) {
  const std::string where = (json_path_.parent_path() / checkpoint_name(json_path_)).string();
  std::vector<Generation> found = generations_beside(json_path_);
  std::erase_if(found,
                [&](const Generation& g) { return !is_written_by_overtake(json_path_.parent_path() / g.file()); });
  const bool has_json = is_there(json_path_);
  const std::optional<CheckpointFacts> start = own_start(json_path_, options.resume);
  if (!start) {
    // The first save of a run that was killed in the middle of it is no checkpoint yet.
    const bool is_unfinished = found.size() == 1 && !lock_->other().empty();
    if (options.overwrite || (!has_json && (found.empty() || is_unfinished))) return;
    fail_user(
        "`save {}`: there is a checkpoint of this name already, {}; go on from it with `resume`, give another name, or "
        "give it up with `overwrite`",
        where, has_json ? json_path_.filename().string() : found.back().file());
  }
  const std::uint64_t newest = has_json ? read_checkpoint_json(json_path_).step : start->step;
  if (newest > start->step && !options.overwrite)
    fail_user(
        "`save {}`: it is at step {} already, and this run goes on from step {}; give another name, or give up what "
        "is newer with `overwrite`",
        where, newest, start->step);
  for (const Generation& g : found)
    if (g.step < start->step || g.file() == start->tensors_file) kept_.push_back(g);
  newest_ = start->step;
  if (newest == start->step) remove_oldest();
}

// Also what saves that were killed had not come to.
void CheckpointSaver::remove_oldest() {
  std::error_code ignored;
  for (; kept_.size() > keep_; kept_.erase(kept_.begin()))
    fs::remove(json_path_.parent_path() / kept_.front().file(), ignored);
}

void CheckpointSaver::save(const CheckpointState& state) {
  OVERTAKE_CHECK(!newest_ || state.step >= *newest_, "step {} is saved after step {}", state.step, *newest_);
  const fs::path folder = json_path_.parent_path();
  create_folders(folder);
  std::error_code ignored;
  for (const fs::path& path : unfinished_beside(json_path_)) fs::remove(path, ignored);
  remove_unnamed();

  json description = description_of(state);
  std::vector<NamedTensor> all = state.tensors;
  const std::string network = state.network ? save_json(*state.network) : "";
  if (state.network)
    all.push_back({.name = std::string(kNetworkTensor),
                   .type = StoredType::u8,
                   .dims = {std::ssize(network)},
                   .bytes = std::as_bytes(std::span(network))});
  const std::string name = checkpoint_name(json_path_);
  AtomicFile tensors(folder / longest_of(name).file());
  const WrittenTensors written = write_safetensors(
      tensors, all,
      {{"writer", "overtake"},
       {std::string(kDescriptionKey), description.dump(-1, ' ', false, json::error_handler_t::replace)}});
  // The checksum in the name makes it the content's own: a new generation never takes the place of another.
  const Generation made{.name = name, .step = state.step, .checksum = hash_text(written.hash)};
  tensors.commit_as(made.file());
  unnamed_ = made;
  write_file_atomically(json_path_, checkpoint_json(std::move(description), made.file(), written));

  unnamed_.reset();
  newest_ = state.step;
  std::erase_if(kept_, [&](const Generation& g) { return g.step >= state.step; });
  kept_.push_back(made);
  remove_oldest();
  remove_others();
}

// Makes room for another try. The only generation that there is stays.
void CheckpointSaver::remove_unnamed() {
  const std::optional<Generation> unnamed = std::exchange(unnamed_, std::nullopt);
  if (!unnamed || !newest_ || std::ranges::find(kept_, *unnamed) != kept_.end()) return;
  std::error_code ignored;
  try {
    if (read_checkpoint_json(json_path_).tensors_file == unnamed->file()) return;
  } catch (const UserError&) {
    return;
  }
  fs::remove(json_path_.parent_path() / unnamed->file(), ignored);
}

// Generations beyond those that are kept, of runs that were given up, and of saves that did not come to NAME.json.
// A file that cannot be deleted costs only space.
void CheckpointSaver::remove_others() const {
  std::error_code ignored;
  for (const Generation& g : generations_beside(json_path_)) {
    const fs::path path = json_path_.parent_path() / g.file();
    if (std::ranges::find(kept_, g) == kept_.end() && is_written_by_overtake(path)) fs::remove(path, ignored);
  }
}

}  // namespace overtake
