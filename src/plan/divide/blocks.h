#pragma once
// A training step as a chain of blocks, each a layer or several: the terms in which clusters are planned. Of a block
// there is at most one task of each kind: its forward, its input and weight gradients, its update; and one for ties.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "overtake/graph.h"
#include "overtake/task_cost.h"

namespace overtake {

// A graph of tasks of Op::block. A buffer stands for all that one task gives to the same others, as so many bytes.
struct BlockGraph {
  struct Block {
    std::string name;  // of its first layer
    TaskId forward = kNone, input_grad = kNone, weight_grad = kNone, update = kNone;
    // Of a weight that other blocks use as well: puts the gradients of all uses together, once in a step.
    TaskId tie = kNone;
    std::vector<BufferId> gradients = {};  // that its tasks make in every micro-batch, to be summed over them
    std::vector<BufferId> reduced = {};    // that its update reads: the same, but for what is tied
  };
  Graph graph;
  std::vector<TaskCost> work;  // per task
  std::vector<Block> blocks;
  std::vector<std::uint32_t> block_of;  // per task
  // What tasks and buffers stand for: those of the step, in its order. Empty where there is none.
  std::vector<std::vector<TaskId>> tasks = {};
  std::vector<std::vector<BufferId>> buffers = {};
};

// A step of one micro-batch with its updates; `work` is per task. A block begins at every layer that has weights; where
// that makes more than `most` of them, they are merged: first where much crosses from one to the next, then the
// shortest. Tasks that need all gradients at once (clipping) are left out.
// With CutAt::waists that is so however many there may be, but for a few blocks at least.
enum class CutAt : std::uint8_t { any, waists };
BlockGraph make_blocks(const Graph& step, std::span<const TaskCost> work, std::uint32_t most,
                       CutAt cut_at = CutAt::any);

// The same blocks where the tasks of the step take something else, as on another kind of device.
BlockGraph with_costs(BlockGraph graph, std::span<const TaskCost> costs);

// What a block keeps from its forward for its gradients is computed again instead, right before its input gradient.
BlockGraph recompute(BlockGraph graph);

// A stage from nothing, as one block. Of each micro-batch it keeps `kept_bytes` for its gradients, and hands
// `sent_bytes` on to the next stage, which hands as much of gradients back. Where nothing is said of what it keeps,
// that is what it hands on, and where nothing of that, a byte, whose gradient has no size.
struct SyntheticStage {
  std::int64_t forward_ns = 0, input_grad_ns = 0, weight_grad_ns = 0;
  std::optional<std::int64_t> kept_bytes = {}, sent_bytes = {};
  std::int64_t weight_bytes = 0;  // and as much of gradients
};
BlockGraph synthetic_blocks(const std::vector<SyntheticStage>& stages);

// A chain of equal blocks, for pipelines as textbooks have them.
BlockGraph synthetic_blocks(std::uint32_t stages, std::int64_t forward_ns, std::int64_t input_grad_ns,
                            std::int64_t weight_grad_ns);

}  // namespace overtake
