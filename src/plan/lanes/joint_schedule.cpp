#include "plan/lanes/joint_schedule.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "plan/lanes/arrangement.h"

namespace overtake {
namespace {

constexpr std::uint64_t kTriesPerTask = 400;        // that may move
constexpr std::uint64_t kTasksToTime = 60'000'000;  // over all tries, in a few seconds
constexpr double kWarm = 0.01;                      // how much worse a change may well be at first, of the step

// What the model says of arrangements.
class Judge {
 public:
  Judge(const Graph& graph, const Profile& profile, const DeferredWork& work)
      : graph_(graph), work_(work), simulator_(profile) {
    simulator_.set_dependencies(dependencies(graph_));
    for (BufferId b = 0; b < graph_.buffers.size(); ++b) {
      const Role role = graph_.buffers[b].role;
      is_counted_.push_back(!is_persistent(role) && role != Role::input && role != Role::output);
    }
    writer_.assign(graph_.buffers.size(), kNone);
    for (TaskId t = 0; t < graph_.tasks.size(); ++t)
      for (const BufferId b : graph_.writes(t))
        if (b != kNone) writer_[b] = t;
  }

  std::int64_t time(const Arrangement& a) {
    bool changed = false;
    for (const TaskId t : work_.deferred()) {
      changed = changed || graph_.tasks[t].is_delayed != a.seat(t).is_delayed;
      graph_.tasks[t].is_delayed = a.seat(t).is_delayed;
    }
    if (changed) simulator_.set_dependencies(dependencies(graph_));
    return simulator_.run(a.lane_tasks(), a.holds());
  }

  // The largest sum of live bytes at one moment of the arrangement last timed.
  double live_bytes(std::int64_t step_ns) {
    constexpr std::size_t kMoments = 1024;
    std::vector<double> change(kMoments + 2, 0);
    const auto moment = [&](std::int64_t ns) {
      return static_cast<std::size_t>(static_cast<double>(ns) /
                                      static_cast<double>(std::max<std::int64_t>(1, step_ns)) * kMoments);
    };
    last_use_.assign(graph_.buffers.size(), -1);
    carried_use_.assign(graph_.buffers.size(), -1);
    for (TaskId t = 0; t < graph_.tasks.size(); ++t)
      for (const BufferId b : graph_.reads(t)) {
        if (b == kNone || !is_counted_[b]) continue;
        const bool is_carried =
            graph_.tasks[t].is_delayed && writer_[b] != kNone && !graph_.tasks[writer_[b]].is_delayed;
        auto& use = (is_carried ? carried_use_ : last_use_)[b];
        use = std::max(use, simulator_.ends()[t]);
      }
    for (BufferId b = 0; b < graph_.buffers.size(); ++b) {
      if (!is_counted_[b] || writer_[b] == kNone) continue;
      const auto bytes = static_cast<double>(graph_.bytes(b));
      change[moment(simulator_.begins()[writer_[b]])] += bytes;
      if (carried_use_[b] < 0) {
        change[moment(std::max(last_use_[b], simulator_.ends()[writer_[b]])) + 1] -= bytes;
        continue;
      }
      change[0] += bytes;
      change[moment(carried_use_[b]) + 1] -= bytes;
    }
    double live = 0, most = 0;
    for (const double c : change) most = std::max(most, live += c);
    return most;
  }

 private:
  Graph graph_;
  const DeferredWork& work_;
  LaneSimulator simulator_;
  std::vector<char> is_counted_;
  std::vector<TaskId> writer_;
  std::vector<std::int64_t> last_use_, carried_use_;
};

class JointSearch {
 public:
  JointSearch(const Graph& graph, const Profile& profile, const JointOptions& options)
      : profile_(profile),
        options_(options),
        work_(graph),
        judge_(graph, profile, work_),
        current_(work_, graph.tasks.size(), 1 + options.side_lanes),
        best_(current_) {
    for (const TaskId t : work_.deferred())
      weight_.push_back(static_cast<double>(std::max<std::int64_t>(1, profile.alone_ns[t])));
  }

  std::int64_t run() {
    best_ns_ = current_ns_ = judge_.time(current_);
    most_bytes_ = options_.most_memory > 0 ? judge_.live_bytes(current_ns_) * options_.most_memory : 0;
    if (work_.deferred().empty()) return best_ns_;
    start_from(as_soon_as_possible());
    start_from(by_regions());
    improve();
    drop_needless_holds();
    return best_ns_;
  }

  const Arrangement& best() const { return best_; }

 private:
  bool fits(std::int64_t step_ns) { return most_bytes_ == 0 || judge_.live_bytes(step_ns) <= most_bytes_; }

  void start_from(Arrangement a) {
    // Too much memory: what is put off for longest is done in its own place again, one by one.
    while (!fits(judge_.time(a))) {
      TaskId longest = kNone;
      std::uint32_t most = 0;
      for (const TaskId t : work_.deferred()) {
        const Seat& s = a.seat(t);
        const auto span = static_cast<std::uint32_t>(work_.critical().size());
        const std::uint32_t put_off = (s.is_delayed ? span : 0) + s.place + (s.lane > 0 ? 1 : 0) - work_.ready(t);
        if (put_off > most && !(s == Seat{0, work_.ready(t), false})) {
          most = put_off;
          longest = t;
        }
      }
      if (longest == kNone || !a.move(longest, {0, work_.ready(longest), false})) return;
    }
    const std::int64_t ns = judge_.time(a);
    if (ns >= best_ns_) return;
    best_ns_ = current_ns_ = ns;
    best_ = current_ = std::move(a);
  }

  // All deferred tasks to the side lanes in turn, each as early as it can.
  Arrangement as_soon_as_possible() {
    Arrangement a = in_order();
    std::uint32_t lane = 0;
    for (const TaskId t : work_.deferred())
      if (work_.leaders(t).empty())
        a.move(t, {1 + lane++ % static_cast<std::uint32_t>(options_.side_lanes), work_.ready(t), false});
    for (const TaskId t : work_.deferred())
      if (a.seat(t).lane == 0) a.move(t, {1, work_.ready(t), false});
    return a;
  }

  Arrangement in_order() { return Arrangement(work_, profile_.alone_ns.size(), 1 + options_.side_lanes); }

  // Runs of critical tasks of about the same load, walked in the order of time: backward first, then the next step's
  // forward. Each takes the ready tasks that gain most beside it until its time is filled; what is left over goes on
  // to the next region, or stays in its place.
  struct Region {
    std::uint32_t first = 0, last = 0;  // places
    double ns = 0, work = 0;            // time, and time times load
    double load() const { return ns > 0 ? work / ns : 1; }
  };

  std::vector<Region> regions() const {
    constexpr double kAlike = 0.15;
    std::vector<Region> all;
    double total = 0;
    for (const TaskId t : work_.critical()) total += static_cast<double>(profile_.alone_ns[t]);
    for (std::uint32_t p = 0; p < work_.critical().size(); ++p) {
      const TaskId t = work_.critical()[p];
      const auto ns = static_cast<double>(profile_.alone_ns[t]);
      const bool is_new = all.empty() ||
                          (std::abs(all.back().load() - profile_.load[t]) > kAlike && all.back().ns > total / 64) ||
                          all.back().ns > total / 24;
      if (is_new) all.push_back({p, p, 0, 0});
      all.back().last = p + 1;
      all.back().ns += ns;
      all.back().work += ns * profile_.load[t];
    }
    return all;
  }

  Arrangement by_regions() {
    Arrangement a = in_order();
    const std::vector<Region> all = regions();
    std::vector<TaskId> open;
    for (const TaskId t : work_.deferred())
      if (work_.leaders(t).empty()) open.push_back(t);
    const auto fill = [&](const Region& r, bool is_delayed) {
      double left = r.ns;
      while (left > 0 && !open.empty()) {
        TaskId best = kNone;
        double most = 0;
        for (const TaskId t : open) {
          const auto ns = static_cast<double>(profile_.alone_ns[t]);
          const bool is_possible = is_delayed ? work_.deadline(t) >= r.last : work_.ready(t) <= r.first;
          if (!is_possible || ns <= 0 || ns > 2 * left) continue;
          // Of what it takes alone, the part that is hidden.
          const double gain = std::clamp((1 - r.load()) / profile_.load[t], 0.0, 1.0);
          if (gain > most) {
            most = gain;
            best = t;
          }
        }
        if (best == kNone || most < 0.02) return;
        std::erase(open, best);
        if (a.move(best, {1, is_delayed ? r.first : std::max(r.first, work_.ready(best)), is_delayed}))
          left -= static_cast<double>(profile_.alone_ns[best]);
      }
    };
    for (const Region& r : all) fill(r, false);
    if (options_.may_delay)
      for (const Region& r : all) fill(r, true);
    return a;
  }

  // Random changes of one seat; worse ones are kept with a chance that shrinks as time runs out.
  void improve() {
    const std::uint64_t most_tries = options_.most_tries.value_or(
        std::min(kTriesPerTask * work_.deferred().size(), kTasksToTime / profile_.alone_ns.size()));
    if (most_tries == 0) return;
    const auto used = [&] { return static_cast<double>(tries_) / static_cast<double>(most_tries); };
    std::discrete_distribution<std::size_t> pick(weight_.begin(), weight_.end());
    const double warm = kWarm * static_cast<double>(best_ns_);
    for (double now = used(); now < 1; now = used()) {
      if (options_.is_cancelled && options_.is_cancelled()) return;
      for (int i = 0; i < 16; ++i, ++tries_) {
        Arrangement next = current_;
        // Half of the time the long ones, which matter most; half of the time any.
        const TaskId t = work_.deferred()[random_() % 2 == 0 ? pick(random_) : random_() % work_.deferred().size()];
        if (!next.move(t, random_seat(next, t)) || next == current_) continue;
        const std::int64_t ns = judge_.time(next);
        const double worse = static_cast<double>(ns - current_ns_);
        const double heat = warm * (1 - now) * (1 - now);
        if (ns == LaneSimulator::kNever || (worse > 0 && (heat <= 0 || chance() >= std::exp(-worse / heat)))) continue;
        if (!fits(ns)) continue;
        current_ = std::move(next);
        current_ns_ = ns;
        if (ns < best_ns_) {
          best_ns_ = ns;
          best_ = current_;
        }
      }
    }
  }

  double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  Seat random_seat(const Arrangement& a, TaskId t) {
    const auto places = static_cast<std::uint32_t>(work_.critical().size());
    Seat seat = a.seat(t);
    switch (random_() % 6) {
      case 0:
        return {0, work_.ready(t), false};
      case 1:
        return {side_lane(), work_.ready(t), false};
      case 2:
        return {side_lane(), work_.ready(t) + static_cast<std::uint32_t>(random_() % (places - work_.ready(t) + 1)),
                false};
      case 3:
        if (options_.may_delay && work_.deadline(t) > 0)
          return {side_lane(), static_cast<std::uint32_t>(random_() % (work_.deadline(t) + 1)), true};
        [[fallthrough]];
      case 4: {
        const auto shift = static_cast<std::int64_t>(random_() % 17) - 8;
        seat.place = static_cast<std::uint32_t>(std::max<std::int64_t>(0, std::int64_t{seat.place} + shift));
        return seat;
      }
      default:
        seat.lane = static_cast<std::uint32_t>(random_() % a.lanes());
        return seat;
    }
  }
  std::uint32_t side_lane() { return 1 + static_cast<std::uint32_t>(random_() % options_.side_lanes); }

  // A hold that gains nothing is one more thing that can go wrong.
  void drop_needless_holds() {
    for (const TaskId t : work_.deferred()) {
      const Seat seat = best_.seat(t);
      if (seat.lane == 0 || best_.holds()[t] == kNone) continue;
      Arrangement next = best_;
      if (!next.move(t, {seat.lane, 0, seat.is_delayed})) continue;
      const std::int64_t ns = judge_.time(next);
      if (ns > best_ns_ || !fits(ns)) continue;
      best_ns_ = ns;
      best_ = std::move(next);
    }
  }

  const Profile& profile_;
  const JointOptions& options_;
  DeferredWork work_;
  Judge judge_;
  Arrangement current_, best_;
  std::int64_t current_ns_ = 0, best_ns_ = 0;
  double most_bytes_ = 0;
  std::vector<double> weight_;  // of deferred tasks, for picking one
  std::uint64_t tries_ = 0;
  std::mt19937 random_{1};
};

}  // namespace

Plan schedule_jointly(const Graph& graph, const Profile& profile, const JointOptions& options,
                      std::int64_t* predicted_ns) {
  OVERTAKE_CHECK(profile.alone_ns.size() == graph.tasks.size() && profile.load.size() == graph.tasks.size(),
                 "the profile is of another graph");
  JointSearch search(graph, profile, options);
  const std::int64_t ns = search.run();
  if (predicted_ns != nullptr) *predicted_ns = ns;
  return search.best().plan(graph);
}

Plan with_waits_for_memory(Plan plan, const Profile& profile, double slack) {
  const Trace trace = simulate(plan, profile);
  const HappensBefore order = happens_before(plan, dependencies(plan));
  std::vector<std::int64_t> begin(plan.graph.tasks.size(), 0), end(plan.graph.tasks.size(), 0);
  for (const Span& s : trace.spans) {
    begin[s.task] = s.begin_ns;
    end[s.task] = s.end_ns;
  }
  const auto margin = static_cast<std::int64_t>(slack * static_cast<double>(trace.step_ns));
  for (std::size_t l = 1; l < plan.lanes.size(); ++l) {
    std::size_t next = 0;
    for (const TaskId t : plan.lanes[l].tasks) {
      const auto& main = plan.lanes[0].tasks;
      // Of tasks that take no time one may begin when another ends that waits for it.
      const auto is_too_early = [&](TaskId m) {
        return begin[m] < end[t] + margin || order.place_of[m] <= order.seen[std::size_t{t} * order.lanes];
      };
      while (next < main.size() && is_too_early(main[next])) ++next;
      if (next == main.size()) break;
      plan.waits.push_back({t, main[next]});
    }
  }
  std::ranges::sort(plan.waits);
  plan.waits.erase(std::unique(plan.waits.begin(), plan.waits.end()), plan.waits.end());
  return plan;
}

}  // namespace overtake
