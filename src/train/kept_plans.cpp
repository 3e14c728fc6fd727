#include "train/kept_plans.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "overtake/version.h"
#include "plan/detail_of.h"
#include "plan/program.h"
#include "run/field.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Another build may plan otherwise, and so may one of the same commit with changes.
std::string build() {
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  const auto written = fs::last_write_time(program, unknown).time_since_epoch().count();
  return fmt::format("{} {} {} {}", version(), commit(), fs::file_size(program, unknown), written);
}

std::string key_of(const Program& step, const RunSpec& spec, const Workplace& place) {
  Hash64 hash;
  hash.add(build());
  hash.add(place.backend->identity());
  hash.add(fmt::format("{} {} {:016x} {}", place.cores(), to_string(place.backend->precision()),
                       fingerprint(step.step).hash, spec.predict));
  for (const Field& field : fields()) {
    if (!field.is_of(Command::plan) || field.on_resume == OnResume::once || field.name == "plan_seconds") continue;
    hash.add(fmt::format("{} {}\n", field.name, value_text(value_of(spec, field))));
  }
  return hash_text(hash.value());
}

void check(const Program& p) {
  OVERTAKE_CHECK(p.chosen < p.choices.size(), "it has no choice {}", p.chosen);
  OVERTAKE_CHECK(p.costs.size() == 1 && p.costs[0].size() == costed_graph(p).tasks.size(), "it is of another step");
  if (const TaskOrder& order = p.choice().order; order.is_given()) verify(with_order(costed_graph(p), order));
}

}  // namespace

KeptPlans::KeptPlans(const Program& step, const RunSpec& spec, const Workplace& place, const CompileOptions& options)
    : place_(place), may_take_(place.profiling.use_kept) {
  const bool is_measured = spec.machine.empty() && spec.schedule != "in-order";
  if (!is_measured || step.is_outlined() || options.own_order || place.profiling.folder.empty()) return;
  file_ = place.profiling.folder / fmt::format("plan-{}.json", key_of(step, spec, place));
}

bool KeptPlans::take(Program& program) const {
  std::error_code unreadable;
  if (file_.empty() || !may_take_ || !fs::exists(file_, unreadable)) return false;
  Program kept = program;
  try {
    const json in = parse_json(read_file(file_));
    place_.time->know_step(in.at("step_s").get<double>());
    if (!place_.time->is_no_longer(in.at("cut_after_s").get<double>())) return false;
    take_choices(kept, in.at("choices").dump());
    check(kept);
  } catch (const std::exception& e) {
    if (place_.note) place_.note(fmt::format("plan {}: it is damaged ({}); planning anew", file_.string(), e.what()));
    return false;
  }
  program = std::move(kept);
  if (place_.note) place_.note("planned before on this machine, and taken from there; `fresh_profile true` plans anew");
  return true;
}

void KeptPlans::keep(const Program& program) const {
  if (file_.empty() || program.costs.empty()) return;
  const PlanningTime& time = *place_.time;
  const PlanChoice& in_order = program.choices[0];
  const json out = {
      {"cut_after_s", time.is_cut() ? time.limit() : 0},
      {"step_s", 1e-9 * static_cast<double>(in_order.measured_ns > 0 ? in_order.measured_ns : in_order.predicted_ns)},
      {"choices", parse_json(save_choices(program))}};
  try {
    create_folders(file_.parent_path());
    write_file_atomically(file_, out.dump());
  } catch (const UserError& e) {
    if (place_.note) place_.note(fmt::format("the plan is not kept: {}", e.what()));
  }
}

}  // namespace overtake
