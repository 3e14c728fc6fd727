#pragma once
// PipelineSchedule: which device runs which part of a model, and in which order. The model is a chain of stages, in the
// order of forward. A schedule cuts it into chunks of neighbouring stages and gives each chunk a device. A micro-batch
// passes all chunks forward, then backward; its input gradients go from chunk to chunk, its weight gradients go nowhere
// and may come late.

#include <cstdint>
#include <string>
#include <vector>

#include "overtake/types.h"

namespace overtake {

// A chunk's part of a micro-batch: its forward, its input gradient or its weight gradient.
struct ChunkTask {
  Kind kind = Kind::forward;  // or input_grad, weight_grad; no other
  // One task with the block right behind it: they start when both can, and their results leave when both are done. So
  // are the two gradients in schedules that do not part them.
  bool is_joined = false;
  std::uint32_t chunk = 0;
  std::uint32_t micro_batch = 0;
  bool operator==(const ChunkTask&) const = default;
};

// Which stages lie where. Micro-batches may take different routes: then several devices have the same chunk.
struct PipelineLayout {
  std::vector<std::uint32_t> first_block;             // per chunk, and the number of stages at the end
  std::vector<std::vector<std::uint32_t>> device_of;  // [route][chunk]
  std::vector<std::uint32_t> route_of;                // by micro-batch; empty: all take route 0

  std::uint32_t chunks() const { return static_cast<std::uint32_t>(first_block.size()) - 1; }
  std::uint32_t route(std::uint32_t micro_batch) const { return route_of.empty() ? 0 : route_of[micro_batch]; }
  bool operator==(const PipelineLayout&) const = default;
};

using ChunkOrders = std::vector<std::vector<ChunkTask>>;  // by device

struct PipelineSchedule {
  std::string name;
  PipelineLayout layout;
  ChunkOrders orders;
};

// Reverse first-k: the weight gradients of k blocks of every chunk come after all input gradients of the last
// micro-batch, in the order in which forward needs them: the first k blocks, or those that follow the first `from`
// ones. Late gradients of later blocks have more of the next forward to hide behind, those of earlier ones less work
// before them.
struct FirstK {
  std::uint32_t k = 0, from = 0;
  auto operator<=>(const FirstK&) const = default;
};

}  // namespace overtake
