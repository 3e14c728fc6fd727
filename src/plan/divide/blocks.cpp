#include "plan/divide/blocks.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "plan/in_order.h"

namespace overtake {
namespace {

// The tasks that a block may have, in this order.
enum Place : std::size_t { kForward, kInputGrad, kWeightGrad, kTie, kUpdate, kKinds };
constexpr std::array<Kind, kKinds> kKindAt = {Kind::forward, Kind::input_grad, Kind::weight_grad, Kind::weight_grad,
                                              Kind::update};
Place place_of(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return kForward;
    case Kind::input_grad:
      return kInputGrad;
    case Kind::weight_grad:
      return kWeightGrad;
    default:
      return kUpdate;
  }
}

bool is_clipping(const Task& task) { return task.op == Op::squared_norm || task.op == Op::clip_norm; }

// Who writes and reads each buffer of a step.
struct StepUses {
  explicit StepUses(const Graph& g) : writer(g.buffers.size(), kNone), readers(g.buffers.size()) {
    for (TaskId t = 0; t < g.tasks.size(); ++t) {
      if (is_clipping(g.tasks[t])) continue;
      for (const BufferId b : g.reads(t))
        if (b != kNone) readers[b].push_back(t);
      for (const BufferId b : g.writes(t))
        if (b != kNone) writer[b] = t;
    }
  }
  std::vector<TaskId> writer;
  std::vector<std::vector<TaskId>> readers;
};

// Cuts the forward tasks, in their order, into blocks.
class Cutter {
 public:
  Cutter(const Graph& g, std::span<const TaskCost> work, const StepUses& uses) : g_(g) {
    for (TaskId t = 0; t < g.tasks.size(); ++t)
      if (g.tasks[t].kind == Kind::forward) forward_.push_back(t);
    OVERTAKE_CHECK(!forward_.empty(), "graph {} has no forward tasks", g.model);
    for (std::size_t i = 0; i < forward_.size(); ++i) {
      const auto has_weight = std::ranges::any_of(g.reads(forward_[i]), [&](BufferId b) {
        return b != kNone && (g.buffers[b].role == Role::weight || g.buffers[b].role == Role::weight_copy);
      });
      if (i == 0 || has_weight) first_.push_back(i);
    }
    // All of a step counts: a block's gradients take about twice its forward.
    ns_.assign(first_.size(), 0);
    for (std::size_t i = 0; i < forward_.size(); ++i) ns_[block_at(i)] += work[forward_[i]].ns;
    find_crossings(uses);
  }

  // Per forward task, in order, its block.
  std::vector<std::pair<TaskId, std::uint32_t>> cut(std::uint32_t most, CutAt cut_at) {
    if (cut_at == CutAt::waists)
      keep_waists(most / kLeastPartAtWaists);
    else if (first_.size() > most)
      keep_waists(most);
    while (first_.size() > std::max<std::size_t>(most, 1)) merge_shortest();
    std::vector<std::pair<TaskId, std::uint32_t>> blocks;
    for (std::size_t i = 0; i < forward_.size(); ++i) blocks.emplace_back(forward_[i], block_at(i));
    return blocks;
  }

 private:
  // Of the blocks that there may be, this part is as fine as they must be.
  static constexpr std::uint32_t kLeastPartAtWaists = 2;

  std::uint32_t block_at(std::size_t place) const {
    return static_cast<std::uint32_t>(std::ranges::upper_bound(first_, place) - first_.begin()) - 1;
  }

  // Bytes of activations that cross from before each block to it or later ones.
  void find_crossings(const StepUses& uses) {
    std::vector<std::size_t> place(g_.tasks.size(), 0);
    for (std::size_t i = 0; i < forward_.size(); ++i) place[forward_[i]] = i;
    std::vector<std::int64_t> change(first_.size() + 1, 0);
    for (BufferId b = 0; b < g_.buffers.size(); ++b) {
      if (uses.writer[b] == kNone || g_.tasks[uses.writer[b]].kind != Kind::forward) continue;
      const std::uint32_t from = block_at(place[uses.writer[b]]);
      std::uint32_t to = from;
      for (const TaskId t : uses.readers[b])
        if (g_.tasks[t].kind == Kind::forward) to = std::max(to, block_at(place[t]));
      if (to == from) continue;
      change[from + 1] += g_.bytes(b);
      if (to + 1 < change.size()) change[to + 1] -= g_.bytes(b);
    }
    crossing_.assign(first_.size(), 0);
    std::int64_t now = 0;
    for (std::size_t i = 0; i < first_.size(); ++i) crossing_[i] = now += change[i];
  }

  // Leaves only borders that no more crosses than their neighbours, if that leaves enough.
  void keep_waists(std::uint32_t most) {
    std::vector<std::size_t> first = {first_[0]};
    std::vector<std::int64_t> ns = {ns_[0]};
    for (std::size_t i = 1; i < first_.size(); ++i) {
      const bool is_waist =
          (i == 1 || crossing_[i] <= crossing_[i - 1]) && (i + 1 == first_.size() || crossing_[i] <= crossing_[i + 1]);
      if (is_waist) {
        first.push_back(first_[i]);
        ns.push_back(ns_[i]);
      } else {
        ns.back() += ns_[i];
      }
    }
    if (first.size() < most) return;
    first_ = std::move(first);
    ns_ = std::move(ns);
  }

  void merge_shortest() {
    std::size_t best = 1;
    for (std::size_t i = 2; i < first_.size(); ++i)
      if (ns_[i - 1] + ns_[i] < ns_[best - 1] + ns_[best]) best = i;
    ns_[best - 1] += ns_[best];
    ns_.erase(ns_.begin() + static_cast<std::ptrdiff_t>(best));
    first_.erase(first_.begin() + static_cast<std::ptrdiff_t>(best));
  }

  const Graph& g_;
  std::vector<TaskId> forward_;
  std::vector<std::size_t> first_;  // per block, a place in forward_
  std::vector<std::int64_t> ns_, crossing_;
};

// The gradients of a tied weight from all its uses, put together: once in a step, not in every micro-batch.
bool is_sum_of_tied(const Graph& g, TaskId t, const StepUses& uses) {
  if (g.tasks[t].op != Op::sum) return false;
  const auto is_update = [&](TaskId reader) { return g.tasks[reader].kind == Kind::update; };
  const std::vector<TaskId>& readers = uses.readers[g.writes(t)[0]];
  return !readers.empty() && std::ranges::all_of(readers, is_update);
}

// The block of every task: gradients go with their layer's forward, updates with their weight's; what belongs to no
// layer of the model goes with whoever needs it.
std::vector<std::uint32_t> blocks_of_tasks(const Graph& g, const StepUses& uses,
                                           const std::vector<std::pair<TaskId, std::uint32_t>>& forward) {
  std::vector<std::uint32_t> block(g.tasks.size(), kNone), of_layer(g.layers.size(), kNone);
  for (const auto& [t, b] : forward) {
    block[t] = b;
    of_layer[g.tasks[t].layer] = b;
  }
  const auto of_weight = [&](TaskId t) {
    for (const BufferId w : g.writes(t))  // the weight, or the copy that forward reads
      if (w != kNone)
        for (const TaskId reader : uses.readers[w])
          if (g.tasks[reader].kind == Kind::forward) return block[reader];
    return std::uint32_t{kNone};
  };
  for (TaskId t = static_cast<TaskId>(g.tasks.size()); t-- > 0;) {
    if (block[t] != kNone || is_clipping(g.tasks[t])) continue;
    if (g.tasks[t].kind == Kind::update) block[t] = of_weight(t);
    if (block[t] == kNone && !is_sum_of_tied(g, t, uses)) block[t] = of_layer[g.tasks[t].layer];
    for (const BufferId w : g.writes(t))
      for (const TaskId reader : w == kNone ? std::vector<TaskId>{} : uses.readers[w])
        if (block[t] == kNone && reader != t) block[t] = block[reader];
    if (block[t] == kNone) block[t] = 0;
  }
  return block;
}

// Puts the tasks of a step together.
class Merger {
 public:
  Merger(const Graph& g, std::span<const TaskCost> work, const StepUses& uses,
         const std::vector<std::pair<TaskId, std::uint32_t>>& forward)
      : g_(g),
        work_(work),
        uses_(uses),
        block_(blocks_of_tasks(g, uses, forward)),
        is_deferrable_(deferrable_tasks(g, dependencies(g))) {
    out_.graph.model = g.model;
    out_.blocks.resize(forward.back().second + 1);
    for (const auto& [t, b] : forward)
      if (out_.blocks[b].name.empty()) out_.blocks[b].name = g.layer_name(g.tasks[t].layer);
    works_.assign(out_.blocks.size() * kKinds, {});
    tasks_.resize(works_.size());
  }

  BlockGraph merge() {
    for (TaskId t = 0; t < g_.tasks.size(); ++t) {
      if (is_clipping(g_.tasks[t])) continue;
      tasks_[slot(t)].push_back(t);
      works_[slot(t)] += work_[t];
    }
    reads_.resize(works_.size());
    writes_.resize(works_.size());
    merge_buffers();
    for (std::size_t kind = 0; kind < kKinds; ++kind) add_tasks(kind);
    return std::move(out_);
  }

 private:
  // Weight gradients that an input gradient waits for (batch norm's) are part of it.
  std::size_t slot(TaskId t) const {
    const Kind kind = g_.tasks[t].kind;
    const bool is_waited_for = kind == Kind::weight_grad && !is_deferrable_[t];
    return block_[t] * kKinds +
           (is_sum_of_tied(g_, t, uses_) ? kTie : place_of(is_waited_for ? Kind::input_grad : kind));
  }

  // Buffers with the same writer, readers and role become one; those that never leave their task, none.
  void merge_buffers() {
    std::map<std::tuple<Role, std::size_t, std::vector<std::size_t>>, std::vector<BufferId>> merged;
    constexpr std::size_t nobody = static_cast<std::size_t>(-1);
    for (BufferId b = 0; b < g_.buffers.size(); ++b) {
      const Role role = g_.buffers[b].role;
      if (role == Role::scratch || role == Role::constant || role == Role::state) continue;
      const std::size_t writer = uses_.writer[b] == kNone ? nobody : slot(uses_.writer[b]);
      std::vector<std::size_t> readers;
      for (const TaskId t : uses_.readers[b])
        if (slot(t) != writer || is_persistent(role)) readers.push_back(slot(t));
      std::ranges::sort(readers);
      readers.erase(std::ranges::unique(readers).begin(), readers.end());
      if (readers.empty() && (role != Role::output || writer == nobody)) continue;
      merged[{role, writer, readers}].push_back(b);
    }
    for (const auto& [key, members] : merged) {
      const auto& [role, writer, readers] = key;
      std::int64_t size = 0;
      for (const BufferId b : members) size += g_.bytes(b);
      out_.buffers.push_back(members);
      const std::size_t owner = writer != nobody ? writer : readers.front();
      const BlockGraph::Block& block = out_.blocks[owner / kKinds];
      const BufferId b =
          out_.graph.add_buffer(fmt::format("{}.{}", block.name, to_string(role)), {size}, DType::u8, role);
      if (writer != nobody) writes_[writer].push_back(b);
      for (const std::size_t reader : readers) reads_[reader].push_back(b);
      if (is_persistent(role)) out_.graph.parameters.push_back({.buffer = b, .init = {}});
      if (is_persistent(role) || writer == nobody) continue;
      const auto is_at = [&](Place place) {
        return std::ranges::any_of(readers, [&](std::size_t reader) { return reader % kKinds == place; });
      };
      BlockGraph::Block& made_by = out_.blocks[writer / kKinds];
      if (writer % kKinds != kTie && (is_at(kUpdate) || is_at(kTie))) made_by.gradients.push_back(b);
      if (is_at(kUpdate)) made_by.reduced.push_back(b);
    }
  }

  // Forward and updates as the chain goes, gradients the other way.
  void add_tasks(std::size_t kind) {
    const std::size_t count = out_.blocks.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t b = kind == kInputGrad || kind == kWeightGrad ? count - 1 - i : i, at = b * kKinds + kind;
      if (tasks_[at].empty()) continue;
      BlockGraph::Block& block = out_.blocks[b];
      const TaskId t =
          out_.graph.add_task(kKindAt[kind], Op::block, out_.graph.add_layer(block.name), 0, reads_[at], writes_[at]);
      std::array{&block.forward, &block.input_grad, &block.weight_grad, &block.tie, &block.update}[kind][0] = t;
      out_.work.push_back(works_[at]);
      out_.tasks.push_back(tasks_[at]);
      out_.block_of.push_back(static_cast<std::uint32_t>(b));
    }
  }

  const Graph& g_;
  std::span<const TaskCost> work_;
  const StepUses& uses_;
  std::vector<std::uint32_t> block_;
  std::vector<char> is_deferrable_;         // per task
  std::vector<TaskCost> works_;             // per slot: block and kind
  std::vector<std::vector<TaskId>> tasks_;  // likewise, of the step
  std::vector<std::vector<BufferId>> reads_, writes_;
  BlockGraph out_;
};

}  // namespace

BlockGraph make_blocks(const Graph& step, std::span<const TaskCost> work, std::uint32_t most, CutAt cut_at) {
  const StepUses uses(step);
  return Merger(step, work, uses, Cutter(step, work, uses).cut(most, cut_at)).merge();
}

BlockGraph with_costs(BlockGraph graph, std::span<const TaskCost> costs) {
  for (TaskId t = 0; t < graph.tasks.size(); ++t) {
    graph.work[t] = {};
    for (const TaskId of_step : graph.tasks[t]) graph.work[t] += costs[of_step];
  }
  return graph;
}

BlockGraph recompute(BlockGraph graph) {
  Graph& g = graph.graph;
  for (const BlockGraph::Block& block : graph.blocks) {
    if (block.input_grad == kNone && block.weight_grad == kNone) continue;
    const TaskId again = block.input_grad != kNone ? block.input_grad : block.weight_grad;
    const auto written = std::vector<BufferId>(g.writes(block.forward).begin(), g.writes(block.forward).end());
    const auto is_own = [&](BufferId b) {
      return std::ranges::find(written, b) != written.end() && g.buffers[b].role == Role::activation;
    };
    std::vector<BufferId> reads(g.reads(again).begin(), g.reads(again).end());
    std::vector<BufferId> writes(g.writes(again).begin(), g.writes(again).end());
    bool has_kept = std::erase_if(reads, is_own) > 0;
    if (again != block.weight_grad && block.weight_grad != kNone) {
      std::vector<BufferId> for_weights(g.reads(block.weight_grad).begin(), g.reads(block.weight_grad).end());
      std::int64_t bytes = 0;
      std::erase_if(for_weights, [&](BufferId b) {
        if (is_own(b)) bytes += g.bytes(b);
        return is_own(b);
      });
      if (bytes > 0) {
        const BufferId made = g.add_buffer(block.name + ".again", {bytes}, DType::u8, Role::activation);
        writes.push_back(made);
        for_weights.push_back(made);
        g.set_operands(block.weight_grad, for_weights,
                       std::vector<BufferId>(g.writes(block.weight_grad).begin(), g.writes(block.weight_grad).end()));
        has_kept = true;
      }
    }
    if (!has_kept) continue;
    for (const BufferId b : g.reads(block.forward))
      if (std::ranges::find(reads, b) == reads.end()) reads.push_back(b);
    g.set_operands(again, reads, writes);
    graph.work[again] += graph.work[block.forward];
  }
  return graph;
}

}  // namespace overtake
