#include "passes/parallel/spread.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/error.h"

namespace overtake {
namespace {

constexpr std::int64_t kMostUrgent = 255;

struct OrderName {
  std::string_view name;
  ReductionOrder order;
};
constexpr OrderName kOrders[] = {{"buckets", ReductionOrder::buckets},
                                 {"by-layer", ReductionOrder::by_layer},
                                 {"scatter-gather", ReductionOrder::scatter_gather}};

class Spreader {
 public:
  Spreader(const BlockGraph& blocks, const PipelineProblem& problem, const PipelineSchedule& schedule,
           const SpreadOptions& options)
      : in_(blocks),
        layout_(schedule.layout),
        schedule_(schedule),
        options_(options),
        local_(problem.devices),
        micro_(problem.micro_batches),
        devices_(options.replicas * problem.devices) {
    OVERTAKE_CHECK(schedule.layout.first_stage.back() == blocks.blocks.size(), "a schedule of {} stages for {} blocks",
                   schedule.layout.first_stage.back(), blocks.blocks.size());
    const std::size_t buffers = in_.graph.buffers.size();
    writer_.assign(buffers, kNone);
    for (TaskId t = 0; t < in_.graph.tasks.size(); ++t)
      for (const BufferId b : in_.graph.writes(t)) writer_[b] = t;
    is_total_.assign(buffers, 0);
    for (const BlockGraph::Block& block : in_.blocks)
      for (const BufferId b : block.gradients) is_total_[b] = 1;
    for (std::uint32_t c = 0; c < layout_.chunks(); ++c)
      for (std::uint32_t s = layout_.first_stage[c]; s < layout_.first_stage[c + 1]; ++s) chunk_of_.push_back(c);
    for (const BlockGraph::Block& block : in_.blocks) layers_.push_back(graph().add_layer(block.name));
    for (BufferId b = 0; b < buffers; ++b) names_.push_back(graph().intern(in_.graph.buffer_name(b)));
    values_.assign(buffers * options.replicas * micro_, kNone);
    copies_.assign(buffers * devices_, kNone);
    totals_.assign(buffers * devices_, kNone);
    lanes_.resize(devices_);
    graph().model = in_.graph.model;
    out_.plan.schedule = schedule.name;
    out_.replicas = options.replicas;
    out_.micro_batches = micro_;
  }

  ClusterPlan run() {
    for (std::uint32_t r = 0; r < options_.replicas; ++r)
      for (std::uint32_t i = 0; i < local_; ++i) compute(r, i);
    reduce();
    add_lanes();
    std::ranges::sort(out_.plan.waits);
    std::ranges::sort(out_.plan.shares);
    return std::move(out_);
  }

 private:
  // What a device does for itself: one piece of a block's work, in the order of its lane.
  struct Piece {
    Kind kind;
    std::uint32_t block, micro_batch;
  };
  struct Message {
    TaskId send, recv;
    BufferId made;
    std::uint32_t from, to;
  };

  Graph& graph() { return out_.plan.graph; }
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
  std::uint32_t device_of(std::uint32_t r, std::uint32_t block, std::uint32_t m) const {
    return r * local_ + layout_.device_of[layout_.route(m)][chunk_of_[block]];
  }

  BufferId add_buffer(BufferId like, std::uint32_t device, Role role, std::int64_t bytes) {
    Buffer b;
    b.name = names_[like];
    b.shape = {bytes};
    b.layout = in_.graph.buffers[like].layout;
    b.dtype = DType::u8;
    b.role = role;
    b.device = static_cast<std::uint16_t>(device);
    graph().buffers.push_back(b);
    out_.buffer_of.push_back(like);
    return static_cast<BufferId>(graph().buffers.size() - 1);
  }
  BufferId add_buffer(BufferId like, std::uint32_t device) {
    return add_buffer(like, device, in_.graph.buffers[like].role, in_.graph.bytes(like));
  }
  TaskId add_task(Kind kind, Op op, std::uint32_t block, std::uint32_t device, std::uint32_t m, AttrsId attrs,
                  std::span<const BufferId> reads, std::span<const BufferId> writes) {
    const TaskId t = graph().add_task(kind, op, layers_[block], attrs, reads, writes);
    graph().tasks[t].device = static_cast<std::uint16_t>(device);
    graph().tasks[t].micro_batch = m;
    out_.work.emplace_back();
    out_.task_of.push_back(kNone);
    return t;
  }
  // What a task of the blocks does, on a device.
  TaskId add_block(TaskId like, std::uint32_t device, std::uint32_t m, std::span<const BufferId> reads,
                   std::span<const BufferId> writes) {
    const TaskId t = add_task(in_.graph.tasks[like].kind, Op::block, in_.block_of[like], device, m, 0, reads, writes);
    out_.work[t] = in_.work[like];
    out_.task_of[t] = like;
    return t;
  }

  // A value of a micro-batch where it is made. Inputs are where they are read.
  BufferId value(BufferId b, std::uint32_t r, std::uint32_t m) {
    BufferId& known = values_[(std::size_t{b} * options_.replicas + r) * micro_ + m];
    if (known == kNone) {
      const std::uint32_t block = writer_[b] == kNone ? reader_block(b) : in_.block_of[writer_[b]];
      known = add_buffer(b, device_of(r, block, m));
    }
    return known;
  }
  std::uint32_t reader_block(BufferId b) const {
    for (TaskId t = 0; t < in_.graph.tasks.size(); ++t)
      if (std::ranges::find(in_.graph.reads(t), b) != in_.graph.reads(t).end()) return in_.block_of[t];
    return 0;
  }

  // The same on a device: itself, or a copy that is sent there once.
  BufferId value_on(BufferId b, std::uint32_t r, std::uint32_t m, std::uint32_t device) {
    const BufferId made = value(b, r, m);
    const std::uint32_t from = graph().buffers[made].device;
    if (from == device) return made;
    const auto [place, is_new] = received_.try_emplace(std::uint64_t{made} * devices_ + device, kNone);
    if (!is_new) return place->second;
    const BufferId copy = add_buffer(b, device);
    place->second = copy;
    if (writer_[b] == kNone) return copy;  // an input: the host gives it to whoever reads it
    send(b, made, copy, in_.block_of[writer_[b]], from, device, m);
    return copy;
  }
  void send(BufferId b, BufferId made, BufferId copy, std::uint32_t block, std::uint32_t from, std::uint32_t to,
            std::uint32_t m) {
    const BufferId message = add_buffer(b, from, Role::activation, 0);
    const TaskId s = add_task(Kind::send, Op::transfer, block, from, m, 0, {&made, 1}, {&message, 1});
    const TaskId v = add_task(Kind::recv, Op::transfer, block, to, m, 0, {&message, 1}, {&copy, 1});
    messages_.push_back({s, v, made, from, to});
  }

  // What lives across steps, on a device that updates it; elsewhere (tied weights) a copy that is sent there every
  // step.
  BufferId kept_on(BufferId b, std::uint32_t r, std::uint32_t device) {
    BufferId& known = copies_[std::size_t{b} * devices_ + device];
    if (known != kNone) return known;
    const std::vector<std::uint32_t> owners = owners_of(b, r);
    if (owners.empty() || std::ranges::find(owners, device) != owners.end()) {
      known = add_buffer(b, device);
      graph().parameters.push_back({.buffer = known, .init = {}});
      return known;
    }
    const BufferId copy = add_buffer(b, device, Role::activation, in_.graph.bytes(b));
    known = copy;
    const BufferId source = kept_on(b, r, owners[0]);
    send(b, source, copy, in_.block_of[writer_[b]], owners[0], device, 0);
    return copy;
  }
  std::vector<std::uint32_t> owners_of(BufferId b, std::uint32_t r) const {
    std::vector<std::uint32_t> owners;
    if (writer_[b] == kNone) return owners;
    for (const auto& route : layout_.device_of)
      owners.push_back(r * local_ + route[chunk_of_[in_.block_of[writer_[b]]]]);
    return owners;
  }

  BufferId operand(BufferId b, std::uint32_t r, std::uint32_t m, std::uint32_t device) {
    return is_persistent(in_.graph.buffers[b].role) ? kept_on(b, r, device) : value_on(b, r, m, device);
  }

  TaskId add_piece(const Piece& piece, std::uint32_t r, std::uint32_t device) {
    const TaskId like = task_of(piece.kind, piece.block);
    if (like == kNone) return kNone;
    std::vector<BufferId> reads, writes;
    for (const BufferId b : in_.graph.reads(like)) reads.push_back(operand(b, r, piece.micro_batch, device));
    for (const BufferId b : in_.graph.writes(like)) {
      if (!is_total_[b]) {
        writes.push_back(operand(b, r, piece.micro_batch, device));
        continue;
      }
      // The sum over micro-batches goes on from the one before, in place.
      BufferId& total = totals_[std::size_t{b} * devices_ + device];
      const BufferId next = add_buffer(b, device);
      if (total != kNone) {
        reads.push_back(total);
        out_.plan.shares.push_back({total, next});
      }
      total = next;
      writes.push_back(next);
    }
    const TaskId t = add_block(like, device, piece.micro_batch, reads, writes);
    for (const BufferId b : in_.graph.writes(like))
      if (is_total_[b]) last_writer_[std::size_t{b} * devices_ + device] = t;
    return t;
  }

  // One chunk's gradients of a micro-batch, both kinds: as frameworks do, or those of first-k last.
  std::vector<Piece> both_gradients(std::uint32_t chunk, std::uint32_t m, bool is_last) const {
    const std::uint32_t first = layout_.first_stage[chunk], end = layout_.first_stage[chunk + 1];
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
  std::vector<Piece> pieces_of(const Block& block, bool is_last) const {
    const std::uint32_t first = layout_.first_stage[block.chunk], end = layout_.first_stage[block.chunk + 1];
    const Kind kind = block.kind == BlockKind::forward      ? Kind::forward
                      : block.kind == BlockKind::input_grad ? Kind::input_grad
                                                            : Kind::weight_grad;
    std::vector<Piece> pieces;
    for (std::uint32_t b = first; b < end; ++b) pieces.push_back({kind, b, block.micro_batch});
    const bool is_reversed = kind != Kind::forward && !(kind == Kind::weight_grad && is_last && options_.first_k.k > 0);
    if (is_reversed) std::ranges::reverse(pieces);
    return pieces;
  }

  // Over replicas only: the two routes of one pipeline bring their sums together at once.
  bool scatters() const { return options_.replicas > 1 && options_.order == ReductionOrder::scatter_gather; }
  bool updates_late() const {
    return options_.replicas > 1 && options_.order != ReductionOrder::buckets && !options_.updates_wait_for_all;
  }

  void compute(std::uint32_t r, std::uint32_t i) {
    const std::uint32_t device = r * local_ + i;
    const std::vector<Block>& order = schedule_.orders[i];
    std::map<std::uint32_t, std::size_t> last_backward;  // by chunk: where its last weight gradient is
    for (std::size_t k = 0; k < order.size(); ++k)
      if (order[k].kind == BlockKind::weight_grad) last_backward[order[k].chunk] = k;
    std::vector<TaskId>& lane = lanes_[device];
    std::set<std::uint32_t> updated;
    const auto add = [&](const Piece& piece) {
      // A delayed update goes right before the first forward of its block.
      if (piece.kind == Kind::forward && updates_late() && updated.insert(piece.block).second)
        lane.push_back(place_holder(device, piece.block));
      if (const TaskId t = add_piece(piece, r, device); t != kNone) lane.push_back(t);
    };
    for (std::size_t k = 0; k < order.size(); ++k) {
      const std::size_t begin = lane.size();
      const bool is_alone = !order[k].is_joined;
      for (bool goes_on = true; goes_on; ++k) {
        const Block& block = order[k];
        goes_on = block.is_joined && k + 1 < order.size();
        const bool is_pair = goes_on && block.kind == BlockKind::input_grad &&
                             order[k + 1].kind == BlockKind::weight_grad && order[k + 1].chunk == block.chunk &&
                             order[k + 1].micro_batch == block.micro_batch;
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
    for (const Block& block : order)
      for (std::uint32_t b = layout_.first_stage[block.chunk]; b < layout_.first_stage[block.chunk + 1]; ++b)
        mine.insert(b);
    blocks_on_.resize(devices_);
    blocks_on_[device].assign(mine.begin(), mine.end());
  }

  // Blocks that are one task begin when all have what they need, and what they make leaves when all are done.
  void join(std::span<const TaskId> tasks) {
    std::set<BufferId> inside;
    TaskId first = kNone;
    for (const TaskId t : tasks) {
      if (t == kNone) continue;
      if (first == kNone) first = t;
      held_by_[t] = tasks.back();
      for (const BufferId b : graph().reads(t))
        if (t != first && !inside.contains(b) && !is_persistent(graph().buffers[b].role)) needs_.push_back({b, first});
      inside.insert(graph().writes(t).begin(), graph().writes(t).end());
    }
  }

  // Late updates get their place before their operands are known.
  TaskId place_holder(std::uint32_t device, std::uint32_t block) {
    late_places_.push_back({device, lanes_[device].size(), block});
    return kNone;
  }

  void reduce() {
    for (std::uint32_t device = 0; device < devices_; ++device)
      for (const std::uint32_t b : blocks_on_[device])
        if (in_.blocks[b].tie != kNone) add_tie(b, device);
    for (std::uint32_t c = 0; c < layout_.chunks(); ++c) reduce_chunk(c);
    for (std::uint32_t device = 0; device < devices_; ++device)
      if (!updates_late())
        for (const std::uint32_t b : blocks_on_[device])
          if (const TaskId t = add_update(b, device, false); t != kNone) lanes_[device].push_back(t);
    for (const auto& [device, at, block] : late_places_) lanes_[device][at] = add_update(block, device, true);
    for (std::vector<TaskId>& lane : lanes_) std::erase(lane, TaskId{kNone});
  }

  // After the last of what it puts together; at the end of the lane where some comes from another device.
  void add_tie(std::uint32_t block, std::uint32_t device) {
    const TaskId like = in_.blocks[block].tie;
    std::vector<TaskId>& lane = lanes_[device];
    std::vector<BufferId> reads, writes;
    std::size_t at = 0;
    for (const BufferId b : in_.graph.reads(like)) {
      reads.push_back(total_on(b, block, device, false));
      const auto made = last_writer_.find(std::size_t{b} * devices_ + device);
      const bool is_here = made != last_writer_.end() && reads.back() == total(b, device);
      at = is_here ? std::max(at, place_in(lane, made->second) + 1) : lane.size();
    }
    for (const BufferId b : in_.graph.writes(like)) {
      writes.push_back(add_buffer(b, device));
      total(b, device) = writes.back();
    }
    const TaskId t = add_block(like, device, 0, reads, writes);
    for (const BufferId b : in_.graph.writes(like)) last_writer_[std::size_t{b} * devices_ + device] = t;
    lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(at), t);
    for (LatePlace& late : late_places_)
      if (late.device == device && late.at >= at) ++late.at;
  }
  static std::size_t place_in(const std::vector<TaskId>& lane, TaskId t) {
    return static_cast<std::size_t>(std::ranges::find(lane, t) - lane.begin());
  }

  TaskId add_update(std::uint32_t block, std::uint32_t device, bool is_delayed) {
    const TaskId like = in_.blocks[block].update;
    if (like == kNone) return kNone;
    const std::uint32_t r = device / local_;
    std::vector<BufferId> reads, writes;
    for (const BufferId b : in_.graph.reads(like))
      // What is gathered in the next step is sent there too.
      reads.push_back(is_gradient(b) ? total_on(b, block, device, scatters() && updates_late())
                                     : operand(b, r, 0, device));
    for (const BufferId b : in_.graph.writes(like)) writes.push_back(operand(b, r, 0, device));
    const TaskId t = add_block(like, device, 0, reads, writes);
    graph().tasks[t].is_delayed = is_delayed;
    return t;
  }

  bool is_gradient(BufferId b) const { return writer_[b] != kNone && !is_persistent(in_.graph.buffers[b].role); }

  // A gradient's sum for the tie or the update of a block: made on the same device, or sent there.
  BufferId total_on(BufferId b, std::uint32_t block, std::uint32_t device, bool is_delayed) {
    const std::uint32_t maker = in_.block_of[writer_[b]], r = device / local_;
    const auto at_home = [&](const auto& route) { return r * local_ + route[chunk_of_[block]] == device; };
    const auto route = std::ranges::find_if(layout_.device_of, at_home);
    const std::uint32_t from = r * local_ + (*route)[chunk_of_[maker]];
    OVERTAKE_CHECK(total(b, from) != kNone, "{} is not summed on device {}", in_.graph.buffer_name(b), from);
    if (from == device) return total(b, device);
    const BufferId copy = add_buffer(b, device);
    send(b, total(b, from), copy, maker, from, device, 0);
    for (const TaskId t : {messages_.back().send, messages_.back().recv}) graph().tasks[t].is_delayed = is_delayed;
    return copy;
  }
  BufferId& total(BufferId b, std::uint32_t device) { return totals_[std::size_t{b} * devices_ + device]; }

  // The gradients of a chunk over all devices that have it.
  void reduce_chunk(std::uint32_t chunk) {
    std::vector<std::uint32_t> members;
    for (std::uint32_t r = 0; r < options_.replicas; ++r)
      for (const auto& route : layout_.device_of) members.push_back(r * local_ + route[chunk]);
    std::ranges::sort(members);
    members.erase(std::ranges::unique(members).begin(), members.end());
    if (members.size() < 2) return;
    // In the order in which the first of them has them.
    std::vector<std::uint32_t> blocks;
    for (std::uint32_t b = layout_.first_stage[chunk]; b < layout_.first_stage[chunk + 1]; ++b)
      if (!in_.blocks[b].reduced.empty()) blocks.push_back(b);
    const auto written = [&](std::uint32_t b) {
      std::size_t last = 0;
      for (const BufferId g : in_.blocks[b].reduced)
        last = std::max(last, place_in(lanes_[members[0]], last_writer_.at(std::size_t{g} * devices_ + members[0])));
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
    const AttrsId sums = graph().add_attrs({{"collective", id}, {"priority", scatters() ? kMostUrgent : priority}});
    const AttrsId gathers = graph().add_attrs({{"collective", id}, {"priority", priority - 1}});
    for (const std::uint32_t device : members) {
      std::vector<BufferId> before, after, parts;
      for (const std::uint32_t b : blocks)
        for (const BufferId g : in_.blocks[b].reduced) {
          before.push_back(total(g, device));
          after.push_back(add_buffer(g, device));
          total(g, device) = after.back();
          const auto n = static_cast<std::int64_t>(members.size());
          if (scatters())
            parts.push_back(add_buffer(g, device, Role::weight_gradient, (in_.graph.bytes(g) + n - 1) / n));
          else
            out_.plan.shares.push_back({before.back(), after.back()});
        }
      const Kind kind = scatters() ? Kind::reduce_scatter : Kind::all_reduce;
      const TaskId sum = add_task(kind, Op::transfer, blocks[0], device, 0, sums, before, scatters() ? parts : after);
      reductions_[device].push_back(sum);
      if (!scatters()) continue;
      const TaskId gather = add_task(Kind::all_gather, Op::transfer, blocks[0], device, 0, gathers, parts, after);
      graph().tasks[gather].is_delayed = updates_late();
      gathers_[device].emplace_back(blocks[0], gather);
    }
  }

  void add_lanes() {
    std::vector<std::uint32_t> place(graph().tasks.size(), 0);
    for (const std::vector<TaskId>& lane : lanes_)
      for (std::uint32_t i = 0; i < lane.size(); ++i) place[lane[i]] = i;
    const auto add_lane = [&](std::uint32_t device, std::vector<TaskId> tasks, bool is_asynchronous) {
      if (!tasks.empty())
        out_.plan.lanes.push_back({static_cast<std::uint16_t>(device), std::move(tasks), is_asynchronous});
    };
    for (std::uint32_t d = 0; d < devices_; ++d) add_lane(d, lanes_[d], false);

    // Sends in the order in which what they send is made; receives likewise, a lane for each sender.
    std::vector<TaskId> writer(graph().buffers.size(), kNone);
    for (const std::vector<TaskId>& lane : lanes_)
      for (const TaskId t : lane)
        for (const BufferId b : graph().writes(t)) writer[b] = t;
    const auto made_by = [&](const Message& m) {
      const bool is_early = is_persistent(graph().buffers[m.made].role) || graph().tasks[m.send].is_delayed;
      if (is_early) return std::pair{TaskId{kNone}, std::uint32_t{0}};
      const TaskId t = writer[m.made];
      if (t == kNone) return std::pair{TaskId{kNone}, std::uint32_t{kNone}};  // reduced gradients: after all else
      const auto held = held_by_.find(t);
      const TaskId by = held == held_by_.end() ? t : held->second;
      return std::pair{by, place[by] + 1};
    };
    std::ranges::stable_sort(messages_, {},
                             [&](const Message& m) { return std::tuple(m.from, made_by(m).second, m.send); });
    std::vector<std::vector<TaskId>> sends(devices_);
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<TaskId>> recvs;
    for (const Message& m : messages_) {
      sends[m.from].push_back(m.send);
      recvs[{m.to, m.from}].push_back(m.recv);
      const TaskId by = made_by(m).first;
      if (by != kNone && by != writer[m.made]) out_.plan.waits.push_back({by, m.send});
    }
    for (const Message& m : messages_) writer[graph().writes(m.recv)[0]] = m.recv;
    for (const auto& [buffer, first] : needs_) {
      const TaskId w = writer[buffer];
      const bool is_ordered = w == kNone || graph().tasks[w].op != Op::transfer;  // on the same lane
      if (!is_ordered) out_.plan.waits.push_back({w, first});
    }
    for (std::uint32_t d = 0; d < devices_; ++d) add_lane(d, std::move(sends[d]), true);
    for (auto& [ends, tasks] : recvs) add_lane(ends.first, std::move(tasks), true);
    for (auto& [device, tasks] : reductions_) add_lane(device, std::move(tasks), true);
    for (auto& [device, tasks] : gathers_) {
      if (updates_late()) std::ranges::sort(tasks);  // else as the sums come
      std::vector<TaskId> in_order;
      for (const auto& [block, t] : tasks) in_order.push_back(t);
      add_lane(device, std::move(in_order), true);
    }
  }

  const BlockGraph& in_;
  const PipelineLayout& layout_;
  const PipelineSchedule& schedule_;
  const SpreadOptions& options_;
  std::uint32_t local_, micro_, devices_;  // of a replica's pipeline; micro-batches; of all replicas
  std::vector<TaskId> writer_;             // per buffer of the blocks
  std::vector<char> is_total_;             // likewise: summed over micro-batches
  std::vector<std::uint32_t> chunk_of_;    // per block
  std::vector<LayerId> layers_;            // per block
  std::vector<StringId> names_;            // per buffer of the blocks
  std::vector<BufferId> values_;           // [buffer][replica][micro-batch]
  std::vector<BufferId> copies_, totals_;  // [buffer][device]: of weights and states; the sum so far
  std::unordered_map<std::uint64_t, BufferId> received_;
  std::unordered_map<std::uint64_t, TaskId> last_writer_;  // of a total, by buffer and device
  std::unordered_map<TaskId, TaskId> held_by_;             // what a task makes leaves when this one is done
  struct Need {
    BufferId buffer;
    TaskId by;
  };
  std::vector<Need> needs_;
  std::vector<Message> messages_;
  std::vector<std::vector<TaskId>> lanes_;  // per device
  std::vector<std::vector<std::uint32_t>> blocks_on_;
  struct LatePlace {
    std::uint32_t device;
    std::size_t at;
    std::uint32_t block;
  };
  std::vector<LatePlace> late_places_;
  std::uint32_t collectives_ = 0;
  std::map<std::uint32_t, std::vector<TaskId>> reductions_;
  std::map<std::uint32_t, std::vector<std::pair<std::uint32_t, TaskId>>> gathers_;
  ClusterPlan out_;
};

}  // namespace

ReductionOrder reduction_order_from_string(std::string_view name) {
  for (const OrderName& known : kOrders)
    if (known.name == name) return known.order;
  fail_user("--reduce {}: no such order; choose buckets, by-layer or scatter-gather", name);
}

ClusterPlan spread(const BlockGraph& blocks, const PipelineProblem& problem, const PipelineSchedule& schedule,
                   const SpreadOptions& options) {
  return Spreader(blocks, problem, schedule, options).run();
}

std::vector<StageCosts> stage_costs(const BlockGraph& blocks) {
  const Graph& g = blocks.graph;
  std::vector<char> is_kept(g.buffers.size(), 0);  // by forward, for gradients
  for (const BlockGraph::Block& block : blocks.blocks)
    for (const TaskId t : {block.input_grad, block.weight_grad})
      for (const BufferId b : t == kNone ? std::span<const BufferId>{} : g.reads(t)) is_kept[b] = 1;
  std::vector<StageCosts> costs;
  for (const BlockGraph::Block& block : blocks.blocks) {
    StageCosts c;
    const auto ns = [&](TaskId t) { return t == kNone ? 0 : blocks.work[t].ns; };
    c.forward_ns = ns(block.forward);
    c.input_grad_ns = ns(block.input_grad);
    c.weight_grad_ns = ns(block.weight_grad);
    for (const BufferId b : g.writes(block.forward))
      if (is_kept[b] && g.buffers[b].role == Role::activation) c.activation_bytes += g.bytes(b);
    for (const TaskId t : {block.forward, block.update})
      for (const BufferId b : t == kNone ? std::span<const BufferId>{} : g.reads(t))
        if ((t == block.update || g.buffers[b].role != Role::weight) && is_persistent(g.buffers[b].role))
          c.weight_bytes += g.bytes(b);
    for (const BufferId b : block.gradients) c.weight_bytes += g.bytes(b);
    if (block.weight_grad != kNone)
      for (const BufferId b : g.reads(block.weight_grad))
        if (!is_persistent(g.buffers[b].role)) c.gradient_bytes += g.bytes(b);
    costs.push_back(c);
  }
  return costs;
}

}  // namespace overtake
