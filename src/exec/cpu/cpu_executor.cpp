// The CPU executor: binds every task of its plans to kernels on fixed addresses, and runs them on LaneThreads.

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "exec/cpu/binding.h"
#include "exec/cpu/lanes.h"
#include "exec/executor.h"
#include "exec/plain_values.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/nan.h"

namespace overtake {
namespace {

// Zeroed memory that is only backed by pages where it is touched; large pages where the system gives them.
class Arena {
 public:
  explicit Arena(std::uint64_t bytes) : bytes_(std::max<std::uint64_t>(bytes, 1)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED)
      fail_user("device cpu: {} of memory could not be had; lower --batch or set --memory-cap",
                format_bytes(static_cast<std::int64_t>(bytes_)));
    madvise(memory_, bytes_, MADV_HUGEPAGE);
  }
  ~Arena() { munmap(memory_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  std::uint64_t bytes_;
  void* memory_;
};

std::uint64_t largest_arena(const std::vector<Plan>& plans) {
  std::uint64_t bytes = 0;
  for (const Plan& plan : plans) bytes = std::max(bytes, plan.arena_bytes);
  return bytes;
}

std::size_t most_lanes(const std::vector<Plan>& plans) {
  std::size_t lanes = 1;
  for (const Plan& plan : plans) lanes = std::max(lanes, plan.lanes.size());
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
  CpuExecutor(std::vector<Plan> plans, const CpuOptions& options)
      : plans_(std::move(plans)),
        arena_(largest_arena(plans_)),
        threads_(options.threads == 0 ? available_cores() : options.threads, most_lanes(plans_)) {
    omp_set_num_threads(1);  // kernels are made here and run on threads with the same setting
    for (const Plan& plan : plans_) programs_.push_back(bind(plan));
    for (const Constant& c : plans_[0].graph.constants) write_plain(c.buffer, *c.bytes);
  }

  const Plan& plan(std::size_t program) const override { return plans_.at(program); }

  // Runs it to its end: the threads are the device.
  void start(std::size_t program, const StepArgs& args) override {
    OVERTAKE_CHECK(!finished_ && !error_, "a step is under way already");
    try {
      finished_ = {threads_.run(programs_.at(program), args), {}};
      for (const BufferId b : plans_[program].graph.losses) {
        const auto* metrics = reinterpret_cast<const float*>(address(plans_[program], b));
        finished_->metrics.insert(finished_->metrics.end(), metrics, metrics + 3);
      }
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  FinishedStep finish() override {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    OVERTAKE_CHECK(finished_.has_value(), "no step is under way");
    return *std::exchange(finished_, std::nullopt);
  }
  std::size_t most_under_way() const override { return 1; }
  Trace run_traced(std::size_t program, const StepArgs& args) override { return run(program, args); }

  std::span<std::byte> bytes(BufferId b) override {
    return {arena_.data() + plans_[0].offsets.at(b), static_cast<std::size_t>(plans_[0].graph.bytes(b))};
  }

  void read_plain(BufferId b, std::span<std::byte> to) override { to_plain(plans_[0].graph.buffers[b], bytes(b), to); }

  void write_plain(BufferId b, std::span<const std::byte> from) override {
    from_plain(plans_[0].graph.buffers[b], from, bytes(b));
  }

  std::string find_non_finite(std::size_t program, const StepArgs& args) override {
    const Plan& plan = plans_.at(program);
    const Graph& g = plan.graph;
    for (const Parameter& p : g.parameters)
      if (g.buffers[p.buffer].role == Role::weight && !is_finite(g.buffers[p.buffer], address(plan, p.buffer)))
        return fmt::format("an earlier update of weight {}", g.buffer_name(p.buffer));
    for (const TaskId t : one_order(plan)) {
      for (const Phase& phase : programs_[program].tasks[t])
        for (std::uint32_t part = 0; part < phase.parts; ++part) phase.run(part, args);
      for (const BufferId b : g.writes(t))
        if (b != kNone && g.buffers[b].role != Role::scratch && !is_finite(g.buffers[b], address(plan, b)))
          return fmt::format("task {} ({})", g.task_name(t), to_string(g.tasks[t].op));
    }
    return "";
  }

 private:
  std::byte* address(const Plan& plan, BufferId b) const { return arena_.data() + plan.offsets[b]; }

  LaneProgram bind(const Plan& plan) const {
    const Graph& g = plan.graph;
    OVERTAKE_CHECK(plan.offsets.size() == g.buffers.size(), "memory of plan {} is not placed", plan.schedule);
    OVERTAKE_CHECK(plan.persistent_bytes == plans_[0].persistent_bytes, "plans of different graphs in one executor");
    std::vector<std::byte*> addresses;
    for (const std::uint64_t offset : plan.offsets) addresses.push_back(arena_.data() + offset);
    std::vector<BoundTask> tasks(g.tasks.size());
    for (TaskId t = 0; t < g.tasks.size(); ++t) {
      if (!plan.is_planned(t)) continue;
      const auto bind_task = cpu_binding(g.tasks[t].op).bind;
      OVERTAKE_CHECK(bind_task != nullptr, "the CPU has no kernel for op {}", to_string(g.tasks[t].op));
      tasks[t] = bind_task(TaskView(g, g.tasks[t], addresses));
    }
    return {lane_order(plan), std::move(tasks)};
  }

  std::vector<Plan> plans_;
  Arena arena_;
  std::vector<LaneProgram> programs_;
  LaneThreads threads_;
  std::optional<FinishedStep> finished_;
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(std::vector<Plan> plans, const CpuOptions& options) {
  OVERTAKE_CHECK(!plans.empty(), "an executor needs a plan");
  return std::make_unique<CpuExecutor>(std::move(plans), options);
}

}  // namespace overtake
