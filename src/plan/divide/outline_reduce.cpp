#include "plan/divide/outline_reduce.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace overtake {
namespace {

constexpr std::int64_t kMostUrgent = 255;

std::size_t place_in(const std::vector<TaskId>& lane, TaskId t) {
  return static_cast<std::size_t>(std::ranges::find(lane, t) - lane.begin());
}

class Reducing {
 public:
  Reducing(const OutlineProblem& problem, OutlineStep& step, ComputeLanes& compute)
      : problem_(problem),
        in_(problem.blocks),
        layout_(problem.layout),
        options_(problem.options),
        step_(step),
        compute_(compute),
        lanes_(compute.lanes) {}

  Reductions run() {
    for (std::uint32_t device = 0; device < problem_.devices; ++device)
      for (const std::uint32_t b : compute_.blocks_on[device])
        if (in_.blocks[b].tie != kNone) add_tie(b, device);
    for (std::uint32_t c = 0; c < layout_.chunks(); ++c) reduce_chunk(c);
    for (std::uint32_t device = 0; device < problem_.devices; ++device)
      if (!problem_.updates_late())
        for (const std::uint32_t b : compute_.blocks_on[device])
          if (const TaskId t = add_update(b, device, false); t != kNone) lanes_[device].push_back(t);
    for (const auto& [device, at, block] : compute_.late_places) lanes_[device][at] = add_update(block, device, true);
    for (std::vector<TaskId>& lane : lanes_) std::erase(lane, TaskId{kNone});
    for (auto& [device, tasks] : gathers_) {
      if (problem_.updates_late()) std::ranges::sort(tasks);  // else as the sums come
      for (const auto& [block, t] : tasks) out_.gathers[device].push_back(t);
    }
    return std::move(out_);
  }

 private:
  // After the last of what it puts together; at the end of the lane where some comes from another device.
  void add_tie(std::uint32_t block, std::uint32_t device) {
    const TaskId like = in_.blocks[block].tie;
    std::vector<TaskId>& lane = lanes_[device];
    std::vector<BufferId> reads, writes;
    std::size_t at = 0;
    for (const BufferId b : in_.graph.reads(like)) {
      reads.push_back(total_on(b, block, device, false));
      const OutlineStep::Total& total = step_.total(b, device);
      const bool is_here = total.by != kNone && reads.back() == total.sum;
      at = is_here ? std::max(at, place_in(lane, total.by) + 1) : lane.size();
    }
    for (const BufferId b : in_.graph.writes(like)) writes.push_back(step_.add_buffer(b, device));
    const TaskId t = step_.add_block(like, device, 0, reads, writes);
    for (std::size_t i = 0; i < writes.size(); ++i) step_.total(in_.graph.writes(like)[i], device) = {writes[i], t};
    lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(at), t);
    for (ComputeLanes::LatePlace& late : compute_.late_places)
      if (late.device == device && late.at >= at) ++late.at;
  }

  TaskId add_update(std::uint32_t block, std::uint32_t device, bool is_delayed) {
    const TaskId like = in_.blocks[block].update;
    if (like == kNone) return kNone;
    const std::uint32_t r = device / problem_.local;
    std::vector<BufferId> reads, writes;
    for (const BufferId b : in_.graph.reads(like))
      // What is gathered in the next step is sent there too.
      reads.push_back(is_gradient(b) ? total_on(b, block, device, problem_.scatters() && problem_.updates_late())
                                     : step_.operand(b, r, 0, device));
    for (const BufferId b : in_.graph.writes(like)) writes.push_back(step_.operand(b, r, 0, device));
    const TaskId t = step_.add_block(like, device, 0, reads, writes);
    step_.graph().tasks[t].is_delayed = is_delayed;
    return t;
  }

  bool is_gradient(BufferId b) const { return step_.is_made(b) && !is_persistent(in_.graph.buffers[b].role); }

  // A gradient's sum for the tie or the update of a block: made on the same device, or sent there.
  BufferId total_on(BufferId b, std::uint32_t block, std::uint32_t device, bool is_delayed) {
    const std::uint32_t maker = step_.maker_of(b), r = device / problem_.local;
    const auto at_home = [&](const auto& route) {
      return r * problem_.local + route[problem_.chunk_of[block]] == device;
    };
    const auto route = std::ranges::find_if(layout_.device_of, at_home);
    const std::uint32_t from = r * problem_.local + (*route)[problem_.chunk_of[maker]];
    const BufferId sum = step_.total(b, from).sum;
    OVERTAKE_CHECK(sum != kNone, "{} is not summed on device {}", in_.graph.buffer_name(b), from);
    if (from == device) return sum;
    const BufferId copy = step_.add_buffer(b, device);
    const OutlineStep::Message& message = step_.send(sum, copy, 0);
    for (const TaskId t : {message.send, message.recv}) step_.graph().tasks[t].is_delayed = is_delayed;
    return copy;
  }

  // The gradients of a chunk over all devices that have it.
  void reduce_chunk(std::uint32_t chunk) {
    std::vector<std::uint32_t> members;
    for (std::uint32_t r = 0; r < options_.kept(); ++r)
      for (const auto& route : layout_.device_of) members.push_back(r * problem_.local + route[chunk]);
    std::ranges::sort(members);
    members.erase(std::ranges::unique(members).begin(), members.end());
    if (members.size() < 2 && options_.kept() == options_.replicas) return;
    // In the order in which the first of them has them.
    std::vector<std::uint32_t> blocks;
    for (std::uint32_t b = layout_.first_block[chunk]; b < layout_.first_block[chunk + 1]; ++b)
      if (!in_.blocks[b].reduced.empty()) blocks.push_back(b);
    const auto written = [&](std::uint32_t b) {
      std::size_t last = 0;
      for (const BufferId g : in_.blocks[b].reduced)
        last = std::max(last, place_in(lanes_[members[0]], step_.total(g, members[0]).by));
      return last;
    };
    std::ranges::sort(blocks, {}, written);
    std::vector<std::uint32_t> bucket;
    std::int64_t bytes = 0;
    for (const std::uint32_t b : blocks) {
      bucket.push_back(b);
      for (const BufferId g : in_.blocks[b].reduced) bytes += in_.graph.bytes(g);
      const bool is_full =
          bytes >= (options_.order == ReductionOrder::buckets ? options_.bucket_bytes : options_.least_bytes);
      if (!is_full && b != blocks.back()) continue;
      reduce_together(bucket, members);
      bucket.clear();
      bytes = 0;
    }
  }

  void reduce_together(const std::vector<std::uint32_t>& blocks, const std::vector<std::uint32_t>& members) {
    const auto id = static_cast<std::int64_t>(collectives_++);
    const auto count = static_cast<std::int64_t>(in_.blocks.size());
    const bool is_urgent_first = options_.order != ReductionOrder::buckets;
    const std::int64_t priority =
        is_urgent_first ? kMostUrgent - std::ranges::min(blocks) * (kMostUrgent - 1) / count : 0;
    // All of a step's sums come before what the next step gathers.
    const AttrsId sums =
        step_.graph().add_attrs({{"collective", id}, {"priority", problem_.scatters() ? kMostUrgent : priority}});
    const AttrsId gathers = step_.graph().add_attrs({{"collective", id}, {"priority", priority - 1}});
    for (const std::uint32_t device : members) {
      std::vector<BufferId> before, after, parts;
      for (const std::uint32_t b : blocks)
        for (const BufferId g : in_.blocks[b].reduced) {
          BufferId& sum = step_.total(g, device).sum;
          before.push_back(sum);
          after.push_back(step_.add_buffer(g, device));
          sum = after.back();
          const auto n = static_cast<std::int64_t>(members.size() / options_.kept() * options_.replicas);
          if (problem_.scatters())
            parts.push_back(step_.add_buffer(g, device, Role::weight_gradient, (in_.graph.bytes(g) + n - 1) / n));
          else
            step_.share(before.back(), after.back());
        }
      const Kind kind = problem_.scatters() ? Kind::reduce_scatter : Kind::all_reduce;
      const TaskId sum =
          step_.add_task(kind, Op::transfer, blocks[0], device, 0, sums, before, problem_.scatters() ? parts : after);
      out_.sums[device].push_back(sum);
      if (!problem_.scatters()) continue;
      const TaskId gather = step_.add_task(Kind::all_gather, Op::transfer, blocks[0], device, 0, gathers, parts, after);
      step_.graph().tasks[gather].is_delayed = problem_.updates_late();
      gathers_[device].emplace_back(blocks[0], gather);
    }
  }

  const OutlineProblem& problem_;
  const BlockGraph& in_;
  const PipelineLayout& layout_;
  const OutlineOptions& options_;
  OutlineStep& step_;
  ComputeLanes& compute_;
  std::vector<std::vector<TaskId>>& lanes_;  // of compute_
  std::uint32_t collectives_ = 0;
  std::map<std::uint32_t, std::vector<std::pair<std::uint32_t, TaskId>>> gathers_;  // with the first of their blocks
  Reductions out_;
};

}  // namespace

Reductions reduce_and_update(const OutlineProblem& problem, OutlineStep& step, ComputeLanes& compute) {
  return Reducing(problem, step, compute).run();
}

}  // namespace overtake
