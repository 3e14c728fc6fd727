// Computes nothing: walks a plan the way every executor must and gives a trace in which each task takes one nanosecond.
// Always there, for tests of plans.

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "exec/executor.h"

namespace overtake {
namespace {

class NullMemory final : public PersistentMemory {};

class NullExecutor final : public Executor {
 public:
  NullExecutor(std::vector<Plan> plans, std::shared_ptr<PersistentMemory> memory)
      : plans_(std::move(plans)), memory_(memory ? std::move(memory) : std::make_shared<NullMemory>()) {
    std::uint64_t bytes = 0;
    for (const Plan& plan : plans_) bytes = std::max(bytes, plan.arena_bytes);
    arena_.resize(bytes);
  }

  const Plan& plan(std::size_t program) const override { return plans_.at(program); }

  void start(std::size_t program, const StepArgs& args) override { under_way_ = run_traced(program, args); }
  FinishedStep finish() override {
    const std::size_t losses = plans_[0].graph.losses.size();
    return {std::exchange(under_way_, {}), std::vector<float>(3 * losses, 0.0f)};
  }
  std::size_t most_under_way() const override { return 1; }
  Trace settle() override { return {}; }

  Trace run_traced(std::size_t program, const StepArgs&) override {
    const Plan& plan = plans_.at(program);
    const Dependencies deps = dependencies(plan);
    Trace trace;
    std::vector<std::int64_t> end(plan.graph.tasks.size(), 0), clock(plan.lanes.size(), 0);
    const HappensBefore order = happens_before(plan, deps);
    for (const TaskId t : order.topological) {
      const std::uint32_t lane = order.lane_of[t];
      std::int64_t begin = clock[lane];
      for (const TaskId before : deps.of(t)) begin = std::max(begin, end[before]);
      clock[lane] = end[t] = begin + 1;
      trace.spans.push_back({t, lane, begin, end[t]});
      trace.step_ns = std::max(trace.step_ns, end[t]);
    }
    return trace;
  }

  std::vector<std::int64_t> time_lanes(std::size_t, const std::vector<std::vector<TaskId>>& lanes, int) override {
    std::vector<std::int64_t> ends;
    for (const auto& tasks : lanes) ends.push_back(static_cast<std::int64_t>(tasks.size()));
    return ends;
  }

  std::span<std::byte> bytes(BufferId b) override {
    return std::span(arena_).subspan(plans_[0].offsets.at(b), static_cast<std::size_t>(plans_[0].graph.bytes(b)));
  }

  std::shared_ptr<PersistentMemory> persistent_memory() const override { return memory_; }

  void read_plain(BufferId, std::span<std::byte>) override {}
  void write_plain(BufferId, std::span<const std::byte>) override {}

  std::string find_non_finite(std::size_t, const StepArgs&) override { return ""; }

 private:
  std::vector<Plan> plans_;
  std::shared_ptr<PersistentMemory> memory_;
  std::vector<std::byte> arena_;
  Trace under_way_;
};

}  // namespace

std::unique_ptr<Executor> make_null_executor(std::vector<Plan> plans, std::shared_ptr<PersistentMemory> memory) {
  OVERTAKE_CHECK(!plans.empty(), "an executor needs a plan");
  return std::make_unique<NullExecutor>(std::move(plans), std::move(memory));
}

}  // namespace overtake
