#pragma once
// A training step of a pipeline as blocks: what every device runs, in which order (overtake/pipeline_schedule.h says
// how that is written down), how long that takes and what it keeps in memory. Knows no graph.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "overtake/pipeline_schedule.h"

namespace overtake {

// Of one stage, or summed over those of a chunk; per micro-batch, but for weights.
struct BlockCosts {
  std::int64_t forward_ns = 0, input_grad_ns = 0, weight_grad_ns = 0;
  std::int64_t activation_bytes = 0;  // kept from the start of forward to the end of input_grad
  std::int64_t gradient_bytes = 0;    // what weight_grad still needs of them then, and of gradients: kept until its end
  std::int64_t weight_bytes = 0;      // kept all the time on every device that runs the stage

  std::int64_t ns() const { return forward_ns + input_grad_ns + weight_grad_ns; }
  std::int64_t ns(Kind kind) const {
    return kind == Kind::forward ? forward_ns : kind == Kind::input_grad ? input_grad_ns : weight_grad_ns;
  }
  BlockCosts& operator+=(const BlockCosts& other);
};

struct PipelineProblem {
  std::uint32_t devices = 1, micro_batches = 1;
  std::vector<BlockCosts> blocks;               // the stages, in the order of forward; at least one per device
  std::int64_t transfer_ns = 0;                 // from a chunk to the next on another device
  std::optional<std::int64_t> memory_cap = {};  // bytes, of each device
  // By stage: what devices that have the same stage take to sum their weight gradients of it. Empty: no time.
  std::vector<std::int64_t> copy_sum_ns = {};

  // Devices that differ. Where these are empty, all devices have the costs, the transfer time and the cap above.
  std::vector<std::uint32_t> kind_of_device = {};            // by device: which of blocks_of_kind it runs
  std::vector<std::vector<BlockCosts>> blocks_of_kind = {};  // [kind][stage]
  std::vector<std::int64_t> memory_caps = {};                // by device, bytes; kNoCap: any
  std::vector<std::vector<std::int64_t>> link_ns = {};       // [from][to]: the transfer time between two devices

  static constexpr std::int64_t kNoCap = INT64_MAX;
  bool has_caps() const { return memory_cap || !memory_caps.empty(); }
  std::int64_t cap(std::uint32_t device) const {
    return memory_caps.empty() ? memory_cap.value_or(kNoCap) : memory_caps[device];
  }
  const std::vector<BlockCosts>& blocks_on(std::uint32_t device) const {
    return kind_of_device.empty() ? blocks : blocks_of_kind[kind_of_device[device]];
  }
  std::int64_t transfer(std::uint32_t from, std::uint32_t to) const {
    if (from == to) return 0;
    return link_ns.empty() ? transfer_ns : link_ns[from][to];
  }
  // Whether exchanging two devices changes nothing.
  bool are_alike(std::uint32_t a, std::uint32_t b) const {
    if (!link_ns.empty()) return a == b;
    return (kind_of_device.empty() || kind_of_device[a] == kind_of_device[b]) && cap(a) == cap(b);
  }
};

struct DeviceTimes {
  std::int64_t start_ns = 0, end_ns = 0;  // of its first and its last block
  std::int64_t busy_ns = 0;
  std::int64_t bubble_ns = 0;              // idle from the start of the step to its end
  std::int64_t peak_bytes = 0;             // weights and all
  std::int64_t peak_activation_bytes = 0;  // without weights
  double peak_micro_batches = 0;  // the same; 1 is what a device would have of a micro-batch if all had as much
};

struct PipelineTimes {
  // From the first block's start to the last one's end, and that of the sums behind it where a layout has stages on
  // several devices: a step with a barrier behind it.
  std::int64_t makespan_ns = 0;
  // The longest time of one device from its first start to its last end: what a step takes of many that follow one
  // another without a barrier. Zero Bubble's bubbles are counted so.
  std::int64_t span_ns = 0;
  std::vector<std::int64_t> start_ns, end_ns;  // by block_id
  std::vector<DeviceTimes> devices;
  bool is_stuck = false;  // devices wait for one another in a circle; nothing else of this counts then
  std::string why_stuck;
};

// User errors: nothing to run, fewer stages than devices, negative times or sizes. Internal errors: lists by device
// that do not have an entry for each.
void check(const PipelineProblem& problem);

// Where nothing is said of memory, a stage keeps a byte of every micro-batch: so a limit on what is under way still
// means something.
PipelineProblem with_sizes(PipelineProblem problem);

// What a block takes if every stage is one, on average over the devices.
double mean_block_ns(const PipelineProblem& problem);

// [route * chunks + chunk]: what a chunk takes and keeps on its route's device.
std::vector<BlockCosts> chunk_costs(const PipelineProblem& problem, const PipelineLayout& layout);

inline std::uint32_t block_id(const PipelineProblem& problem, Kind kind, std::uint32_t chunk,
                              std::uint32_t micro_batch) {
  return (chunk * 3 + static_cast<std::uint32_t>(kind)) * problem.micro_batches + micro_batch;
}
inline std::uint32_t block_id(const PipelineProblem& problem, const ChunkTask& b) {
  return block_id(problem, b.kind, b.chunk, b.micro_batch);
}

// Every device runs its blocks in order, each as soon as its inputs are there.
PipelineTimes evaluate(const PipelineProblem& problem, const PipelineSchedule& schedule);

// Internal errors: every block exactly once, on its device, not before what it needs; nobody waits for ever.
void verify(const PipelineProblem& problem, const PipelineSchedule& schedule);

}  // namespace overtake
