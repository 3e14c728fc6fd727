#include "plan/divide/outline_compute.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace overtake {
namespace {

// What a device does for itself: one piece of a block's work, in the order of its lane.
struct Piece {
  Kind kind;
  std::uint32_t block, micro_batch;
};

class Computing {
 public:
  Computing(const OutlineProblem& problem, OutlineStep& step)
      : problem_(problem), in_(problem.blocks), layout_(problem.layout), options_(problem.options), step_(step) {
    out_.lanes.resize(problem.devices);
    out_.blocks_on.resize(problem.devices);
  }

  ComputeLanes run() {
    for (std::uint32_t r = 0; r < options_.kept(); ++r)
      for (std::uint32_t i = 0; i < problem_.local; ++i) compute(r, i);
    return std::move(out_);
  }

 private:
  TaskId task_of(Kind kind, std::uint32_t block) const {
    const BlockGraph::Block& b = in_.blocks[block];
    switch (kind) {
      case Kind::forward:
        return b.forward;
      case Kind::input_grad:
        return b.input_grad;
      case Kind::weight_grad:
        return b.weight_grad;
      default:
        return b.update;
    }
  }

  TaskId add_piece(const Piece& piece, std::uint32_t r, std::uint32_t device) {
    const TaskId like = task_of(piece.kind, piece.block);
    if (like == kNone) return kNone;
    std::vector<BufferId> reads, writes;
    for (const BufferId b : in_.graph.reads(like)) reads.push_back(step_.operand(b, r, piece.micro_batch, device));
    for (const BufferId b : in_.graph.writes(like)) {
      if (!step_.is_total(b)) {
        writes.push_back(step_.operand(b, r, piece.micro_batch, device));
        continue;
      }
      // The sum over micro-batches goes on from the one before, in place.
      BufferId& total = step_.total(b, device).sum;
      const BufferId next = step_.add_buffer(b, device);
      if (total != kNone) {
        reads.push_back(total);
        step_.share(total, next);
      }
      total = next;
      writes.push_back(next);
    }
    const TaskId t = step_.add_block(like, device, piece.micro_batch, reads, writes);
    for (const BufferId b : in_.graph.writes(like))
      if (step_.is_total(b)) step_.total(b, device).by = t;
    return t;
  }

  // One chunk's gradients of a micro-batch, both kinds: as frameworks do, or those of first-k last.
  std::vector<Piece> both_gradients(std::uint32_t chunk, std::uint32_t m, bool is_last) const {
    const std::uint32_t first = layout_.first_block[chunk], end = layout_.first_block[chunk + 1];
    const std::uint32_t late_begin = std::min(end, first + options_.first_k.from);
    const std::uint32_t late_end = is_last ? std::min(end, late_begin + options_.first_k.k) : late_begin;
    std::vector<Piece> pieces;
    for (std::uint32_t b = end; b-- > first;) {
      pieces.push_back({Kind::input_grad, b, m});
      if (b < late_begin || b >= late_end) pieces.push_back({Kind::weight_grad, b, m});
    }
    for (std::uint32_t b = late_begin; b < late_end; ++b) pieces.push_back({Kind::weight_grad, b, m});
    return pieces;
  }
  std::vector<Piece> pieces_of(const ChunkTask& block, bool is_last) const {
    const std::uint32_t first = layout_.first_block[block.chunk], end = layout_.first_block[block.chunk + 1];
    const Kind kind = block.kind;
    std::vector<Piece> pieces;
    for (std::uint32_t b = first; b < end; ++b) pieces.push_back({kind, b, block.micro_batch});
    const bool is_reversed = kind != Kind::forward && !(kind == Kind::weight_grad && is_last && options_.first_k.k > 0);
    if (is_reversed) std::ranges::reverse(pieces);
    return pieces;
  }

  void compute(std::uint32_t r, std::uint32_t i) {
    const std::uint32_t device = r * problem_.local + i;
    const std::vector<ChunkTask>& order = problem_.schedule.orders[i];
    std::map<std::uint32_t, std::size_t> last_backward;  // by chunk: where its last weight gradient is
    for (std::size_t k = 0; k < order.size(); ++k)
      if (order[k].kind == Kind::weight_grad) last_backward[order[k].chunk] = k;
    std::vector<TaskId>& lane = out_.lanes[device];
    std::set<std::uint32_t> updated;
    const auto add = [&](const Piece& piece) {
      // A delayed update goes right before the first forward of its block.
      if (piece.kind == Kind::forward && problem_.updates_late() && updated.insert(piece.block).second)
        add_late_place(device, piece.block);
      if (const TaskId t = add_piece(piece, r, device); t != kNone) lane.push_back(t);
    };
    for (std::size_t k = 0; k < order.size(); ++k) {
      const std::size_t begin = lane.size();
      const bool is_alone = !order[k].is_joined;
      for (bool goes_on = true; goes_on; ++k) {
        const ChunkTask& block = order[k];
        goes_on = block.is_joined && k + 1 < order.size();
        const bool is_pair = goes_on && block.kind == Kind::input_grad && order[k + 1].kind == Kind::weight_grad &&
                             order[k + 1].chunk == block.chunk && order[k + 1].micro_batch == block.micro_batch;
        if (is_pair) {
          goes_on = order[++k].is_joined && k + 1 < order.size();
          for (const Piece& p : both_gradients(block.chunk, block.micro_batch, last_backward[block.chunk] == k)) add(p);
        } else {
          for (const Piece& p : pieces_of(block, last_backward[block.chunk] == k)) add(p);
        }
      }
      --k;
      if (!is_alone) join(std::span(lane).subspan(begin));
    }
    std::set<std::uint32_t> mine;
    for (const ChunkTask& block : order)
      for (std::uint32_t b = layout_.first_block[block.chunk]; b < layout_.first_block[block.chunk + 1]; ++b)
        mine.insert(b);
    out_.blocks_on[device].assign(mine.begin(), mine.end());
  }

  // Blocks that are one task begin when all have what they need, and what they make leaves when all are done.
  void join(std::span<const TaskId> tasks) {
    std::set<BufferId> inside;
    TaskId first = kNone;
    for (const TaskId t : tasks) {
      if (t == kNone) continue;
      if (first == kNone) first = t;
      out_.held_by[t] = tasks.back();
      for (const BufferId b : step_.graph().reads(t))
        if (t != first && !inside.contains(b) && !is_persistent(step_.graph().buffers[b].role))
          out_.needs.push_back({b, first});
      inside.insert(step_.graph().writes(t).begin(), step_.graph().writes(t).end());
    }
  }

  // Late updates get their place before their operands are known.
  void add_late_place(std::uint32_t device, std::uint32_t block) {
    out_.late_places.push_back({device, out_.lanes[device].size(), block});
    out_.lanes[device].push_back(kNone);
  }

  const OutlineProblem& problem_;
  const BlockGraph& in_;
  const PipelineLayout& layout_;
  const OutlineOptions& options_;
  OutlineStep& step_;
  ComputeLanes out_;
};

}  // namespace

ComputeLanes compute_lanes(const OutlineProblem& problem, OutlineStep& step) { return Computing(problem, step).run(); }

}  // namespace overtake
