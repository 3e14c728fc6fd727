#pragma once
// What every backend offers: it takes plans of one graph, runs their steps, and gives a trace of each.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "overtake/plan.h"

namespace overtake {

// What changes from step to step.
struct StepArgs {
  std::uint64_t step = 0;  // counted from 0
  std::uint64_t seed = 0;
  float learning_rate = 0;
};

struct FinishedStep {
  Trace trace;
  std::vector<float> metrics;  // three per loss of the graph, as its op says
  // What the device idled between the step before and this one; none where that was not under way when this was
  // started.
  std::optional<std::int64_t> idle_ns = {};
};

// Memory of a device in which everything lies that lives across steps. Executors share it, so it outlives each of them.
class PersistentMemory {
 public:
  virtual ~PersistentMemory() = default;
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const Plan& plan(std::size_t program) const = 0;

  // Before the first step, where other processes have parts of the plans: all of them call it at once, when what they
  // communicate by is connected. Transfers move whatever lies there, so what lives across steps is written afterwards.
  virtual void connect() {}

  // Starts a step of a plan. Steps run one after the other, in the order they were started. What a plan delays runs
  // with its next step, or before anything else is asked of the executor.
  virtual void start(std::size_t program, const StepArgs& args) = 0;
  // Waits for the oldest step under way. The first error inside it is thrown here, the others are dropped; what lives
  // across steps is then undefined. Its trace has spans only where they cost nothing.
  virtual FinishedStep finish() = 0;
  // How many steps may be under way at once.
  virtual std::size_t most_under_way() const = 0;
  // Does what the last step has delayed, if that is still to do, while nothing is under way. Others do so when they
  // must; where several processes have parts of one plan, all of them call this before one of them asks for what lives
  // across steps. Its trace has a step_ns of 0, and spans only where they cost nothing.
  virtual Trace settle() = 0;
  // Start and finish in one, while nothing is under way.
  Trace run(std::size_t program, const StepArgs& args) {
    start(program, args);
    return finish().trace;
  }
  // The same, with a span for every task.
  virtual Trace run_traced(std::size_t program, const StepArgs& args) = 0;

  // For each lane, when it has run the given tasks of a program one after the other, in nanoseconds from their common
  // start: the median over rounds, while nothing is under way. Lanes do not wait for one another and take operands as
  // they find them, so afterwards nothing that lives across steps means anything.
  virtual std::vector<std::int64_t> time_lanes(std::size_t program, const std::vector<std::vector<TaskId>>& lanes,
                                               int rounds) = 0;

  // Another executor of plans that have everything that lives across steps at the same offsets may take it over.
  virtual std::shared_ptr<PersistentMemory> persistent_memory() const = 0;

  // Inputs, to be written whole before a step is started, and outputs, to be read while nothing is under way; as they
  // lie in memory.
  virtual std::span<std::byte> bytes(BufferId buffer) = 0;
  // Any buffer that has a value between steps, converted from and to row-major order without padding.
  virtual void read_plain(BufferId buffer, std::span<std::byte> to) = 0;
  virtual void write_plain(BufferId buffer, std::span<const std::byte> from) = 0;

  // The first task of the last program's step, in plan order, that makes a number that is not finite from finite ones,
  // or the weight that is not finite already. Runs the step again, task by task. Empty if there is none.
  virtual std::string find_non_finite(std::size_t program, const StepArgs& args) = 0;
};

// All plans must be of one graph and have memory placed; they share one arena and what lives across steps. That lies in
// `memory`, which holds it already; none: in memory of their own, cleared.
std::unique_ptr<Executor> make_null_executor(std::vector<Plan> plans, std::shared_ptr<PersistentMemory> memory = {});

struct RankGroups;
struct DeviceGroups;

struct CpuOptions {
  unsigned threads = 0;  // 0: one per core this process may use
  // For plans that are one device's part of a larger one: where the others are. None: a plan has all its devices here.
  std::shared_ptr<RankGroups> groups = {};
};
std::unique_ptr<Executor> make_cpu_executor(std::vector<Plan> plans, const CpuOptions& options,
                                            std::shared_ptr<PersistentMemory> memory = {});

}  // namespace overtake
