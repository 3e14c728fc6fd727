// The CUDA executor: one arena, a stream per lane, one graph per program, replayed step after step. Nothing in a step
// waits for the host; the few numbers it wants (losses, what was wrong with its data) are written to pinned memory at
// the step's end.

#include "exec/cuda/cuda_executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "exec/arena_view.h"
#include "exec/cuda/bound_plan.h"
#include "exec/cuda/staging.h"
#include "exec/delayed.h"
#include "exec/plain_values.h"
#include "kernels/cuda/finite.h"
#include "kernels/cuda/step_report.h"

namespace overtake {
namespace {

constexpr std::size_t kUnderWay = 2;  // steps: one runs, the next is enqueued behind it
constexpr int kReports = static_cast<int>(kUnderWay) + 1;

[[noreturn]] void fail_too_large(const Plan& plan, std::uint64_t bytes, std::size_t free) {
  std::int64_t batch = 1;
  for (const Buffer& b : plan.graph.buffers)
    if (b.role == Role::input && b.shape.rank > 0) batch = std::max(batch, b.shape[0]);
  // What does not live across steps grows with the batch.
  const double fixed = static_cast<double>(plan.persistent_bytes),
               per_sample = (static_cast<double>(bytes) - fixed) / static_cast<double>(batch);
  const auto fits = static_cast<std::int64_t>(std::floor((static_cast<double>(free) - fixed) / per_sample));
  const std::string advice = fits >= 1 ? fmt::format("about `batch {}` would fit", fits)
                                       : std::string("not even `batch 1` would fit; take a smaller model");
  fail_user("`device cuda`: the step needs {}, but {} are free; {}", format_bytes(static_cast<std::int64_t>(bytes)),
            format_bytes(static_cast<std::int64_t>(free)), advice);
}

// Zeroed device memory.
class Arena final : public PersistentMemory {
 public:
  Arena(std::uint64_t bytes, const char* what) : memory_(bytes, what) {
    check_cuda_call(cudaMemset(memory_.data(), 0, bytes), "clearing memory");
    check_cuda_call(cudaDeviceSynchronize(), "clearing memory");
  }
  std::byte* data() const { return memory_.data(); }

 private:
  DeviceMemory memory_;
};

// Beyond what lives across steps. A user error if that, and what lives across steps unless `is_there`, has no room.
std::uint64_t own_bytes(const std::vector<Plan>& plans, bool is_there) {
  std::uint64_t bytes = 0;
  for (const Plan& plan : plans) bytes = std::max(bytes, plan.arena_bytes - plan.persistent_bytes);
  std::size_t free = 0, total = 0;
  check_cuda_call(cudaMemGetInfo(&free, &total), "asking for free memory");
  const std::uint64_t all = bytes + plans[0].persistent_bytes;
  if ((is_there ? bytes : all) > free) fail_too_large(plans[0], all, free);
  return bytes;
}

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(std::vector<Plan> plans, CudaDevice& device, std::shared_ptr<PersistentMemory> memory)
      : device_(device),
        plans_(std::move(plans)),
        own_(own_bytes(plans_, memory != nullptr), "the step"),
        persistent_(memory ? std::static_pointer_cast<Arena>(memory)
                           : std::make_shared<Arena>(plans_[0].persistent_bytes, "weights and states")),
        arena_{persistent_->data(), own_.data(), plans_[0].persistent_bytes},
        staging_(plans_[0].graph),
        step_values_(2 * sizeof(cuda::StepValues), "step values"),
        carried_losses_(plans_[0].graph.losses.size() * kCarriedBytes, "losses"),
        streams_(device) {
    for (int i = 0; i < kReports; ++i) {
      begin_events_.push_back(make_event(true));
      end_events_.push_back(make_event(true));
    }
    clear_carried_losses();
    for (const Plan& plan : plans_) {
      OVERTAKE_CHECK(plan.persistent_bytes == plans_[0].persistent_bytes, "plans of different graphs in one executor");
      programs_.push_back(make_program(plan));
    }
    for (const Parameter& p : plans_[0].graph.parameters)
      if (p.copy != kNone) copy_of_[p.buffer] = p.copy;
    if (!memory)
      for (const Constant& c : plans_[0].graph.constants) write_plain(c.buffer, *c.bytes);
    check_cuda_call(cudaDeviceSynchronize(), "copying tables");  // copies from pageable memory end when they like
  }
  ~CudaExecutor() override { device_.ranks().drain(main()); }

  const Plan& plan(std::size_t program) const override { return plans_.at(program); }

  void connect() override {
    if (!device_.ranks().are_there()) return;
    for (const Loaded& p : programs_) p.bound->connect();
  }
  std::size_t most_under_way() const override { return kUnderWay; }

  void start(std::size_t program, const StepArgs& args) override {
    OVERTAKE_CHECK(under_way_.size() < kUnderWay, "{} steps are under way already", under_way_.size());
    const Portion portion = next_portion(program);
    UnderWay step{.program = program, .report = steps_ % kReports, .is_behind_another = !under_way_.empty()};
    const CudaEvent& begin = begin_events_[step.report];
    check_cuda_call(cudaEventRecord(begin.get(), main()), "recording an event");
    enqueue_step(program, portion, args, false);
    check_cuda_call(cudaEventRecord(end_events_[step.report].get(), main()), "recording an event");
    under_way_.push_back(step);
  }

  FinishedStep finish() override {
    OVERTAKE_CHECK(!under_way_.empty(), "no step is under way");
    const UnderWay step = under_way_.front();
    under_way_.pop_front();
    const cudaError_t error = device_.ranks().wait(end_events_[step.report].get());
    OVERTAKE_CHECK(
        error == cudaSuccess,
        "a kernel of plan {} failed on the GPU: {}; with `graph false` and CUDA_LAUNCH_BLOCKING=1 the task is named",
        plans_[step.program].schedule, cudaGetErrorString(error));
    FinishedStep finished{{}, read_report(step)};
    finished.trace.step_ns = nanoseconds_between(begin_events_[step.report], end_events_[step.report]);
    const std::uint64_t before = (step.report + kReports - 1) % kReports;
    if (step.is_behind_another) finished.idle_ns = nanoseconds_between(end_events_[before], begin_events_[step.report]);
    return finished;
  }

  Trace run_traced(std::size_t program, const StepArgs& args) override {
    OVERTAKE_CHECK(under_way_.empty(), "a step is under way");
    const Portion portion = next_portion(program);
    const auto start = std::chrono::steady_clock::now().time_since_epoch();  // the device begins a little later
    enqueue_step(program, portion, args, true);
    const UnderWay step{.program = program, .report = (steps_ - 1) % kReports};
    wait_for_all("a traced step");
    read_report(step);
    Trace trace = programs_[program].bound->trace(portion);
    trace.start_ns = std::chrono::nanoseconds(start).count();
    return trace;
  }
  Trace settle() override {
    if (!delayed_by_) return {};
    const std::size_t program = *std::exchange(delayed_by_, std::nullopt);
    cuda::set_step_values(main(), last_values_, last_values_, reinterpret_cast<cuda::StepValues*>(step_values_.data()));
    programs_[program].bound->enqueue(Portion::delayed, {}, false);
    wait_for_all("doing what was delayed");
    if (are_carried_losses_spoilt()) {
      clear_carried_losses();  // said once; it does not show in the next loss too
      fail_delayed_gradient(last_values_.step);
    }
    return {};
  }

  std::vector<std::int64_t> time_lanes(std::size_t program, const std::vector<std::vector<TaskId>>& lanes,
                                       int rounds) override {
    OVERTAKE_CHECK(under_way_.empty(), "a step is under way");
    settle();
    return programs_.at(program).bound->time_lanes(lanes, rounds);
  }

  std::shared_ptr<PersistentMemory> persistent_memory() const override { return persistent_; }

  std::span<std::byte> bytes(BufferId b) override {
    if (staging_.holds(b)) return staging_.next(b);
    std::vector<std::byte>& mirror = mirrors_[b];
    mirror.resize(static_cast<std::size_t>(graph().bytes(b)));
    download(b, mirror);
    return mirror;
  }

  void read_plain(BufferId b, std::span<std::byte> to) override {
    settle();
    std::vector<std::byte> laid_out(static_cast<std::size_t>(graph().bytes(b)));
    download(b, laid_out);
    to_plain(graph().buffers[b], laid_out, to);
  }

  void write_plain(BufferId b, std::span<const std::byte> from) override {
    if (staging_.holds(b)) return from_plain(graph().buffers[b], from, staging_.next(b));
    settle();
    std::vector<std::byte> laid_out(static_cast<std::size_t>(graph().bytes(b)));
    from_plain(graph().buffers[b], from, laid_out);
    upload(b, laid_out);
    if (const auto copy = copy_of_.find(b); copy != copy_of_.end()) write_copy(copy->second, laid_out);
  }

  std::string find_non_finite(std::size_t program, const StepArgs& args) override {
    settle();
    const Graph& g = plans_.at(program).graph;
    for (const Parameter& p : g.parameters)
      if (g.buffers[p.buffer].role == Role::weight && !is_finite(program, p.buffer))
        return fmt::format("an earlier update of weight {}", g.buffer_name(p.buffer));
    enqueue_arguments(args);
    std::vector<TaskId> order = one_order(plans_[program], Portion::step);
    std::ranges::copy(one_order(plans_[program], Portion::delayed), std::back_inserter(order));
    for (const TaskId t : order) {
      programs_[program].bound->run_task(t);
      for (const BufferId b : g.writes(t))
        if (b != kNone && g.buffers[b].role != Role::scratch && !is_finite(program, b))
          return fmt::format("task {} ({})", g.task_name(t), to_string(g.tasks[t].op));
    }
    return "";
  }

 private:
  struct Loaded {
    std::unique_ptr<BoundPlan> bound;
    std::vector<const std::uint32_t*> words;  // of a report: metrics of the losses, then checks, two words each
    DeviceMemory word_table;
    PinnedMemory reports;
    Launch last;
    CudaGraphExec graph, traced;
    bool was_checked = false;
    bool has_delayed = false;
  };
  // Of each loss of the last step, for what that delayed: three metrics (all losses' first), and whether it was finite.
  static constexpr std::size_t kCarriedBytes = 3 * sizeof(float) + sizeof(std::uint32_t);
  struct UnderWay {
    std::size_t program;
    std::uint64_t report;
    bool is_behind_another = false;  // that was under way when it was started
  };

  const Graph& graph() const { return plans_[0].graph; }
  void wait_for_all(const char* what) const { check_cuda_call(device_.ranks().wait(main()), what); }
  cudaStream_t main() const { return streams_.origin(); }
  std::byte* address(std::size_t program, BufferId b) const { return arena_.at(plans_[program].offsets[b]); }

  Loaded make_program(const Plan& plan) {
    Loaded p;
    auto* values = reinterpret_cast<cuda::StepValues*>(step_values_.data());
    auto* carried = reinterpret_cast<float*>(carried_losses_.data());
    const auto losses = static_cast<int>(plan.graph.losses.size());
    auto* was_finite = reinterpret_cast<std::uint32_t*>(carried + 3 * losses);
    p.bound = std::make_unique<BoundPlan>(plan, arena_, device_, streams_, values, carried);
    p.has_delayed = has_delayed_tasks(plan);
    for (const BufferId b : plan.graph.losses)
      for (int i = 0; i < 3; ++i)
        p.words.push_back(reinterpret_cast<const std::uint32_t*>(arena_.at(plan.offsets[b])) + i);
    for (const CudaCheck& check : p.bound->checks())
      for (int i = 0; i < 2; ++i) p.words.push_back(reinterpret_cast<const std::uint32_t*>(check.device) + i);
    const std::size_t table_bytes = p.words.size() * sizeof p.words[0];
    p.word_table = DeviceMemory(table_bytes, "tables");
    check_cuda_call(cudaMemcpy(p.word_table.data(), p.words.data(), table_bytes, cudaMemcpyHostToDevice),
                    "copying a table");
    p.reports = PinnedMemory(kReports * p.words.size() * sizeof(std::uint32_t));
    p.last = [=, count = static_cast<int>(p.words.size()), has_delayed = p.has_delayed,
              from = reinterpret_cast<std::uint32_t**>(p.word_table.data()),
              to = reinterpret_cast<std::uint32_t*>(p.reports.data())](cudaStream_t s) {
      if (has_delayed) cuda::carry_losses(s, reinterpret_cast<float* const*>(from), losses, carried, was_finite);
      cuda::report_words(s, values, from, count, kReports, to);
    };
    return p;
  }

  // What runs next, with what the last step delayed unless that was of another program.
  Portion next_portion(std::size_t program) {
    if (delayed_by_ && *delayed_by_ != program) settle();
    return delayed_by_ || !programs_.at(program).has_delayed ? Portion::step_and_delayed : Portion::step;
  }

  void enqueue_step(std::size_t program, Portion portion, const StepArgs& args, bool traced) {
    Loaded& p = programs_[program];
    enqueue_arguments(args);
    // The first step of a program runs task by task: a kernel that fails is named, and libraries load what they need.
    if (!p.was_checked) {
      p.bound->enqueue_checked(portion, p.last, traced);
      p.was_checked = true;
    } else if (portion == Portion::step || (!device_.uses_graph() && !traced)) {
      p.bound->enqueue(portion, p.last, traced);
    } else {
      CudaGraphExec& graph = traced ? p.traced : p.graph;
      if (!graph) graph = p.bound->capture(p.last, traced);
      check_cuda_call(cudaGraphLaunch(graph.get(), main()), "launching a step");
    }
    if (p.has_delayed) delayed_by_ = program;
  }

  void clear_carried_losses() {
    check_cuda_call(cudaMemset(carried_losses_.data(), 0, graph().losses.size() * kCarriedBytes), "clearing losses");
  }

  // Whether a delayed update has met a gradient that is not finite since the last step ended.
  bool are_carried_losses_spoilt() const {
    const std::size_t losses = graph().losses.size();
    std::vector<float> metrics(3 * losses);
    std::vector<std::uint32_t> was_finite(losses);
    check_cuda_call(cudaMemcpy(metrics.data(), carried_losses_.data(), 12 * losses, cudaMemcpyDeviceToHost),
                    "reading losses");
    check_cuda_call(
        cudaMemcpy(was_finite.data(), carried_losses_.data() + 12 * losses, 4 * losses, cudaMemcpyDeviceToHost),
        "reading losses");
    for (std::size_t i = 0; i < losses; ++i)
      if (was_finite[i] != 0 && !std::isfinite(metrics[3 * i])) return true;
    return false;
  }

  void enqueue_arguments(const StepArgs& args) {
    staging_.enqueue(main(), [&](BufferId b) { return address(0, b); });
    const cuda::StepValues values{
        .step = args.step, .seed = args.seed, .report = steps_++, .learning_rate = args.learning_rate};
    cuda::set_step_values(main(), values, last_values_, reinterpret_cast<cuda::StepValues*>(step_values_.data()));
    last_values_ = values;
  }

  // The metrics; throws if a check found something.
  std::vector<float> read_report(const UnderWay& step) const {
    const Loaded& p = programs_[step.program];
    const std::size_t metrics = 3 * plans_[step.program].graph.losses.size();
    const std::byte* words = p.reports.data() + step.report * p.words.size() * sizeof(std::uint32_t);
    std::vector<float> values(metrics);
    std::memcpy(values.data(), words, metrics * sizeof(float));
    const std::vector<CudaCheck>& checks = p.bound->checks();
    for (std::size_t i = 0; i < checks.size(); ++i) {
      std::int64_t found = -1;
      std::memcpy(&found, words + (metrics + 2 * i) * sizeof(std::uint32_t), sizeof found);
      if (found >= 0) checks[i].raise(found);
    }
    return values;
  }

  void download(BufferId b, std::span<std::byte> to) {
    wait_for_all("waiting for steps");
    check_cuda_call(cudaMemcpy(to.data(), address(0, b), to.size(), cudaMemcpyDeviceToHost), "reading a buffer");
  }
  void upload(BufferId b, std::span<const std::byte> from) {
    wait_for_all("waiting for steps");
    check_cuda_call(cudaMemcpyAsync(address(0, b), from.data(), from.size(), cudaMemcpyHostToDevice, main()),
                    "writing a buffer");
    check_cuda_call(cudaStreamSynchronize(main()), "writing a buffer");
  }

  void write_copy(BufferId copy, const std::vector<std::byte>& weight) {
    const auto count = weight.size() / sizeof(float);
    std::vector<bf16> values(count);
    const auto* from = reinterpret_cast<const float*>(weight.data());
    for (std::size_t i = 0; i < count; ++i) values[i] = from_float<bf16>(from[i]);
    upload(copy, std::as_bytes(std::span(values)));
  }

  bool is_finite(std::size_t program, BufferId b) {
    const Buffer& x = graph().buffers[b];
    if (x.dtype != DType::f32 && x.dtype != DType::bf16) return true;
    const DeviceMemory flag(sizeof(std::uint32_t), "a flag");
    const cuda::FiniteRows rows{.width = x.layout.pitch == 0 ? 0 : x.shape[1], .pitch = x.layout.pitch};
    check_cuda_call(cudaMemsetAsync(flag.data(), 0, sizeof(std::uint32_t), main()), "clearing a flag");
    with_type(x.dtype, [&]<class T>(T) {
      cuda::mark_non_finite(main(), reinterpret_cast<const T*>(address(program, b)), x.shape.elements(),
                            reinterpret_cast<std::uint32_t*>(flag.data()), rows);
    });
    check_cuda_call(cudaStreamSynchronize(main()), "looking for numbers that are not finite");
    std::uint32_t found = 0;
    check_cuda_call(cudaMemcpy(&found, flag.data(), sizeof found, cudaMemcpyDeviceToHost), "reading a flag");
    return found == 0;
  }

  CudaDevice& device_;
  std::vector<Plan> plans_;
  Arena own_;
  std::shared_ptr<Arena> persistent_;
  ArenaView arena_;
  InputStaging staging_;
  DeviceMemory step_values_, carried_losses_;
  StreamPool streams_;
  std::vector<CudaEvent> begin_events_, end_events_;  // by report
  std::vector<Loaded> programs_;
  std::map<BufferId, BufferId> copy_of_;
  std::map<BufferId, std::vector<std::byte>> mirrors_;  // of outputs, for the host to look at
  std::deque<UnderWay> under_way_;
  std::optional<std::size_t> delayed_by_;  // the program whose last step delayed tasks that are still to do
  cuda::StepValues last_values_;
  std::uint64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(std::vector<Plan> plans, CudaDevice& device,
                                             std::shared_ptr<PersistentMemory> memory) {
  OVERTAKE_CHECK(!plans.empty(), "an executor needs a plan");
  return std::make_unique<CudaExecutor>(std::move(plans), device, std::move(memory));
}

}  // namespace overtake
