#include "cli/bench_rows.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/median.h"
#include "train/timing.h"

namespace overtake {
namespace {

constexpr int kBurst = 5, kLongestBurst = 100;
constexpr double kBurstMs = 5;

// Steps back to back, as many under way as the device takes; of each but the first, which starts on an idle device,
// the time in ms, and what the device idled before it.
struct Burst {
  std::vector<double> ms, idle_ms;
};
Burst burst(TrainingRun& run, int least, float learning_rate) {
  const auto depth = static_cast<int>(run.most_under_way());
  const int steps = std::max(least, depth > 1 ? kBurst : 1), idle = depth > 1 ? 1 : 0;
  Burst out;
  for (int started = 0, finished = 0; finished < steps + idle; ++finished) {
    for (; started < steps + idle && started - finished < depth; ++started) run.start_step(learning_rate);
    const StepResult step = run.finish_step();
    if (finished < idle) continue;
    out.ms.push_back(static_cast<double>(step.trace.step_ns) * 1e-6);
    if (step.idle_ns) out.idle_ms.push_back(static_cast<double>(*step.idle_ns) * 1e-6);
  }
  return out;
}

}  // namespace

double BenchRow::median() const {
  std::vector<double> samples = ms;
  return overtake::median(samples);
}

StepTime BenchRow::step_time() const {
  return {std::llround(median() * 1e6), fmt::format("median of {} measured steps", ms.size())};
}

double BenchRow::fastest() const { return *std::ranges::min_element(ms); }

double BenchRow::predicted() const { return run->predicted_ms().value_or(0); }

std::optional<double> BenchRow::idle() const {
  if (idle_ms.empty()) return {};
  std::vector<double> samples = idle_ms;
  return overtake::median(samples);
}

void measure(std::vector<BenchRow>& rows, const BenchRounds& rounds) {
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  const int count = rounds.warm + rounds.steps;
  int least = 1;  // steps of a burst, of all rows alike: more of short ones, which one interruption would change more
  for (int i = 0; i < count; ++i) {
    double round_ms = 0;
    for (BenchRow& row : rows) {
      const Burst all = burst(*row.run, least, rounds.learning_rate);
      round_ms = std::max(round_ms, all.ms.back());
      if (i >= rounds.warm) {
        row.ms.insert(row.ms.end(), all.ms.begin(), all.ms.end());
        row.idle_ms.insert(row.idle_ms.end(), all.idle_ms.begin(), all.idle_ms.end());
      }
      if (rounds.trace && i + 1 == count) row.traces.push_back(row.run->step_traced(rounds.learning_rate).trace);
    }
    least = steps_lasting(kBurstMs, round_ms, least, kLongestBurst);
    if (is_terminal) fmt::print(stderr, "\rround {}/{}", i + 1, count);
  }
  if (is_terminal) fmt::print(stderr, "\r\033[K");
}

}  // namespace overtake
