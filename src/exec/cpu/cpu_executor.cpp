// The CPU executor: binds every task of its plans to kernels on fixed addresses, and runs them on LaneThreads.

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "base/available_cores.h"
#include "base/error.h"
#include "base/median.h"
#include "base/units.h"
#include "exec/arena_view.h"
#include "exec/cpu/binding.h"
#include "exec/cpu/lanes.h"
#include "exec/delayed.h"
#include "exec/executor.h"
#include "exec/plain_values.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/nan.h"

namespace overtake {
namespace {

// Zeroed memory that is only backed by pages where it is touched; large pages where the system gives them.
class Arena final : public PersistentMemory {
 public:
  explicit Arena(std::uint64_t bytes) : bytes_(std::max<std::uint64_t>(bytes, 1)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED)
      fail_user("`device cpu`: the system gave no {} of memory; lower `batch` or set `memory_cap`",
                format_bytes(static_cast<std::int64_t>(bytes_)));
    madvise(memory_, bytes_, MADV_HUGEPAGE);
  }
  ~Arena() override { munmap(memory_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  std::uint64_t bytes_;
  void* memory_;
};

constexpr std::size_t kMetrics = 3;  // of a loss

// Two tasks as one: the parts of both at once, phase by phase.
BoundTask side_by_side(const BoundTask& a, const BoundTask& b) {
  BoundTask both;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i >= a.size() || i >= b.size()) {
      both.push_back(i < a.size() ? a[i] : b[i]);
      continue;
    }
    both.push_back({a[i].parts + b[i].parts,
                    [x = a[i].run, y = b[i].run, parts = a[i].parts](std::uint32_t part, const StepArgs& args) {
                      part < parts ? x(part, args) : y(part - parts, args);
                    }});
  }
  return both;
}

// Beyond what lives across steps.
std::uint64_t most_own_bytes(const std::vector<Plan>& plans) {
  std::uint64_t bytes = 0;
  for (const Plan& plan : plans) bytes = std::max(bytes, plan.arena_bytes - plan.persistent_bytes);
  return bytes;
}

// With other processes, asynchronous lanes need no threads.
std::size_t most_lanes(const std::vector<Plan>& plans, bool has_others) {
  std::size_t lanes = 1;
  for (const Plan& plan : plans)
    lanes = std::max(lanes, static_cast<std::size_t>(std::ranges::count_if(
                                plan.lanes, [&](const Lane& l) { return !has_others || !l.is_asynchronous; })));
  return lanes;
}

bool is_finite(const Buffer& b, const std::byte* data) {
  const std::int64_t count = padded_elements(b.layout, b.shape.span());
  if (b.dtype != DType::f32 && b.dtype != DType::bf16) return true;
  return with_type(b.dtype, [&]<class T>(T) {
    return kernels::first_non_finite(reinterpret_cast<const T*>(data), count, 0, kernels::blocks_of(count)) < 0;
  });
}

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(std::vector<Plan> plans, const CpuOptions& options, std::shared_ptr<PersistentMemory> memory)
      : groups_(options.groups),
        plans_(std::move(plans)),
        persistent_(memory ? std::static_pointer_cast<Arena>(memory)
                           : std::make_shared<Arena>(plans_[0].persistent_bytes)),
        own_(most_own_bytes(plans_)),
        arena_{persistent_->data(), own_.data(), plans_[0].persistent_bytes},
        threads_(options.threads == 0 ? available_cores() : options.threads, most_lanes(plans_, groups_ != nullptr)) {
    omp_set_num_threads(1);  // kernels are made here and run on threads with the same setting
    carried_losses_.resize(plans_[0].graph.losses.size());
    for (const Plan& plan : plans_) programs_.push_back(bind(plan));
    if (memory) return;  // everything is there
    for (const Constant& c : plans_[0].graph.constants) write_plain(c.buffer, *c.bytes);
  }

  const Plan& plan(std::size_t program) const override { return plans_.at(program); }

  // Runs it to its end: the threads are the device.
  void start(std::size_t program, const StepArgs& args) override {
    OVERTAKE_CHECK(!finished_ && !error_, "a step is under way already");
    try {
      finished_ = run_step(program, args);
    } catch (...) {
      error_ = std::current_exception();
      delayed_.reset();
    }
  }
  FinishedStep finish() override {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    OVERTAKE_CHECK(finished_.has_value(), "no step is under way");
    return *std::exchange(finished_, std::nullopt);
  }
  std::size_t most_under_way() const override { return 1; }
  Trace settle() override {
    if (!delayed_) return {};
    const Delayed last = *std::exchange(delayed_, std::nullopt);
    const Loaded& p = programs_[last.program];
    const bool was_good = are_carried_losses_finite();
    Trace trace = run_lanes(p, p.delayed, last.args, last.args);
    if (was_good && !are_carried_losses_finite()) fail_delayed_gradient(last.args.step);
    trace.step_ns = 0;
    return trace;
  }
  Trace run_traced(std::size_t program, const StepArgs& args) override { return run(program, args); }

  std::vector<std::int64_t> time_lanes(std::size_t program, const std::vector<std::vector<TaskId>>& lanes,
                                       int rounds) override {
    settle();
    LaneOrder order(lanes.size());
    for (std::size_t l = 0; l < lanes.size(); ++l)
      for (const TaskId t : lanes[l])
        order[l].push_back({.task = t, .joined = kNone, .is_delayed = false, .waits_for = {}});
    std::vector<std::vector<std::int64_t>> ends(lanes.size());
    for (int i = 0; i < rounds; ++i) {
      std::vector<std::int64_t> last(lanes.size(), 0);
      for (const Span& s : threads_.run(order, programs_.at(program).tasks, {}, {}).spans) last[s.lane] = s.end_ns;
      for (std::size_t l = 0; l < lanes.size(); ++l) ends[l].push_back(last[l]);
    }
    std::vector<std::int64_t> medians;
    for (auto& samples : ends) medians.push_back(median(samples));
    return medians;
  }

  std::span<std::byte> bytes(BufferId b) override {
    return {arena_.at(plans_[0].offsets.at(b)), static_cast<std::size_t>(plans_[0].graph.bytes(b))};
  }
  std::shared_ptr<PersistentMemory> persistent_memory() const override { return persistent_; }

  void read_plain(BufferId b, std::span<std::byte> to) override {
    settle();
    to_plain(plans_[0].graph.buffers[b], bytes(b), to);
  }

  void write_plain(BufferId b, std::span<const std::byte> from) override {
    settle();
    from_plain(plans_[0].graph.buffers[b], from, bytes(b));
  }

  std::string find_non_finite(std::size_t program, const StepArgs& args) override {
    settle();
    const Plan& plan = plans_.at(program);
    const Graph& g = plan.graph;
    for (const Parameter& p : g.parameters)
      if (g.buffers[p.buffer].role == Role::weight && !is_finite(g.buffers[p.buffer], address(plan, p.buffer)))
        return fmt::format("an earlier update of weight {}", g.buffer_name(p.buffer));
    std::vector<TaskId> order = one_order(plan, Portion::step);
    std::ranges::copy(one_order(plan, Portion::delayed), std::back_inserter(order));
    for (const TaskId t : order) {
      for (const Phase& phase : programs_[program].tasks[t])
        for (std::uint32_t part = 0; part < phase.parts; ++part) phase.run(part, args);
      for (const BufferId b : g.writes(t))
        if (b != kNone && g.buffers[b].role != Role::scratch && !is_finite(g.buffers[b], address(plan, b)))
          return fmt::format("task {} ({})", g.task_name(t), to_string(g.tasks[t].op));
    }
    return "";
  }

 private:
  struct Loaded {
    std::vector<BoundTask> tasks;  // by id
    LaneOrder step_and_delayed, step, delayed;
    std::unique_ptr<TransferLanes> transfers;  // with other processes
    std::size_t asynchronous = 0;              // lanes of those, the last ones
  };
  // The step whose delayed tasks are still to do.
  struct Delayed {
    std::size_t program;
    StepArgs args;
  };

  std::byte* address(const Plan& plan, BufferId b) const { return arena_.at(plan.offsets[b]); }

  FinishedStep run_step(std::size_t program, const StepArgs& args) {
    if (delayed_ && delayed_->program != program) settle();
    const Loaded& p = programs_.at(program);
    const bool was_good = are_carried_losses_finite();
    FinishedStep step{
        delayed_ ? run_lanes(p, p.step_and_delayed, args, delayed_->args) : run_lanes(p, p.step, args, args), {}};
    const bool is_spoilt = was_good && !are_carried_losses_finite();
    for (std::size_t i = 0; i < carried_losses_.size(); ++i) {
      auto* metrics = reinterpret_cast<float*>(address(plans_[program], plans_[program].graph.losses[i]));
      if (is_spoilt) metrics[0] = std::numeric_limits<float>::quiet_NaN();
      step.metrics.insert(step.metrics.end(), metrics, metrics + kMetrics);
      std::copy_n(metrics, kMetrics, carried_losses_[i].begin());
    }
    delayed_.reset();
    if (has_delayed_tasks(plans_[program])) delayed_ = Delayed{program, args};
    return step;
  }

  Trace run_lanes(const Loaded& p, const LaneOrder& order, const StepArgs& args, const StepArgs& delayed_args) {
    return threads_.run(order, p.tasks, args, delayed_args, p.transfers.get(), p.asynchronous);
  }

  bool are_carried_losses_finite() const {
    return std::ranges::all_of(carried_losses_, [](const auto& loss) { return std::isfinite(loss[0]); });
  }

  Loaded bind(const Plan& plan) {
    const Graph& g = plan.graph;
    OVERTAKE_CHECK(plan.offsets.size() == g.buffers.size(), "memory of plan {} is not placed", plan.schedule);
    OVERTAKE_CHECK(plan.persistent_bytes == plans_[0].persistent_bytes, "plans of different graphs in one executor");
    std::vector<std::byte*> addresses;
    for (const std::uint64_t offset : plan.offsets) addresses.push_back(arena_.at(offset));
    // Delayed updates stand or fall with the losses of their own step.
    std::vector<std::byte*> delayed_addresses = addresses;
    for (std::size_t i = 0; i < g.losses.size(); ++i)
      delayed_addresses[g.losses[i]] = reinterpret_cast<std::byte*>(carried_losses_[i].data());
    Loaded program;
    program.tasks.resize(g.tasks.size());
    for (TaskId t = 0; t < g.tasks.size(); ++t) {
      if (!plan.is_planned(t) || (groups_ && g.tasks[t].op == Op::transfer)) continue;
      const auto bind_task = cpu_binding(g.tasks[t].op).bind;
      OVERTAKE_CHECK(bind_task != nullptr, "the CPU has no kernel for op {}", to_string(g.tasks[t].op));
      program.tasks[t] = bind_task(TaskView(g, g.tasks[t], g.tasks[t].is_delayed ? delayed_addresses : addresses));
    }
    for (const Join& j : plan.joins) {
      program.tasks[j.first] = side_by_side(program.tasks[j.first], program.tasks[j.second]);
      program.tasks[j.second] = {};  // has run with the first
    }
    program.step_and_delayed = lane_order(plan);
    program.step = lane_order(plan, Portion::step);
    program.delayed = lane_order(plan, Portion::delayed);
    if (!groups_) return program;
    program.transfers = std::make_unique<TransferLanes>(plan, addresses, groups_);
    program.asynchronous = static_cast<std::size_t>(std::ranges::count_if(plan.lanes, &Lane::is_asynchronous));
    OVERTAKE_CHECK(std::ranges::is_sorted(plan.lanes, {}, &Lane::is_asynchronous), "transfers before other lanes");
    return program;
  }

  std::shared_ptr<RankGroups> groups_;
  std::vector<Plan> plans_;
  std::shared_ptr<Arena> persistent_;
  Arena own_;
  ArenaView arena_;
  std::vector<std::array<float, kMetrics>> carried_losses_;  // of the step whose tasks were delayed
  LaneThreads threads_;
  std::vector<Loaded> programs_;  // go before what their transfers use
  std::optional<Delayed> delayed_;
  std::optional<FinishedStep> finished_;
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(std::vector<Plan> plans, const CpuOptions& options,
                                            std::shared_ptr<PersistentMemory> memory) {
  OVERTAKE_CHECK(!plans.empty(), "an executor needs a plan");
  return std::make_unique<CpuExecutor>(std::move(plans), options, std::move(memory));
}

}  // namespace overtake
