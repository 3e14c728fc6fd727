#include "overtake/simulate.h"

#include <utility>

#include "base/error.h"
#include "plan/memory.h"
#include "plan/simulated_step.h"

namespace overtake {

Simulation simulate(const Program& program) {
  SimulatedStep simulated = simulated_step(program);
  JobResult& result = simulated.step.result;
  if (!result.is_finished)
    fail_user("`program {}`: the step does not end: {}; choose another schedule", program.model.model,
              result.stuck[0].why);
  Simulation out{.name = std::move(simulated.name), .plan = {}, .trace = {}, .peak_bytes = peak_memory(simulated.step)};
  out.plan = std::move(simulated.step.outline.plan);
  out.trace = std::move(result.trace);
  if (program.is_outlined()) return out;
  // Task by task memory can be placed, in place where the ops allow it, as it is where the step is run.
  out.plan = place_memory(std::move(out.plan));
  out.peak_bytes = {static_cast<std::int64_t>(out.plan.arena_bytes)};
  return out;
}

}  // namespace overtake
