#include "train/planning.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "base/median.h"
#include "base/philox.h"
#include "plan/in_order.h"
#include "plan/lanes/join_gradients.h"
#include "plan/lanes/joint_schedule.h"
#include "plan/memory.h"
#include "sim/lane_simulator.h"
#include "train/timing.h"

namespace overtake {
namespace {

constexpr int kTrialRounds = 5, kRoundsToWin = 4, kTrialSteps = 4, kMostTrialSteps = 100;
constexpr double kTrialMs = 20;                     // how long the steps of a round are to take at least
constexpr double kWorthwhile = 0.99;                // of the time in order
constexpr double kMemoryByDefault = 1.10;           // of the memory in order
constexpr std::size_t kNumbersOfAThread = 1 << 16;  // random ones; fewer are not worth another
constexpr std::int64_t kSomeNumbers = 65'521;       // a prime, so that rows of matrices differ

// Exclusive upper bound of the ids an integer input may hold, by who reads it.
std::int64_t id_bound(const Graph& g, BufferId input) {
  std::int64_t bound = 2;
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].kind != Kind::forward) continue;
    const auto reads = g.reads(t);
    const Attrs& attrs = g.attrs_of(g.tasks[t]);
    if (g.tasks[t].op == Op::embedding && reads[0] == input) bound = attrs.integer("vocabulary");
    if (g.tasks[t].op == Op::cross_entropy && reads[1] == input)
      bound = attrs.integer("classes", g.buffers[reads[0]].shape.back());
  }
  return bound;
}

// A pair of normal numbers from two words (Box and Muller).
float normal_from(std::uint32_t a, std::uint32_t b) {
  const float u = 1.0f - unit_float(a), v = unit_float(b);
  return std::sqrt(-2.0f * std::log(u)) * std::cos(2.0f * std::numbers::pi_v<float> * v);
}

PhiloxKey key_of(std::uint64_t seed, const std::string& name) {
  Hash64 hash(seed);
  hash.add(name);
  return {static_cast<std::uint32_t>(hash.value()), static_cast<std::uint32_t>(hash.value() >> 32)};
}

bool is_random(const Init& init) { return init.kind == Init::Kind::uniform || init.kind == Init::Kind::normal; }

std::vector<float> initial_values(const Init& init, PhiloxKey key, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), init.kind == Init::Kind::ones ? 1.0f : 0.0f);
  if (!is_random(init)) return values;
  const auto scale = static_cast<float>(init.scale);
  const auto fill = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto words = philox(key, i, 0);
      values[i] = scale * (init.kind == Init::Kind::uniform ? 2.0f * unit_float(words[0]) - 1.0f
                                                            : normal_from(words[0], words[1]));
    }
  };
  const std::size_t threads = std::clamp<std::size_t>(values.size() / kNumbersOfAThread, 1, available_cores());
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i)
    others.emplace_back(fill, values.size() * i / threads, values.size() * (i + 1) / threads);
  fill(0, values.size() / threads);
  others.clear();  // waits for them
  return values;
}

// Of the same spread as initial values, from a list of normal numbers.
std::vector<float> repeated_values(const Init& init, const std::vector<float>& normal, std::int64_t count) {
  if (!is_random(init)) return initial_values(init, {}, count);
  const double deviation = init.kind == Init::Kind::uniform ? init.scale / std::numbers::sqrt3 : init.scale;
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t left = count; left > 0; left -= std::ssize(normal))
    values.insert(values.end(), normal.begin(), normal.begin() + std::min(left, std::ssize(normal)));
  for (float& x : values) x *= static_cast<float>(deviation);
  return values;
}

// `make` gives so many values for what has a name of its own in files.
template <class Make>
void fill_parameters(Executor& executor, const Make& make) {
  const Graph& g = executor.plan(0).graph;
  for (const Parameter& p : g.parameters) {
    const Shape& shape = g.buffers[p.buffer].shape;
    std::vector<float> values;
    for (const StoredPart& part : p.parts) {
      const std::vector<float> rows = make(part.init, g.string(part.name), part.rows * (shape.elements() / shape[0]));
      values.insert(values.end(), rows.begin(), rows.end());
    }
    if (p.parts.empty()) values = make(p.init, g.buffer_name(p.buffer), shape.elements());
    if (p.stored_rows != 0)
      std::fill(values.begin() + p.stored_rows * (shape.elements() / shape[0]), values.end(), 0.0f);
    executor.write_plain(p.buffer, std::as_bytes(std::span(values)));
  }
}

std::int64_t predicted_ns(const Plan& plan, const Profile& profile) {
  return simulate(plan, joined_times(plan, profile)).step_ns;
}

// The plan within the memory cap: as it is, else with waits that let memory be used again sooner; none if neither does.
std::optional<Plan> within(const Plan& plan, const Profile& profile, std::uint64_t cap) {
  Plan placed = place_memory(plan);
  if (placed.arena_bytes <= cap) return placed;
  for (const double slack : {0.10, 0.05, 0.02, 0.0}) {
    placed = place_memory(with_waits_for_memory(plan, profile, slack));
    if (placed.arena_bytes <= cap) return placed;
  }
  return {};
}

// The best plan with so many side lanes that fits: the search gets less and less memory until it does.
std::optional<Candidate> joint_candidate(const Graph& graph, const Profile& profile, JointOptions joint,
                                         std::uint64_t cap, double memory) {
  for (joint.most_memory = memory; joint.most_memory >= 1; joint.most_memory -= std::max(0.02, (memory - 1) / 4)) {
    Candidate c;
    c.name = fmt::format("{} lanes", 1 + joint.side_lanes);
    if (auto plan = within(join_gradients(schedule_jointly(graph, profile, joint), profile), profile, cap)) {
      c.plan = std::move(*plan);
      c.predicted_ns = predicted_ns(c.plan, profile);
      return c;
    }
    joint.seconds /= 2;
  }
  return {};
}

// What is special about a plan, in words.
std::string description(const Plan& plan) {
  const auto delayed = std::ranges::count_if(plan.graph.tasks, &Task::is_delayed);
  const bool is_in_order = plan.lanes.size() == 1 && std::ranges::is_sorted(plan.lanes[0].tasks);
  std::string text =
      is_in_order ? std::string("in order")
                  : fmt::format("out of order on {} lane{}", plan.lanes.size(), plan.lanes.size() == 1 ? "" : "s");
  if (delayed > 0) text += fmt::format(", {} tasks in the next step", delayed);
  if (!plan.joins.empty()) text += fmt::format(", {} pairs of gradients joined", plan.joins.size());
  return text;
}

// Medians of steps run in turn, so that the machine's moods hit all alike.
void run_trial(std::vector<Candidate>& candidates, Backend& backend) {
  std::vector<Plan> plans;
  for (const Candidate& c : candidates) plans.push_back(c.plan);
  const auto executor = backend.make_executor(std::move(plans));
  fill_to_be_timed(*executor);
  const StepArgs args{.step = 0, .seed = 1, .learning_rate = 0.0f};
  const double in_order_ms = static_cast<double>(candidates[0].predicted_ns) * 1e-6;
  const int steps_each = steps_lasting(kTrialMs, in_order_ms, kTrialSteps, kMostTrialSteps);
  std::vector<std::vector<double>> ms(candidates.size());
  for (int round = 0; round <= kTrialRounds; ++round)
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      std::vector<double> steps = time_steps(*executor, i, steps_each, args);
      if (round > 0) ms[i].push_back(median(steps));  // the first warms up
    }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    for (std::size_t round = 0; round < ms[i].size(); ++round) candidates[i].won_rounds += ms[i][round] < ms[0][round];
  }
  // A profile may be days old, and machines have faster and slower hours: what is predicted is at today's speed.
  const double speed = median(ms[0]) * 1e6 / static_cast<double>(std::max<std::int64_t>(1, candidates[0].predicted_ns));
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].measured_ns = static_cast<std::int64_t>(median(ms[i]) * 1e6);
    candidates[i].predicted_ns = static_cast<std::int64_t>(speed * static_cast<double>(candidates[i].predicted_ns));
  }
}

}  // namespace

ScheduleChoice schedule_from_string(const std::string& name) {
  if (name == "in-order") return ScheduleChoice::in_order;
  if (name == "ooo") return ScheduleChoice::ooo;
  if (name == "auto") return ScheduleChoice::automatic;
  fail_user("--schedule {}: no such schedule; choose in-order, ooo or auto (of a pipeline: --pipeline)", name);
}

void fill_random_inputs(Executor& executor, std::uint64_t seed) {
  const Graph& g = executor.plan(0).graph;
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    const Buffer& x = g.buffers[b];
    if (x.role != Role::input) continue;
    const PhiloxKey key = key_of(seed, g.buffer_name(b));
    const auto bytes = executor.bytes(b);
    const std::int64_t bound = x.dtype == DType::i32 ? id_bound(g, b) : 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(x.shape.elements()); ++i) {
      const auto words = philox(key, i, 0);
      if (x.dtype == DType::f32)
        reinterpret_cast<float*>(bytes.data())[i] = normal_from(words[0], words[1]);
      else if (x.dtype == DType::i32)
        reinterpret_cast<std::int32_t*>(bytes.data())[i] =
            static_cast<std::int32_t>(words[0] % static_cast<std::uint64_t>(bound));
      else
        bytes[i] = std::byte{1};
    }
  }
}

void fill_initial_parameters(Executor& executor, std::uint64_t seed) {
  fill_parameters(executor, [&](const Init& init, const std::string& name, std::int64_t count) {
    return initial_values(init, key_of(seed, name), count);
  });
}

void fill_to_be_timed(Executor& executor) {
  const std::vector<float> some = initial_values({Init::Kind::normal, 1.0}, key_of(1, "some"), kSomeNumbers);
  fill_parameters(executor, [&](const Init& init, const std::string&, std::int64_t count) {
    return repeated_values(init, some, count);
  });
  fill_random_inputs(executor, 1);
}

PlanChoice choose_plan(const Graph& graph, Backend& backend, const PlanningOptions& options) {
  PlanChoice choice;
  choice.candidates.push_back({"in order", place_memory(schedule_in_order(graph), options.memory_cap)});
  const auto in_order_because = [&](const std::string& reason) {
    choice.reason = "schedule: in order; " + reason;
    return choice;
  };
  if (options.schedule == ScheduleChoice::in_order) return choice;
  const bool must = options.schedule == ScheduleChoice::ooo;
  if (!must && backend.most_lanes() < 2)
    return in_order_because("there is one core, so nothing can run beside anything");

  choice.profile = profile_of(graph, backend, options.profiling);
  const Profile& profile = choice.profile;
  choice.candidates[0].predicted_ns = predicted_ns(choice.candidates[0].plan, profile);
  const std::uint64_t in_order_bytes = choice.candidates[0].plan.arena_bytes;
  const std::uint64_t cap =
      options.memory_cap.value_or(static_cast<std::uint64_t>(kMemoryByDefault * static_cast<double>(in_order_bytes)));
  const double memory = std::max(1.0, static_cast<double>(cap) / static_cast<double>(in_order_bytes));
  if (const Plan joined = join_gradients(schedule_in_order(graph), profile); !must && !joined.joins.empty())
    if (auto plan = within(joined, profile, cap))
      choice.candidates.push_back({"in order, joined", *plan, predicted_ns(*plan, profile)});
  const std::size_t side_lanes = std::clamp<std::size_t>(backend.most_lanes() - 1, 1, 2);
  for (std::size_t side = 1; side <= side_lanes; ++side) {
    // Once as it comes, once with a search: the model may be wrong about what it gained.
    for (const double part : {0.0, 1.0}) {
      const JointOptions joint{.side_lanes = side, .seconds = part * options.seconds / static_cast<double>(side_lanes)};
      if (auto c = joint_candidate(graph, profile, joint, cap, memory)) {
        if (part == 0) c->name += ", no search";
        choice.candidates.push_back(std::move(*c));
      }
    }
  }
  if (choice.candidates.size() == 1) return in_order_because("out of order does not fit under the memory cap");
  run_trial(choice.candidates, backend);
  const auto fastest =
      std::ranges::min_element(choice.candidates.begin() + 1, choice.candidates.end(), {}, &Candidate::measured_ns);
  const double in_order_ms = static_cast<double>(choice.candidates[0].measured_ns) * 1e-6,
               best_ms = static_cast<double>(fastest->measured_ns) * 1e-6;
  const std::string times = fmt::format("measured {:.2f} ms against {:.2f} ms in order", best_ms, in_order_ms);
  if (!must && best_ms > kWorthwhile * in_order_ms) return in_order_because("reordering does not pay here: " + times);
  if (!must && fastest->won_rounds < kRoundsToWin)
    return in_order_because(
        fmt::format("reordering was faster in only {} of {} rounds: {}", fastest->won_rounds, kTrialRounds, times));
  choice.chosen = static_cast<std::size_t>(fastest - choice.candidates.begin());
  choice.reason = fmt::format("schedule: {}; {}", description(fastest->plan), times);
  return choice;
}

}  // namespace overtake
