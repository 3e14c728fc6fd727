#pragma once
// How the CPU does an op: phases of independent parts over kernels' units.

#include <algorithm>
#include <cstdint>

#include "exec/cpu/lanes.h"
#include "exec/task_view.h"

namespace overtake {

// Unit range [begin, end) of one part: the units are dealt out as evenly as can be.
struct UnitRange {
  std::int64_t begin, end;
};
inline UnitRange part_range(std::int64_t units, std::uint32_t part, std::uint32_t parts) {
  return {units * part / parts, units * (part + 1) / parts};
}

// How many parts a task of so many units comes in: the graph's number, but no part without `least` units.
inline std::uint32_t parts_for(const TaskView& view, std::int64_t units, std::int64_t least = 1) {
  const std::int64_t most = std::max<std::int64_t>(1, units / std::max<std::int64_t>(1, least));
  return static_cast<std::uint32_t>(std::min<std::int64_t>(view.graph().parts, most));
}

// Blocks of 1024 elements below which a part is not worth the hand-over to another thread.
inline constexpr std::int64_t kLeastBlocks = 8;

// A phase over units, cut into parts. body(begin, end, args) or body(begin, end).
template <class Body>
Phase over_units(std::uint32_t parts, std::int64_t units, Body body) {
  return {parts, [parts, units, body = std::move(body)](std::uint32_t part, const StepArgs& args) {
            const UnitRange r = part_range(units, part, parts);
            if constexpr (std::is_invocable_v<Body, std::int64_t, std::int64_t, const StepArgs&>)
              body(r.begin, r.end, args);
            else
              body(r.begin, r.end);
          }};
}

// Scratch memory is handed out in pieces that do not share a cache line.
constexpr std::int64_t kScratchLine = 64;
constexpr std::int64_t scratch_piece(std::int64_t bytes) {
  return (bytes + kScratchLine - 1) / kScratchLine * kScratchLine;
}

// How the CPU does an op. `scratch` is null where no kernel of the op needs any.
struct CpuBinding {
  BoundTask (*bind)(const TaskView& view) = nullptr;
  std::int64_t (*scratch)(const TaskView& view) = nullptr;
};
const CpuBinding& cpu_binding(Op op);

}  // namespace overtake
