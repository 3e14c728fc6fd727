#include "cli/resumed_run.h"

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/hash.h"
#include "base/json.h"
#include "cli/connect_ranks.h"
#include "cli/say.h"
#include "run/resume.h"
#include "train/weights.h"

namespace overtake {

ResumedRun read_resumed(const RunSpec& asked, const std::optional<Worker>& worker) {
  ResumedRun resumed;
  const auto read = [&] {
    resumed.state = load_checkpoint(asked.resume);
    return dumped({{"settings", all_settings(*resumed.state)}, {"steps", resumed.state->step}});
  };
  const nlohmann::json shared = parse_json(text_of_first(worker, "resumed", asked.patience, read));
  resumed.settings = shared.at("settings");
  resumed.steps = shared.at("steps").get<std::uint64_t>();
  return resumed;
}

RunSpec resumed_spec(const ResumedRun& resumed, const RunSpec& asked, const std::vector<const Field*>& given) {
  RunSpec spec = taken_up(resumed.settings, asked, given, asked.resume);
  // A file of tensors is an older state of a checkpoint, which does not end with it.
  if (spec.save.empty() && std::filesystem::path(spec.resume).extension() != ".safetensors") spec.save = spec.resume;
  return spec;
}

void say_finished(const ResumedRun& resumed, const RunSpec& spec, const LoopOptions& loop, bool json) {
  const CheckpointState& state = *resumed.state;
  print_note(loop.steps != 0 ? fmt::format("the run in {} finished at step {}; give `steps` above {} to go on",
                                           spec.resume, resumed.steps, loop.total)
                             : fmt::format("the run in {} finished at step {}; give `epochs` above {} to go on",
                                           spec.resume, resumed.steps, loop.epochs));
  if (!json) return;
  nlohmann::json out = {{"steps", resumed.steps}, {"finished", true}, {"interrupted", false}, {"spec", json_of(spec)}};
  if (std::isfinite(state.loss)) out["loss"] = state.loss;
  if (state.network) out["weights_hash"] = hash_text(weights_hash(state));
  say("{}", dumped(out));
}

}  // namespace overtake
