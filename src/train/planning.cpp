#include "train/planning.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "passes/memory.h"
#include "passes/schedule.h"

namespace overtake {
namespace {

constexpr int kWarmSteps = 1, kProfileSteps = 3, kTrialRounds = 5;

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

std::vector<float> initial_values(const Init& init, PhiloxKey key, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), init.kind == Init::Kind::ones ? 1.0f : 0.0f);
  if (init.kind != Init::Kind::uniform && init.kind != Init::Kind::normal) return values;
  const auto scale = static_cast<float>(init.scale);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto words = philox(key, i, 0);
    values[i] = scale * (init.kind == Init::Kind::uniform ? 2.0f * unit_float(words[0]) - 1.0f
                                                          : normal_from(words[0], words[1]));
  }
  return values;
}

void note(const PlanningOptions& options, const std::string& line) {
  if (options.note) options.note(line);
}

StepArgs measured_step(int i) { return {.step = static_cast<std::uint64_t>(i), .seed = 1, .learning_rate = 0.0f}; }

std::unique_ptr<Executor> ready(std::unique_ptr<Executor> executor) {
  fill_initial_parameters(*executor, 1);
  fill_random_inputs(*executor, 1);
  for (int i = 0; i < kWarmSteps; ++i) executor->run(0, measured_step(i));
  return executor;
}

// Out of order, with as many waiting weight gradients as memory allows; in order if it allows none.
Plan out_of_order_within(const Graph& graph, const Profile& profile, const Plan& in_order,
                         const PlanningOptions& options) {
  constexpr std::size_t kLimits[] = {std::numeric_limits<std::size_t>::max(), 64, 32, 16, 8, 4, 2, 1};
  for (const std::size_t limit : kLimits) {
    Plan plan = place_memory(schedule_out_of_order(graph, profile, {.max_waiting = limit}));
    if (!options.memory_cap || plan.arena_bytes <= *options.memory_cap) return plan;
  }
  note(options, "schedule: in order; out of order does not fit under the memory cap");
  return in_order;
}

struct Trial {
  double in_order_ms = 0, ooo_ms = 0;
};

// Medians of steps run in turn, so that the machine's moods hit both alike.
Trial run_trial(const Plan& in_order, const Plan& ooo, Backend& backend) {
  const auto a = ready(backend.make_executor({in_order})), b = ready(backend.make_executor({ooo}));
  std::vector<double> a_ms, b_ms;
  for (int i = 0; i < kTrialRounds; ++i) {
    a_ms.push_back(static_cast<double>(a->run(0, measured_step(i)).step_ns) * 1e-6);
    b_ms.push_back(static_cast<double>(b->run(0, measured_step(i)).step_ns) * 1e-6);
  }
  const auto median = [](std::vector<double>& x) {
    std::ranges::sort(x);
    return x[x.size() / 2];
  };
  return {median(a_ms), median(b_ms)};
}

}  // namespace

ScheduleChoice schedule_from_string(const std::string& name) {
  if (name == "in-order") return ScheduleChoice::in_order;
  if (name == "ooo") return ScheduleChoice::ooo;
  if (name == "auto") return ScheduleChoice::automatic;
  fail_user("--schedule {}: no such schedule; choose in-order, ooo or auto", name);
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
  const Graph& g = executor.plan(0).graph;
  for (const Parameter& p : g.parameters) {
    const Shape& shape = g.buffers[p.buffer].shape;
    std::vector<float> values;
    for (const StoredPart& part : p.parts) {
      const std::vector<float> rows =
          initial_values(part.init, key_of(seed, g.string(part.name)), part.rows * (shape.elements() / shape[0]));
      values.insert(values.end(), rows.begin(), rows.end());
    }
    if (p.parts.empty()) values = initial_values(p.init, key_of(seed, g.buffer_name(p.buffer)), shape.elements());
    if (p.stored_rows != 0)
      std::fill(values.begin() + p.stored_rows * (shape.elements() / shape[0]), values.end(), 0.0f);
    executor.write_plain(p.buffer, std::as_bytes(std::span(values)));
  }
}

Profile measure_profile(const Graph& graph, Backend& backend) {
  const Plan plan = place_memory(schedule_in_order(graph));
  const auto times = [&](std::unique_ptr<Executor> executor) {
    std::vector<Trace> traces;
    for (int i = 0; i < kProfileSteps; ++i) traces.push_back(executor->run_traced(0, measured_step(i)));
    return median_times(traces, graph.tasks.size());
  };
  // One after the other: there may not be memory for both.
  Profile profile;
  profile.alone_ns = times(ready(backend.make_executor({plan})));
  profile.beside_ns = times(ready(backend.make_one_lane_executor({plan})));
  return profile;
}

Plan choose_plan(const Graph& graph, Backend& backend, const PlanningOptions& options) {
  const Plan in_order = place_memory(schedule_in_order(graph), options.memory_cap);
  if (options.schedule == ScheduleChoice::in_order) return in_order;
  if (options.schedule == ScheduleChoice::automatic && !backend.has_lanes()) {
    note(options, "schedule: in order; there is one core, so nothing can run beside anything");
    return in_order;
  }
  Plan ooo = out_of_order_within(graph, measure_profile(graph, backend), in_order, options);
  if (options.schedule == ScheduleChoice::ooo || ooo.schedule == in_order.schedule) return ooo;
  if (!backend.has_room_for(in_order.arena_bytes + ooo.arena_bytes)) {
    note(options, "schedule: in order; there is no room to try it beside out of order");
    return in_order;
  }
  const Trial trial = run_trial(in_order, ooo, backend);
  const bool pays = trial.ooo_ms < 0.99 * trial.in_order_ms;
  note(options, fmt::format("schedule: {}; measured {:.2f} ms in order, {:.2f} ms out of order",
                            pays ? "out of order" : "in order, for reordering does not pay here", trial.in_order_ms,
                            trial.ooo_ms));
  return pays ? ooo : in_order;
}

}  // namespace overtake
