#pragma once
// Runs the lanes of a plan on threads. Each lane is led by a thread on a core of its own, the first one by the
// caller's. A task may come in parts; a thread that has nothing to do in its own lane, and every thread without a lane,
// helps with the parts of others. Which thread runs which part never changes a bit of the result.

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "exec/cpu/transfer_lanes.h"
#include "exec/executor.h"
#include "exec/lane_order.h"

namespace overtake {

// Parts of a task that may run at the same time. A task is a sequence of phases.
struct Phase {
  std::uint32_t parts = 1;
  std::function<void(std::uint32_t part, const StepArgs& args)> run;
};
using BoundTask = std::vector<Phase>;

class LaneThreads {
 public:
  // At least one thread per lane, counting the caller's; more of them help.
  LaneThreads(unsigned threads, std::size_t lanes);
  ~LaneThreads();
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;

  // One caller at a time; `tasks` are by id. Delayed tasks get the arguments of the step they belong to.
  // Asynchronous lanes come after those that compute, and are left to `transfers`.
  Trace run(const LaneOrder& lanes, const std::vector<BoundTask>& tasks, const StepArgs& args,
            const StepArgs& delayed_args, TransferLanes* transfers = nullptr, std::size_t asynchronous = 0);

 private:
  // The phase a lane is at, offered to helpers. The upper half of `ticket` counts phases, the lower half is the next
  // part to take; kClosed there means nothing is on offer.
  struct alignas(64) Offer {
    std::atomic<std::uint64_t> ticket{0xffffffffu};
    std::atomic<const Phase*> phase{nullptr};
    std::atomic<const StepArgs*> args{nullptr};
    std::atomic<std::uint32_t> parts{0};
    std::atomic<std::uint32_t> finished{0};
  };
  // Where a thread waits: it spins for a while, then sleeps until the count of events changes.
  template <class Condition>
  void wait_until(const Condition& holds, bool may_help);

  void work(unsigned thread);
  void lead(std::size_t lane);
  void run_task(std::size_t lane, const LaneEntry& entry);
  void run_phase(Offer& offer, const Phase& phase, const StepArgs& args);
  void run_part(const Phase& phase, std::uint32_t part, const StepArgs& args);
  bool help();
  void announce();
  bool is_ready(const LaneEntry& entry) const;
  void fail(std::exception_ptr error);
  void begin_transfers(const LaneOrder& lanes);
  std::int64_t now_ns() const;

  std::vector<Offer> offers_;                           // per lane there may be
  std::unique_ptr<std::atomic<std::uint32_t>[]> done_;  // per task: the number of the run it was last done in
  std::size_t done_size_ = 0;
  std::vector<std::vector<Span>> spans_;                   // per lane
  std::unique_ptr<std::atomic<std::uint32_t>[]> started_;  // per transfer, likewise
  const LaneOrder* lanes_ = nullptr;
  std::size_t led_ = 0;  // of them, by threads
  TransferLanes* transfers_ = nullptr;
  const std::vector<BoundTask>* tasks_ = nullptr;
  StepArgs args_, delayed_args_;
  std::uint32_t number_ = 0;  // of the run; written while no lane is active
  std::int64_t start_ns_ = 0;

  std::atomic<std::uint32_t> run_{0};           // number_, for threads that wait for the next run
  std::atomic<std::uint32_t> active_lanes_{0};  // lanes that have not finished this run
  std::atomic<std::uint32_t> inside_{0};        // threads that are looking at this run
  std::atomic<int> events_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> failed_{false};
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  unsigned spins_ = 0;
  bool is_pinned_ = false;
  std::vector<std::thread> threads_;  // last: starts when all above is there
};

}  // namespace overtake
