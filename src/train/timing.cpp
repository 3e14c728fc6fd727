#include "train/timing.h"

#include <algorithm>

namespace overtake {

std::vector<double> time_steps(Executor& executor, std::size_t program, int steps, StepArgs args) {
  const auto depth = static_cast<int>(executor.most_under_way());
  const int left_out = (depth > 1 ? 1 : 0) + (has_delayed_tasks(executor.plan(program)) ? 1 : 0);
  std::vector<double> ms;
  for (int started = 0, finished = 0; finished < steps + left_out; ++finished) {
    for (; started < steps + left_out && started - finished < depth; ++started, ++args.step)
      executor.start(program, args);
    const Trace trace = executor.finish().trace;
    if (finished >= left_out) ms.push_back(static_cast<double>(trace.step_ns) * 1e-6);
  }
  return ms;
}

int steps_lasting(double ms, double step_ms, int least, int most) {
  return static_cast<int>(std::clamp(ms / step_ms, static_cast<double>(least), static_cast<double>(most)));
}

}  // namespace overtake
