#include "cli/simulate/room.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace overtake {

void check_floor(const Program& step, const Machine& machine) {
  if (machine.memory.empty()) return;
  const Graph& graph = step.step;
  std::int64_t kept = 0, most = 0;
  for (BufferId b = 0; b < graph.buffers.size(); ++b)
    if (is_persistent(graph.buffers[b].role)) kept += graph.bytes(b);
  for (const std::uint32_t d : step.devices) {
    if (machine.memory[d] == 0) return;  // any number
    most = std::max(most, machine.memory[d]);
  }
  const std::int64_t floor = kept / step.spec.stages;
  if (floor > most)
    fail_user(
        "simulate {}: with {} stages, weights and optimizer states alone are more than a device has: one needs at "
        "least {}, and the largest has {}; use more stages (--pp), or --memory-cap to see it all the same "
        "(--recompute does not help, it saves activations)",
        graph.model, step.spec.stages, format_bytes(floor), format_bytes(most));
}

void check_room(const SimulatedRun& run, const Machine& machine) {
  if (const auto d = run.too_small(machine))
    fail_user(
        "simulate: {} needs {} on a device, which has {}; use more stages (--pp), more micro-batches, --recompute, "
        "or --memory-cap to see it all the same",
        run.name, format_bytes(run.peaks[*d].bytes), format_bytes(machine.memory_of(run.step.devices[*d])));
}

void check_room_together(const std::vector<SimulatedRun>& runs, const Machine& machine) {
  const std::vector<std::int64_t>& memory = machine.memory;
  std::vector<std::int64_t> bytes(memory.size(), 0);
  for (const SimulatedRun& run : runs)
    for (std::size_t d = 0; d < run.step.devices.size() && !memory.empty(); ++d)
      bytes[run.step.devices[d]] += run.peaks[d].bytes;
  for (std::uint32_t d = 0; d < bytes.size(); ++d)
    if (memory[d] > 0 && bytes[d] > memory[d])
      fail_user("--beside: on device {} the jobs need {} together, and it has {}; give them others with --devices", d,
                format_bytes(bytes[d]), format_bytes(memory[d]));
}

}  // namespace overtake
