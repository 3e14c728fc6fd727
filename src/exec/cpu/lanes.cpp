#include "exec/cpu/lanes.h"

#include <immintrin.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "base/available_cores.h"
#include "base/error.h"

namespace overtake {
namespace {

constexpr std::uint32_t kClosed = 0xffffffffu;

void pin_to_core(unsigned index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  unsigned seen = 0;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || seen++ != index) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

}  // namespace

LaneThreads::LaneThreads(unsigned threads, std::size_t lanes)
    : offers_(std::max<std::size_t>(threads, lanes)), spans_(offers_.size()) {
  const auto count = static_cast<unsigned>(offers_.size());
  // Spinning only helps where every thread has a core.
  spins_ = count <= available_cores() ? 4000 : 0;
  is_pinned_ = count == available_cores();
  for (unsigned i = 1; i < count; ++i) threads_.emplace_back([this, i] { work(i); });
}

LaneThreads::~LaneThreads() {
  stop_.store(true, std::memory_order_release);
  announce();
  for (std::thread& t : threads_) t.join();
}

std::int64_t LaneThreads::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void LaneThreads::announce() {
  events_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) events_.notify_all();
}

template <class Condition>
void LaneThreads::wait_until(const Condition& holds, bool may_help) {
  unsigned spin = 0;
  while (!holds()) {
    if (may_help && help()) {
      spin = 0;
      continue;
    }
    if (spin++ < spins_) {
      _mm_pause();
      continue;
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const int seen = events_.load(std::memory_order_seq_cst);
    const bool is_work =
        holds() || (may_help && std::ranges::any_of(offers_, [](const Offer& o) {
                      const std::uint64_t ticket = o.ticket.load(std::memory_order_acquire);
                      return static_cast<std::uint32_t>(ticket) < o.parts.load(std::memory_order_relaxed);
                    }));
    if (!is_work) events_.wait(seen, std::memory_order_seq_cst);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    spin = 0;
  }
}

Trace LaneThreads::run(const LaneOrder& lanes, const std::vector<BoundTask>& tasks, const StepArgs& args,
                       const StepArgs& delayed_args, TransferLanes* transfers, std::size_t asynchronous) {
  led_ = lanes.size() - asynchronous;
  OVERTAKE_CHECK(led_ <= offers_.size(), "{} lanes on threads for {}", led_, offers_.size());
  if (done_size_ < tasks.size()) {
    OVERTAKE_CHECK(transfers_ == nullptr, "another program while transfers may be under way");
    done_ = std::make_unique<std::atomic<std::uint32_t>[]>(tasks.size());
    started_ = std::make_unique<std::atomic<std::uint32_t>[]>(tasks.size());
    done_size_ = tasks.size();
  }
  for (auto& spans : spans_) spans.clear();
  lanes_ = &lanes;
  tasks_ = &tasks;
  args_ = args;
  delayed_args_ = delayed_args;
  {
    const std::lock_guard lock(error_mutex_);  // a transfer that went on may just have failed
    error_ = nullptr;
    failed_.store(false, std::memory_order_relaxed);
  }
  start_ns_ = now_ns();
  ++number_;
  transfers_ = transfers;
  if (transfers_ != nullptr) begin_transfers(lanes);
  // A thread that is late from the run before may join this one from here on: all it reads is set above.
  active_lanes_.store(static_cast<std::uint32_t>(led_), std::memory_order_release);
  run_.store(number_, std::memory_order_release);
  announce();
  omp_set_num_threads(1);  // oneDNN cuts its sums by this count
  if (transfers_ != nullptr) transfers_->advance();
  if (led_ > 0) lead(0);
  // Also waits for helpers to let go, so that nothing of this run is looked at when the next one is set up.
  wait_until(
      [&] {
        return active_lanes_.load(std::memory_order_acquire) == 0 && inside_.load(std::memory_order_acquire) == 0 &&
               (transfers_ == nullptr || transfers_->is_over() || failed_.load(std::memory_order_acquire));
      },
      true);

  Trace trace;
  trace.start_ns = start_ns_;
  trace.step_ns = now_ns() - start_ns_;
  if (error_) std::rethrow_exception(error_);
  for (const auto& spans : spans_) trace.spans.insert(trace.spans.end(), spans.begin(), spans.end());
  if (transfers_ != nullptr)
    for (const Span& s : transfers_->take_spans(start_ns_)) trace.spans.push_back(s);
  return trace;
}

void LaneThreads::begin_transfers(const LaneOrder& lanes) {
  transfers_->begin(&lanes, {.is_ready = [this](const LaneEntry& entry) { return is_ready(entry); },
                             .has_started = [this, n = number_](TaskId t) { started_[t].store(n); },
                             .has_ended =
                                 [this](TaskId t) {
                                   done_[t].store(started_[t].load(), std::memory_order_release);
                                   announce();
                                 },
                             .has_failed =
                                 [this](std::exception_ptr error) {
                                   fail(error);
                                   announce();
                                 },
                             .now_ns = [this] { return now_ns(); }});
}

bool LaneThreads::is_ready(const LaneEntry& entry) const {
  const auto is_done = [&](TaskId t) { return done_[t].load(std::memory_order_acquire) == number_; };
  const auto has_ended = [&](TaskId t) { return done_[t].load(std::memory_order_acquire) == started_[t].load(); };
  return std::ranges::all_of(entry.waits_for, is_done) && std::ranges::all_of(entry.waits_for_last, has_ended);
}

void LaneThreads::fail(std::exception_ptr error) {
  const std::lock_guard lock(error_mutex_);
  if (!error_) error_ = error;
  failed_.store(true, std::memory_order_release);
}

void LaneThreads::work(unsigned thread) {
  omp_set_num_threads(1);
  // Fewer threads than cores may have to share the machine with others: then the system knows better where to run.
  if (is_pinned_) pin_to_core(thread);
  std::uint32_t last_run = 0;
  const auto is_stopping = [&] { return stop_.load(std::memory_order_acquire); };
  while (true) {
    wait_until([&] { return is_stopping() || run_.load(std::memory_order_acquire) > last_run; }, false);
    if (is_stopping()) return;
    inside_.fetch_add(1, std::memory_order_acq_rel);
    last_run = run_.load(std::memory_order_acquire);
    if (active_lanes_.load(std::memory_order_acquire) > 0) {
      last_run = number_;
      if (thread < led_) lead(thread);
      wait_until([&] { return active_lanes_.load(std::memory_order_acquire) == 0; }, true);
    }
    inside_.fetch_sub(1, std::memory_order_acq_rel);
    announce();
  }
}

void LaneThreads::lead(std::size_t lane) {
  const std::uint32_t number = number_;
  for (const LaneEntry& entry : (*lanes_)[lane]) {
    wait_until([&] { return failed_.load(std::memory_order_relaxed) || is_ready(entry); }, true);
    if (failed_.load(std::memory_order_relaxed)) break;
    run_task(lane, entry);
    done_[entry.task].store(number, std::memory_order_release);
    if (entry.joined != kNone) done_[entry.joined].store(number, std::memory_order_release);
    announce();
    if (transfers_ != nullptr) transfers_->advance();
  }
  active_lanes_.fetch_sub(1, std::memory_order_acq_rel);
  announce();
}

void LaneThreads::run_task(std::size_t lane, const LaneEntry& entry) {
  const std::int64_t begin = now_ns() - start_ns_;
  const StepArgs& args = entry.is_delayed ? delayed_args_ : args_;
  for (const Phase& phase : (*tasks_)[entry.task]) run_phase(offers_[lane], phase, args);
  const std::int64_t end = now_ns() - start_ns_;
  for (const TaskId t : {entry.task, entry.joined})
    if (t != kNone) spans_[lane].push_back({t, static_cast<std::uint32_t>(lane), begin, end});
}

void LaneThreads::run_phase(Offer& offer, const Phase& phase, const StepArgs& args) {
  if (phase.parts == 1 || threads_.empty()) {
    for (std::uint32_t part = 0; part < phase.parts; ++part) run_part(phase, part, args);
    return;
  }
  offer.phase.store(&phase, std::memory_order_relaxed);
  offer.args.store(&args, std::memory_order_relaxed);
  offer.parts.store(phase.parts, std::memory_order_relaxed);
  offer.finished.store(0, std::memory_order_relaxed);
  const std::uint64_t count = (offer.ticket.load(std::memory_order_relaxed) >> 32) + 1;
  offer.ticket.store(count << 32, std::memory_order_release);
  announce();
  while (true) {
    const auto part = static_cast<std::uint32_t>(offer.ticket.fetch_add(1, std::memory_order_acq_rel));
    if (part >= phase.parts) break;
    run_part(phase, part, args);
    offer.finished.fetch_add(1, std::memory_order_acq_rel);
  }
  wait_until([&] { return offer.finished.load(std::memory_order_acquire) == phase.parts; }, false);
  // Closed before the fields change again, so that a late helper's ticket is never valid for the next phase.
  offer.ticket.store((count << 32) | kClosed, std::memory_order_release);
}

void LaneThreads::run_part(const Phase& phase, std::uint32_t part, const StepArgs& args) {
  if (failed_.load(std::memory_order_relaxed)) return;
  try {
    phase.run(part, args);
  } catch (...) {
    fail(std::current_exception());
  }
}

bool LaneThreads::help() {
  for (Offer& offer : offers_) {
    std::uint64_t ticket = offer.ticket.load(std::memory_order_acquire);
    const auto part = static_cast<std::uint32_t>(ticket);
    const std::uint32_t parts = offer.parts.load(std::memory_order_relaxed);
    const Phase* phase = offer.phase.load(std::memory_order_relaxed);
    const StepArgs* args = offer.args.load(std::memory_order_relaxed);
    if (part >= parts || !offer.ticket.compare_exchange_strong(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    run_part(*phase, part, *args);
    if (offer.finished.fetch_add(1, std::memory_order_acq_rel) + 1 == parts) announce();
    return true;
  }
  return false;
}

}  // namespace overtake
