#include "train/profiling.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/median.h"
#include "base/seconds_since.h"
#include "plan/divide/side_by_side.h"
#include "plan/in_order.h"
#include "plan/lanes/join_gradients.h"
#include "plan/lanes/joint_schedule.h"
#include "plan/memory.h"
#include "sim/lane_simulator.h"
#include "train/initial_values.h"
#include "train/progress_notes.h"
#include "train/timing.h"

namespace overtake {
namespace {

constexpr int kSteps = 12, kTracedSteps = 5, kMostSteps = 200, kRounds = 3, kPairsPerClass = 4;
constexpr int kStepRounds = 5;
constexpr double kLeastFactor = 0.4, kMostFactor = 2.0;  // of loads measured in the cache
constexpr double kStepsMs = 60;                          // how long the steps that are timed are to take at least
constexpr double kAloneMs = 400;                         // the same where they are all there is to time
constexpr double kListNs = 120'000;                      // how long a list of repeated tasks is to take
constexpr std::int64_t kNothing = 300;                   // a task below this does nothing: a view
constexpr std::size_t kMostRepeats = 64;

// Classes of tasks repeated on two lanes side by side, in memory that no two tasks share.
class PairMeasurer {
 public:
  PairMeasurer(Executor& executor, std::size_t program, const TaskClasses& classes, const ProfilingOptions& options,
               ProgressNotes& notes)
      : executor_(executor),
        program_(program),
        classes_(classes),
        seconds_(options.seconds),
        time_(*options.time),
        notes_(notes) {}

  // Every side class beside a few main classes and the other way round, those that take longest in the step first.
  std::vector<CoRun> run(std::vector<std::uint32_t> main, std::vector<std::uint32_t> side,
                         const std::vector<std::int64_t>& class_ns) {
    const auto keep_worthwhile = [&](std::vector<std::uint32_t>& list) {
      std::erase_if(list, [&](std::uint32_t c) { return class_ns[c] < kNothing; });
      std::ranges::sort(list, std::greater{}, [&](std::uint32_t c) {
        return class_ns[c] * static_cast<std::int64_t>(classes_.members[c].size());
      });
    };
    keep_worthwhile(main);
    keep_worthwhile(side);
    if (main.empty() || side.empty()) return {};
    for (int round = 0; round < kPairsPerClass; ++round) {
      const std::size_t longest = std::max(main.size(), side.size());
      for (std::size_t i = 0; i < longest; ++i) {
        if (is_over()) {
          if (time_.is_over(PlanningTime::kPairsPart))
            time_.leave_out(fmt::format("{} of {} pairs of tasks were measured side by side", pairs_.size(),
                                        kPairsPerClass * longest));
          return pairs_;
        }
        notes_.say([&] {
          return fmt::format("planning: {} of {} pairs of tasks measured side by side; at most {:.0f} s more",
                             pairs_.size(), kPairsPerClass * longest, seconds_left());
        });
        const std::size_t j = i * static_cast<std::size_t>(1 + round) + static_cast<std::size_t>(7 * round);
        if (main.size() >= side.size())
          measure(main[i], side[j % side.size()], class_ns);
        else
          measure(main[j % main.size()], side[i], class_ns);
      }
    }
    return pairs_;
  }

  bool is_over() const { return seconds_left() <= 0; }
  double seconds_left() const {
    return std::max(0.0, std::min(seconds_ - seconds_since(start_), time_.left(PlanningTime::kPairsPart)));
  }

  // What two tasks take at once, of what they take one after the other.
  double at_once(TaskId a, TaskId b, std::int64_t ns) {
    const auto count = static_cast<std::size_t>(std::clamp(kListNs / static_cast<double>(std::max<std::int64_t>(1, ns)),
                                                           1.0, static_cast<double>(kMostRepeats)));
    const std::vector<TaskId> first(count, a), second(count, b);
    std::vector<TaskId> in_turn = first;
    in_turn.insert(in_turn.end(), second.begin(), second.end());
    const std::int64_t apart = executor_.time_lanes(program_, {in_turn}, kRounds)[0];
    const std::int64_t together = std::ranges::max(executor_.time_lanes(program_, {first, second}, kRounds));
    return static_cast<double>(together) / static_cast<double>(std::max<std::int64_t>(1, apart));
  }

 private:
  std::vector<TaskId> repeated(std::uint32_t c, std::int64_t class_ns) const {
    const auto count =
        std::clamp(static_cast<std::size_t>(kListNs / static_cast<double>(class_ns)), std::size_t{1}, kMostRepeats);
    std::vector<TaskId> tasks;
    for (std::size_t i = 0; i < count; ++i) tasks.push_back(classes_.members[c][i % classes_.members[c].size()]);
    return tasks;
  }

  // Alone and together one right after the other: the speed of a machine changes while it is measured.
  void measure(std::uint32_t main, std::uint32_t side, const std::vector<std::int64_t>& class_ns) {
    const std::vector<TaskId> a = repeated(main, class_ns[main]), b = repeated(side, class_ns[side]);
    const std::int64_t together = std::ranges::max(executor_.time_lanes(program_, {a, b}, kRounds));
    const std::int64_t a_ns = executor_.time_lanes(program_, {a}, kRounds)[0],
                       b_ns = executor_.time_lanes(program_, {b}, kRounds)[0];
    pairs_.push_back({main, side, a_ns, b_ns, together});
  }

  Executor& executor_;
  std::size_t program_;
  const TaskClasses& classes_;
  double seconds_;
  PlanningTime& time_;
  ProgressNotes& notes_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<CoRun> pairs_;
};

// Per task: of weight gradients that have one, what they take as one with their layer's input gradient.
std::vector<std::int64_t> joint_times(const Graph& graph, const TaskClasses& classes, const Profile& profile,
                                      PairMeasurer& measurer) {
  std::vector<std::int64_t> joint(graph.tasks.size(), 0);
  const std::vector<TaskId> partners = gradient_partners(graph);
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> known;  // by classes
  for (TaskId t = 0; t < graph.tasks.size(); ++t) {
    if (partners[t] == kNone) continue;
    const std::int64_t apart = profile.alone_ns[t] + profile.alone_ns[partners[t]];
    const auto [it, is_new] = known.try_emplace({classes.of[t], classes.of[partners[t]]}, 1.0);
    if (is_new && !measurer.is_over()) it->second = measurer.at_once(partners[t], t, apart);
    joint[t] = std::llround(it->second * static_cast<double>(apart));
  }
  return joint;
}

StepArgs measured_step() { return {.step = 0, .seed = 1, .learning_rate = 0.0f}; }

// What a step takes, after a few that warm up as far as there is time for them.
double first_step_ms(Executor& executor, PlanningTime& time) {
  double ms = time_steps(executor, 0, 1, measured_step()).back();
  if (const int more = time.affordable(2, 1e-3 * ms, PlanningTime::kStepPart / 3); more > 0)
    ms = time_steps(executor, 0, more, measured_step()).back();
  time.know_step(1e-3 * ms);
  return ms;
}

// Of an executor's first program, the step in order, from steps of `least_ms` together. Loads are 1. Of a run that is
// too short to be planned, only what a step takes.
Profile in_order_profile(Executor& executor, const Graph& graph, double least_ms, PlanningTime& time) {
  Profile profile;
  const double first_ms = first_step_ms(executor, time);
  profile.in_order_ns = std::llround(first_ms * 1e6);
  if (!time.is_worthwhile()) return profile;
  const auto affordable = [&](int wanted, double part) {
    return time.affordable(wanted, 1e-3 * first_ms, part * PlanningTime::kStepPart);
  };
  // A device that has idled takes a while to reach its speed.
  if (const int warm = affordable(steps_lasting(least_ms / 4, first_ms, 1, kMostSteps), 0.5); warm > 0)
    time_steps(executor, 0, warm, measured_step());
  const int wanted = steps_lasting(least_ms, first_ms, kSteps, kMostSteps), steps = affordable(wanted, 0.75);
  if (steps > 0) {
    std::vector<double> ms = time_steps(executor, 0, steps, measured_step());
    profile.in_order_ns = static_cast<std::int64_t>(median(ms) * 1e6);
  }
  std::vector<Trace> traces;
  for (int i = 0; i < std::max(1, affordable(kTracedSteps * wanted / kSteps, 1)); ++i)
    traces.push_back(executor.run_traced(0, measured_step()));
  profile.alone_ns = without_overhead(median_times(traces, graph.tasks.size()), profile.in_order_ns);
  profile.load.assign(graph.tasks.size(), 1.0);
  return profile;
}

// Repeated tasks find their operands in the cache, tasks of a step often do not, and then they get on better side by
// side. So one plan out of order is run beside the one in order, and all loads are changed by the factor with which the
// model says of that plan what was measured.
void adapt_loads_to_steps(Profile& profile, const Graph& graph, Backend& backend, PlanningTime& time) {
  // Of each of the two plans: the step, and the one that a plan which delays tasks needs to begin.
  const double step_s = 1e-9 * static_cast<double>(profile.in_order_ns);
  const int most_steps = time.affordable(4 * kMostSteps * (kStepRounds + 1), step_s, PlanningTime::kMeasuringPart) /
                         (4 * (kStepRounds + 1));
  if (most_steps == 0) return time.leave_out("loads of tasks were not compared with a whole step");
  Profile changed = profile;
  changed.load.assign(graph.tasks.size(), 0.5);  // as if all of them got on well, so that many run side by side
  const Plan out_of_order = schedule_jointly(graph, changed, {.side_lanes = 1, .most_tries = 0});
  const auto executor = backend.make_executor({place_memory(schedule_in_order(graph)), place_memory(out_of_order)});
  fill_to_be_timed(*executor);
  const int steps = std::min(most_steps, steps_lasting(kStepsMs / 2, 1e3 * step_s, 2, kMostSteps));
  std::vector<double> ratios;
  for (int round = 0; round <= kStepRounds; ++round) {
    std::vector<double> one = time_steps(*executor, 0, steps, measured_step()),
                        other = time_steps(*executor, 1, steps, measured_step());
    if (round > 0) ratios.push_back(median(other) / median(one));  // the first warms up
  }
  const double wanted = median(ratios) * static_cast<double>(profile.in_order_ns);
  double low = kLeastFactor, high = kMostFactor;
  for (int i = 0; i < 20; ++i) {
    const double middle = std::sqrt(low * high);
    for (TaskId t = 0; t < graph.tasks.size(); ++t) changed.load[t] = middle * profile.load[t];
    (static_cast<double>(simulate(out_of_order, changed).step_ns) < wanted ? low : high) = middle;
  }
  profile = changed;
}

// On as many devices as there is memory for.
Plan placed_side_by_side(const Graph& graph, const Backend& backend, std::uint32_t devices,
                         const std::function<void(const std::string&)>& note) {
  for (std::uint32_t n = devices;; --n) {
    Plan plan = place_memory(side_by_side(graph, n));
    if (n > 1 && !backend.has_room_for(plan.arena_bytes + plan.arena_bytes / 4)) continue;
    if (n < devices && note)
      note(fmt::format("there is not enough memory to measure tasks while all {} devices work; only {} did", devices,
                       n));
    return plan;
  }
}

std::filesystem::path path_of(const std::string& key, const ProfilingOptions& options) {
  return options.folder / (key + ".json");
}

void note(const ProfilingOptions& options, const std::string& text) {
  if (options.note) options.note(text);
}

std::string profile_key(const Graph& graph, const Backend& backend) {
  const TaskClasses classes = classify(graph);
  Hash64 hash;
  hash.add(backend.identity());
  hash.add(std::as_bytes(std::span(classes.signatures)));
  hash.add(std::as_bytes(std::span(classes.of)));
  hash.add(fmt::format("{} {}", graph.parts, to_string(backend.precision())));
  return fmt::format("{:016x}", hash.value());
}

std::optional<Profile> kept_profile(const std::string& key, std::size_t tasks, const ProfilingOptions& options) {
  const std::filesystem::path path = path_of(key, options);
  std::error_code unreadable;
  if (options.folder.empty() || !options.use_kept || !std::filesystem::exists(path, unreadable)) return {};
  try {
    if (std::optional<Profile> kept = load_profile_json(read_file(path), key, tasks)) {
      options.time->know_step(1e-9 * static_cast<double>(kept->in_order_ns));
      if (!options.time->is_no_longer(kept->cut_after_s)) return {};
      return kept;
    }
    note(options, fmt::format("profile {}: it is of something else; measuring anew", path.string()));
  } catch (const std::exception& e) {
    note(options, fmt::format("profile {}: it is damaged ({}); measuring anew", path.string(), e.what()));
  }
  return {};
}

void keep_profile(Profile profile, const std::string& key, const ProfilingOptions& options) {
  if (options.folder.empty()) return;
  try {
    create_folders(options.folder);
    profile.cut_after_s = options.time->is_cut() ? options.time->limit() : 0;
    write_file_atomically(path_of(key, options), save_json(profile, key));
  } catch (const UserError& e) {
    note(options, fmt::format("the profile is not kept: {}", e.what()));
  }
}

}  // namespace

std::filesystem::path default_profile_folder() {
  const std::filesystem::path cache = user_cache_folder();
  return cache.empty() ? cache : cache / "profiles";
}

Profile measure_alone(const Graph& graph, Backend& backend, const std::shared_ptr<PlanningTime>& time) {
  const auto executor = backend.make_executor({place_memory(schedule_in_order(graph))});
  fill_to_be_timed(*executor);
  return in_order_profile(*executor, graph, kAloneMs, *time);
}

Profile measure_beside_others(const Graph& graph, Backend& backend, std::uint32_t devices,
                              const std::function<void(const std::string&)>& note,
                              const std::shared_ptr<PlanningTime>& time) {
  const auto executor = backend.make_executor({placed_side_by_side(graph, backend, devices, note)});
  fill_to_be_timed(*executor);
  const Plan& plan = executor->plan(0);
  const double first_ms = first_step_ms(*executor, *time);
  const auto affordable = [&](int wanted, double part) {
    return std::max(1, time->affordable(wanted, 1e-3 * first_ms, part * PlanningTime::kMeasuringPart));
  };
  time_steps(*executor, 0, affordable(steps_lasting(kAloneMs / 4, first_ms, 1, kMostSteps), 0.4), measured_step());
  const int wanted = steps_lasting(kAloneMs, first_ms, kSteps, kMostSteps);
  std::vector<Trace> traces;
  for (int i = 0, most = affordable(kTracedSteps * wanted / kSteps, 0.7); i < most; ++i)
    traces.push_back(executor->run_traced(0, measured_step()));
  const int steps = affordable(wanted, 1);
  const std::vector<std::int64_t> traced_ns = median_times(traces, plan.graph.tasks.size());
  std::vector<std::vector<TaskId>> lanes;
  for (const Lane& lane : plan.lanes) lanes.push_back(lane.tasks);
  std::vector<std::int64_t> first_lane;
  for (const TaskId t : lanes[0]) first_lane.push_back(traced_ns[t]);
  // The step's other devices may end later; of the first one's lane it is known when it ends without being traced.
  first_lane = without_overhead(std::move(first_lane), executor->time_lanes(0, lanes, steps)[0]);
  Profile profile;
  profile.alone_ns.assign(first_lane.end() - std::ssize(graph.tasks), first_lane.end());
  profile.in_order_ns = std::accumulate(profile.alone_ns.begin(), profile.alone_ns.end(), std::int64_t{0});
  profile.load.assign(graph.tasks.size(), 1.0);
  return profile;
}

Profile measure_profile(const Graph& graph, Backend& backend, const ProfilingOptions& options, bool* is_whole) {
  ProgressNotes notes(options.note);
  const TaskClasses classes = classify(graph);
  Plan apart = place_memory_apart(schedule_in_order(graph));
  std::vector<Plan> plans = {place_memory(schedule_in_order(graph))};
  const bool has_room = backend.most_lanes() > 1 && backend.has_room_for(apart.arena_bytes + apart.arena_bytes / 4);
  if (has_room) plans.push_back(std::move(apart));
  auto executor = backend.make_executor(std::move(plans));
  fill_to_be_timed(*executor);

  Profile profile = in_order_profile(*executor, graph, kStepsMs, *options.time);
  if (is_whole != nullptr) *is_whole = has_room || backend.most_lanes() < 2;
  if (!has_room || !options.time->is_worthwhile()) return profile;
  executor->run(1, measured_step());  // so that every operand holds what its task would find
  const std::vector<char> is_deferrable = deferrable_tasks(graph, dependencies(graph));
  std::vector<std::int64_t> class_ns;
  std::vector<std::uint32_t> main, side;
  for (std::uint32_t c = 0; c < classes.members.size(); ++c) {
    std::vector<std::int64_t> times;
    for (const TaskId t : classes.members[c]) times.push_back(profile.alone_ns[t]);
    class_ns.push_back(median(times));
    (is_deferrable[classes.members[c][0]] ? side : main).push_back(c);
  }
  PairMeasurer measurer(*executor, 1, classes, options, notes);
  if (backend.target().joins_gradients()) profile.joint_ns = joint_times(graph, classes, profile, measurer);
  const std::vector<CoRun> pairs = measurer.run(main, side, class_ns);
  const std::vector<double> loads = fit_loads(classes.members.size(), pairs);
  for (TaskId t = 0; t < graph.tasks.size(); ++t) profile.load[t] = loads[classes.of[t]];
  executor.reset();  // its memory is needed for another
  adapt_loads_to_steps(profile, graph, backend, *options.time);
  return profile;
}

Profile profile_of(const Graph& graph, Backend& backend, const ProfilingOptions& options) {
  const std::string key = profile_key(graph, backend);
  if (const std::optional<Profile> kept = kept_profile(key, graph.tasks.size(), options)) return *kept;
  bool is_whole = true;
  const Profile profile = measure_profile(graph, backend, options, &is_whole);
  if (profile.alone_ns.empty()) return profile;
  if (is_whole)
    keep_profile(profile, key, options);
  else
    note(options, "there is not enough memory to measure tasks side by side; the plan assumes that none gains from it");
  return profile;
}

}  // namespace overtake
