#include "passes/parallel/unfold.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace overtake {
namespace {

constexpr std::int64_t kSaltsOfAMicroBatch = 1 << 16;

// Buffers that hold the same in every micro-batch: made from weights and constants alone.
std::vector<char> fixed_buffers(const Graph& g) {
  std::vector<char> is_fixed(g.buffers.size(), 0);
  const auto is_same = [&](BufferId b) {
    return b == kNone || is_fixed[b] || (is_persistent(g.buffers[b].role) && g.buffers[b].role != Role::state);
  };
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].kind != Kind::forward || g.reads(t).empty() || !std::ranges::all_of(g.reads(t), is_same)) continue;
    for (const BufferId b : g.writes(t))
      if (b != kNone && g.buffers[b].role == Role::activation) is_fixed[b] = 1;
  }
  return is_fixed;
}

class Unfolder {
 public:
  Unfolder(const Graph& step, const BlockGraph& blocks, const ClusterPlan& cluster, const UnfoldOptions& options)
      : step_(step),
        blocks_(blocks),
        cluster_(cluster),
        in_(cluster.plan.graph),
        options_(options),
        is_fixed_(fixed_buffers(step)),
        is_total_(blocks.graph.buffers.size(), 0),
        is_tie_(blocks.graph.tasks.size(), 0),
        is_tied_(blocks.graph.buffers.size(), 0) {
    OVERTAKE_CHECK(!blocks.tasks.empty(), "blocks of {} that stand for no tasks", blocks.graph.model);
    for (const BlockGraph::Block& block : blocks.blocks)
      for (const BufferId b : block.gradients) is_total_[b] = 1;
    for (const BlockGraph::Block& block : blocks.blocks) {
      if (block.tie == kNone) continue;
      is_tie_[block.tie] = 1;
      for (const BufferId b : blocks.graph.reads(block.tie)) is_tied_[b] = 1;
    }
    for (const Lane& lane : cluster.plan.lanes) devices_ = std::max<std::uint32_t>(devices_, lane.device + 1u);
    local_ = devices_ / cluster.replicas;
    for (TaskId t = 0; t < in_.tasks.size(); ++t)
      if (is_gradient_piece(t))
        micro_batches_of_[{in_.tasks[t].device, cluster.task_of[t]}].insert(in_.tasks[t].micro_batch);
    graph().model = step.model;
    graph().parts = step.parts;
    made_.resize(in_.tasks.size());
    layers_.assign(step.layers.size(), kNone);
  }

  UnfoldedPlan run() {
    for (const Lane& lane : cluster_.plan.lanes)
      for (const TaskId t : lane.tasks)
        if (in_.tasks[t].op == Op::block && in_.tasks[t].kind != Kind::update && !is_tie(t)) unfold_block(t);
    find_transfers();
    for (TaskId t = 0; t < in_.tasks.size(); ++t)
      if (in_.tasks[t].kind == Kind::send) unfold_send(t);
    for (TaskId t = 0; t < in_.tasks.size(); ++t) {
      if (in_.tasks[t].kind == Kind::recv)
        unfold_recv(t);
      else if (is_tie(t))
        unfold_tie(t);
      else if (in_.tasks[t].kind == Kind::update)
        unfold_block(t);
      else if (in_.tasks[t].op == Op::transfer && in_.tasks[t].kind != Kind::send)
        unfold_collective(t);
    }
    add_parameters();
    add_losses();
    add_lanes();
    out_.replicas = cluster_.replicas;
    out_.micro_batches = cluster_.micro_batches;
    return std::move(out_);
  }

 private:
  // What is summed over the micro-batches of a device so far: within a group, and the groups before.
  struct Total {
    std::map<std::uint32_t, BufferId> waiting;  // by micro-batch: made, but those before are not
    std::uint32_t added = 0;
    BufferId group = kNone, sum = kNone;
    std::vector<BufferId> groups = {};  // of tied weights, instead of the sum: each group is tied first
  };
  struct Message {
    TaskId send = kNone, recv = kNone;
    BufferId token = kNone;
  };
  using Here = std::unordered_map<BufferId, BufferId>;  // a buffer of the step -> where a block has it

  Graph& graph() { return out_.plan.graph; }
  bool is_gradient_piece(TaskId t) const {
    const Kind kind = in_.tasks[t].kind;
    return in_.tasks[t].op == Op::block && !is_tie(t) && (kind == Kind::input_grad || kind == Kind::weight_grad);
  }
  bool is_tie(TaskId t) const { return in_.tasks[t].op == Op::block && is_tie_[cluster_.task_of[t]] != 0; }
  bool is_tied(BufferId of_cluster) const { return is_tied_[cluster_.buffer_of[of_cluster]] != 0; }
  bool is_total(BufferId of_cluster) const { return is_total_[cluster_.buffer_of[of_cluster]] != 0; }
  std::span<const BufferId> members(BufferId of_cluster) const {
    return blocks_.buffers[cluster_.buffer_of[of_cluster]];
  }
  LayerId layer(LayerId of_step) {
    LayerId& known = layers_[of_step];
    if (known == kNone) known = graph().add_layer(step_.layer_name(of_step));
    return known;
  }

  BufferId add_buffer(BufferId like, std::uint32_t device, Role role) {
    Buffer b = step_.buffers[like];
    OVERTAKE_CHECK(b.inside.buffer == kNone, "{} lies inside another image", step_.buffer_name(like));
    b.name = graph().intern(step_.buffer_name(like));
    b.role = role;
    b.device = static_cast<std::uint16_t>(device);
    graph().buffers.push_back(b);
    return static_cast<BufferId>(graph().buffers.size() - 1);
  }
  BufferId add_flat(std::string_view name, std::uint32_t device, std::int64_t elements, DType dtype, Role role) {
    const BufferId b = graph().add_buffer(name, {elements}, dtype, role);
    graph().buffers[b].device = static_cast<std::uint16_t>(device);
    return b;
  }
  TaskId add_task(TaskId of_cluster, Kind kind, Op op, LayerId at, AttrsId attrs, std::span<const BufferId> reads,
                  std::span<const BufferId> writes) {
    const Task& like = in_.tasks[of_cluster];
    const TaskId t = graph().add_task(kind, op, at, attrs, reads, writes);
    graph().tasks[t].device = like.device;
    graph().tasks[t].micro_batch = like.micro_batch;
    graph().tasks[t].is_delayed = like.is_delayed;
    made_[of_cluster].push_back(t);
    return t;
  }

  // What lives across steps, or is the same in all micro-batches: one of a device.
  BufferId on_device(std::uint32_t device, BufferId b) {
    const auto [it, is_new] = on_device_.try_emplace(std::uint64_t{b} * devices_ + device, kNone);
    if (is_new) it->second = add_buffer(b, device, step_.buffers[b].role);
    return it->second;
  }
  bool is_on_device(BufferId b) const { return is_persistent(step_.buffers[b].role) || is_fixed_[b]; }

  // A member of a buffer of the cluster's plan.
  BufferId instance(BufferId of_cluster, BufferId b) {
    const Buffer& where = in_.buffers[of_cluster];
    const bool is_copy = is_persistent(step_.buffers[b].role) && !is_persistent(where.role);  // of a tied weight
    if (is_on_device(b) && !is_copy) return on_device(where.device, b);
    const auto known = instances_.find({of_cluster, b});
    if (known != instances_.end()) return known->second;
    if (is_total(of_cluster) && !is_brought_.contains(of_cluster))
      return totals_.at(std::uint64_t{b} * devices_ + where.device).sum;
    return instances_[{of_cluster, b}] =
               add_buffer(b, where.device, is_copy ? Role::activation : step_.buffers[b].role);
  }

  // What is summed of a tied weight, group by group: here, or where it was brought to.
  std::vector<BufferId> groups(BufferId of_cluster, BufferId b) {
    const std::uint32_t device = in_.buffers[of_cluster].device;
    if (!is_brought_.contains(of_cluster)) return totals_.at(std::uint64_t{b} * devices_ + device).groups;
    std::vector<BufferId>& known = brought_groups_[{of_cluster, b}];
    while (known.size() < options_.groups) known.push_back(add_buffer(b, device, step_.buffers[b].role));
    return known;
  }

  // Every group for itself, as a replica would, then the groups.
  void unfold_tie(TaskId t) {
    Here sum;
    for (std::uint32_t g = 0; g < options_.groups; ++g) {
      Here here;
      for (const BufferId c : in_.reads(t))
        for (const BufferId b : members(c)) here[b] = groups(c, b).at(g);
      for (const TaskId of_step : blocks_.tasks[cluster_.task_of[t]]) clone(t, of_step, here);
      for (const BufferId c : in_.writes(t))
        for (const BufferId b : members(c)) sum[b] = g == 0 ? here.at(b) : sum_of(t, b, sum.at(b), here.at(b));
    }
    for (const BufferId c : in_.writes(t))
      for (const BufferId b : members(c)) instances_[{c, b}] = sum.at(b);
  }

  void unfold_block(TaskId t) {
    const bool is_update = in_.tasks[t].kind == Kind::update;
    Here here;
    for (const BufferId c : in_.reads(t))
      if (is_update || !is_total(c))
        for (const BufferId b : members(c)) here[b] = instance(c, b);
    for (const BufferId c : in_.writes(t))
      if (is_update || !is_total(c))
        for (const BufferId b : members(c)) here[b] = instance(c, b);
    for (const TaskId of_step : blocks_.tasks[cluster_.task_of[t]]) clone(t, of_step, here);
    if (is_update) return;
    for (const BufferId c : in_.writes(t))
      if (is_total(c))
        for (const BufferId b : members(c)) add_up(t, b, here.at(b), is_tied(c));
  }

  void clone(TaskId t, TaskId of_step, Here& here) {
    const Task& task = step_.tasks[of_step];
    const std::uint32_t device = in_.tasks[t].device;
    const auto writes_of_step = step_.writes(of_step);
    const bool is_same = !writes_of_step.empty() && std::ranges::all_of(writes_of_step, [&](BufferId b) {
      return b != kNone && (is_fixed_[b] || step_.buffers[b].role == Role::scratch);
    });
    if (is_same && !made_once_.insert(std::uint64_t{of_step} * devices_ + device).second) return;
    const auto find = [&](BufferId b) -> BufferId {
      if (b == kNone) return kNone;
      if (const auto known = here.find(b); known != here.end()) return known->second;
      if (is_on_device(b)) return on_device(device, b);
      return here[b] = add_buffer(b, device, step_.buffers[b].role);
    };
    std::vector<BufferId> reads, writes;
    for (const BufferId b : step_.reads(of_step)) {
      reads.push_back(find(b));
      if (b != kNone && step_.buffers[b].role == Role::input) note_input(reads.back(), t);
    }
    for (const BufferId b : writes_of_step) {
      writes.push_back(find(b));
      const auto loss = std::ranges::find(step_.losses, b);
      if (loss == step_.losses.end()) continue;
      const auto [replica, micro_batch] = place_of(t);
      losses_[{replica, micro_batch, static_cast<std::uint32_t>(loss - step_.losses.begin())}] = writes.back();
    }
    add_task(t, task.kind, task.op, layer(task.layer), attrs_of(t, task), reads, writes);
  }

  std::pair<std::uint32_t, std::uint32_t> place_of(TaskId t) const {
    return {in_.tasks[t].device / local_, in_.tasks[t].micro_batch};
  }
  void note_input(BufferId b, TaskId t) {
    if (!noted_.insert(b).second) return;
    const auto [replica, micro_batch] = place_of(t);
    out_.inputs.push_back({b, replica, micro_batch});
  }

  // A random number is of its micro-batch, and every loss counts as much as the others.
  AttrsId attrs_of(TaskId t, const Task& task) {
    Attrs attrs = step_.attrs_of(task);
    const auto [replica, micro_batch] = place_of(t);
    const std::int64_t index = std::int64_t{replica} * cluster_.micro_batches + micro_batch;
    if (attrs.has("salt")) attrs.set("salt", attrs.integer("salt") + kSaltsOfAMicroBatch * index);
    if ((task.op == Op::cross_entropy || task.op == Op::mse) && task.kind == Kind::input_grad)
      attrs.set("scale", attrs.real("scale", 1.0) / (cluster_.replicas * cluster_.micro_batches));
    return graph().add_attrs(attrs);
  }

  void add_up(TaskId t, BufferId b, BufferId gradient, bool is_tied) {
    const std::uint32_t device = in_.tasks[t].device;
    Total& total = totals_[std::uint64_t{b} * devices_ + device];
    const std::set<std::uint32_t>& all = micro_batches_of_.at({device, cluster_.task_of[t]});
    const auto of_a_group = static_cast<std::uint32_t>(std::max<std::size_t>(1, all.size() / options_.groups));
    total.waiting[in_.tasks[t].micro_batch] = gradient;
    while (total.added < all.size()) {
      const auto next = total.waiting.find(*std::next(all.begin(), total.added));
      if (next == total.waiting.end()) return;
      total.group = total.group == kNone ? next->second : sum_of(t, b, total.group, next->second);
      total.waiting.erase(next);
      if (++total.added % of_a_group != 0) continue;
      const BufferId group = std::exchange(total.group, kNone);
      if (is_tied)
        total.groups.push_back(group);
      else
        total.sum = total.sum == kNone ? group : sum_of(t, b, total.sum, group);
    }
  }
  BufferId sum_of(TaskId t, BufferId b, BufferId before, BufferId next) {
    const BufferId sum = add_buffer(b, in_.tasks[t].device, step_.buffers[b].role);
    const BufferId reads[] = {before, next};
    add_task(t, Kind::weight_grad, Op::sum, layer(step_.tasks[writer_of(b)].layer), graph().add_attrs({}), reads,
             {&sum, 1});
    return sum;
  }
  TaskId writer_of(BufferId b) {
    if (writers_.empty()) {
      writers_.assign(step_.buffers.size(), kNone);
      for (TaskId t = 0; t < step_.tasks.size(); ++t)
        for (const BufferId w : step_.writes(t))
          if (w != kNone) writers_[w] = t;
    }
    return writers_[b];
  }

  // Who belongs together: both ends of messages, and the members of each collective by device.
  void find_transfers() {
    for (TaskId t = 0; t < in_.tasks.size(); ++t) {
      if (in_.tasks[t].op != Op::transfer) continue;
      if (in_.tasks[t].kind == Kind::send) messages_[in_.writes(t)[0]].send = t;
      if (in_.tasks[t].kind == Kind::recv) messages_[in_.reads(t)[0]].recv = t;
      // Not the device's own sum.
      if (in_.tasks[t].kind != Kind::send && in_.tasks[t].kind != Kind::reduce_scatter)
        is_brought_.insert(in_.writes(t).begin(), in_.writes(t).end());
      const Attrs& attrs = in_.attrs_of(in_.tasks[t]);
      if (!attrs.has("collective")) continue;
      collectives_[{in_.tasks[t].kind, attrs.integer("collective")}].push_back(t);
    }
    for (auto& [id, tasks] : collectives_) std::ranges::sort(tasks, {}, [&](TaskId t) { return in_.tasks[t].device; });
  }

  std::vector<BufferId> instances(std::span<const BufferId> of_cluster) {
    std::vector<BufferId> all;
    for (const BufferId c : of_cluster)
      for (const BufferId b : members(c)) {
        if (!is_tied(c)) {
          all.push_back(instance(c, b));
          continue;
        }
        const std::vector<BufferId> each = groups(c, b);
        all.insert(all.end(), each.begin(), each.end());
      }
    return all;
  }

  void unfold_collective(TaskId t) {
    const Task& task = in_.tasks[t];
    const Attrs& of_cluster = in_.attrs_of(task);
    const std::vector<TaskId>& all = collectives_.at({task.kind, of_cluster.integer("collective")});
    std::vector<BufferId> reads;
    std::vector<std::int64_t> devices;
    for (const TaskId member : all) {
      devices.push_back(in_.tasks[member].device);
      const std::vector<BufferId> theirs =
          task.kind == Kind::all_gather ? parts_of(member, in_.reads(member)) : instances(in_.reads(member));
      reads.insert(reads.end(), theirs.begin(), theirs.end());
    }
    const std::vector<BufferId> writes =
        task.kind == Kind::reduce_scatter ? parts_of(t, in_.writes(t)) : instances(in_.writes(t));
    Attrs attrs = of_cluster;
    attrs.set("members", devices);
    attrs.set("index", static_cast<std::int64_t>(std::ranges::find(all, t) - all.begin()));
    add_task(t, task.kind, Op::transfer, graph().add_layer(in_.layer_name(task.layer)), graph().add_attrs(attrs), reads,
             writes);
  }

  // This member's parts of the sums, each a vector.
  std::vector<BufferId> parts_of(TaskId member, std::span<const BufferId> of_cluster) {
    const auto& all = collectives_.at({in_.tasks[member].kind, in_.attrs_of(in_.tasks[member]).integer("collective")});
    const std::int64_t n = std::ssize(all), index = std::ranges::find(all, member) - all.begin();
    std::vector<BufferId> parts;
    for (const BufferId c : of_cluster)
      for (const BufferId b : members(c)) {
        BufferId& known = parts_[{c, b}];
        const std::int64_t count = step_.bytes(b) / bytes_of(step_.buffers[b].dtype);
        if (known == 0)
          known = 1 + add_flat(step_.buffer_name(b), in_.tasks[member].device, count / n + (index < count % n ? 1 : 0),
                               step_.buffers[b].dtype, Role::weight_gradient);
        parts.push_back(known - 1);
      }
    return parts;
  }

  void unfold_send(TaskId t) {
    const std::vector<BufferId> reads = instances(in_.reads(t));
    Message& message = messages_.at(in_.writes(t)[0]);
    OVERTAKE_CHECK(message.recv != kNone, "nobody receives {}", in_.task_name(t));
    message.token = add_flat("message", in_.tasks[t].device, 0, DType::u8, Role::activation);
    add_task(t, Kind::send, Op::transfer, graph().add_layer(in_.layer_name(in_.tasks[t].layer)),
             message_attrs(t, in_.tasks[message.recv].device), reads, {&message.token, 1});
  }
  void unfold_recv(TaskId t) {
    const Message& message = messages_.at(in_.reads(t)[0]);
    std::vector<BufferId> reads = {message.token};
    const std::vector<BufferId> sources = instances(in_.reads(message.send));
    reads.insert(reads.end(), sources.begin(), sources.end());
    add_task(t, Kind::recv, Op::transfer, graph().add_layer(in_.layer_name(in_.tasks[t].layer)),
             message_attrs(message.send, in_.tasks[message.send].device), reads, instances(in_.writes(t)));
  }
  AttrsId message_attrs(TaskId sender, std::uint32_t peer) {
    const auto is_of_forward = [&](BufferId b) {
      return is_persistent(step_.buffers[b].role) || step_.tasks[writer_of(b)].kind == Kind::forward;
    };
    const bool is_forward = std::ranges::all_of(members(in_.reads(sender)[0]), is_of_forward);
    return graph().add_attrs({{"message", std::int64_t{sender}},
                              {"peer", std::int64_t{peer}},
                              {"forward", std::int64_t{is_forward && !in_.tasks[sender].is_delayed}}});
  }

  void add_parameters() {
    for (const Parameter& p : step_.parameters) {
      const auto is_known = [&](std::uint32_t d) {
        return on_device_.contains(std::uint64_t{p.buffer} * devices_ + d);
      };
      bool is_anywhere = false;
      for (std::uint32_t d = 0; d < devices_; ++d) is_anywhere = is_anywhere || is_known(d);
      if (!is_anywhere) on_device(0, p.buffer);  // nothing uses it, but it belongs to the model
      for (std::uint32_t d = 0; d < devices_; ++d) {
        if (!is_known(d)) continue;
        Parameter mine = p;
        mine.buffer = on_device(d, p.buffer);
        mine.gradient = kNone;
        mine.copy = p.copy == kNone ? kNone : on_device(d, p.copy);
        for (StoredPart& part : mine.parts) part.name = graph().intern(step_.string(part.name));
        graph().parameters.push_back(std::move(mine));
      }
    }
    for (const Constant& c : step_.constants)
      for (std::uint32_t d = 0; d < devices_; ++d)
        if (on_device_.contains(std::uint64_t{c.buffer} * devices_ + d))
          graph().constants.push_back({on_device(d, c.buffer), c.bytes});
  }

  void add_losses() {
    for (const auto& [loss, buffer] : losses_) {
      out_.losses.push_back(loss);
      graph().losses.push_back(buffer);
    }
  }

  void add_lanes() {
    for (const Lane& lane : cluster_.plan.lanes) {
      Lane mine{lane.device, {}, lane.is_asynchronous};
      for (const TaskId t : lane.tasks) mine.tasks.insert(mine.tasks.end(), made_[t].begin(), made_[t].end());
      out_.plan.lanes.push_back(std::move(mine));
    }
    for (const Wait& w : cluster_.plan.waits)
      if (!made_[w.before].empty() && !made_[w.after].empty())
        out_.plan.waits.push_back({made_[w.before].back(), made_[w.after].front()});
    std::ranges::sort(out_.plan.waits);
    out_.plan.schedule = cluster_.plan.schedule;
  }

  const Graph& step_;
  const BlockGraph& blocks_;
  const ClusterPlan& cluster_;
  const Graph& in_;  // the cluster's
  const UnfoldOptions& options_;
  std::vector<char> is_fixed_;  // per buffer of the step
  std::vector<char> is_total_;  // per buffer of the blocks
  std::vector<char> is_tie_;    // per task of the blocks
  std::vector<char> is_tied_;   // per buffer of the blocks: a tie reads it
  std::uint32_t devices_ = 0, local_ = 1;
  std::map<std::pair<std::uint32_t, TaskId>, std::set<std::uint32_t>> micro_batches_of_;  // of a device's gradients
  std::vector<std::vector<TaskId>> made_;                                                 // per task of the cluster
  std::vector<LayerId> layers_;
  std::vector<TaskId> writers_;  // per buffer of the step
  std::unordered_map<std::uint64_t, BufferId> on_device_;
  std::set<std::uint64_t> made_once_;
  std::map<std::pair<BufferId, BufferId>, BufferId> instances_, parts_;
  std::map<std::pair<BufferId, BufferId>, std::vector<BufferId>> brought_groups_;
  std::unordered_map<std::uint64_t, Total> totals_;  // by buffer of the step and device
  std::set<BufferId> is_brought_, noted_;
  std::map<std::pair<Kind, std::int64_t>, std::vector<TaskId>> collectives_;
  std::map<BufferId, Message> messages_;  // by the cluster's buffer
  std::map<UnfoldedPlan::Loss, BufferId> losses_;
  UnfoldedPlan out_;
};

}  // namespace

UnfoldedPlan unfold(const Graph& step, const BlockGraph& blocks, const ClusterPlan& cluster,
                    const UnfoldOptions& options) {
  return Unfolder(step, blocks, cluster, options).run();
}

UnfoldedPlan part_of(const UnfoldedPlan& whole, std::uint32_t device) {
  const Graph& in = whole.plan.graph;
  UnfoldedPlan out;
  out.replicas = whole.replicas;
  out.micro_batches = whole.micro_batches;
  Graph& g = out.plan.graph;
  g.model = in.model;
  g.parts = in.parts;
  std::vector<BufferId> buffer(in.buffers.size(), kNone);
  std::vector<TaskId> task(in.tasks.size(), kNone);
  for (BufferId b = 0; b < in.buffers.size(); ++b) {
    if (in.buffers[b].device != device) continue;
    Buffer mine = in.buffers[b];
    mine.name = g.intern(in.buffer_name(b));
    mine.device = 0;
    buffer[b] = static_cast<BufferId>(g.buffers.size());
    g.buffers.push_back(mine);
  }
  for (TaskId t = 0; t < in.tasks.size(); ++t) {
    const Task& theirs = in.tasks[t];
    if (theirs.device != device) continue;
    std::vector<BufferId> reads, writes;
    for (const BufferId b : in.reads(t))
      if (b == kNone || buffer[b] != kNone || theirs.op != Op::transfer)
        reads.push_back(b == kNone ? kNone : buffer[b]);
    for (const BufferId b : in.writes(t)) writes.push_back(b == kNone ? kNone : buffer[b]);
    task[t] = g.add_task(theirs.kind, theirs.op, g.add_layer(in.layer_name(theirs.layer)),
                         g.add_attrs(in.attrs_of(theirs)), reads, writes);
    g.tasks[task[t]].micro_batch = theirs.micro_batch;
    g.tasks[task[t]].is_delayed = theirs.is_delayed;
  }
  for (const Parameter& p : in.parameters) {
    if (buffer[p.buffer] == kNone) continue;
    Parameter mine = p;
    mine.buffer = buffer[p.buffer];
    mine.copy = p.copy == kNone ? kNone : buffer[p.copy];
    for (StoredPart& part : mine.parts) part.name = g.intern(in.string(part.name));
    g.parameters.push_back(std::move(mine));
  }
  for (const Constant& c : in.constants)
    if (buffer[c.buffer] != kNone) g.constants.push_back({buffer[c.buffer], c.bytes});
  for (std::size_t i = 0; i < in.losses.size(); ++i) {
    if (buffer[in.losses[i]] == kNone) continue;
    g.losses.push_back(buffer[in.losses[i]]);
    out.losses.push_back(whole.losses[i]);
  }
  // Updates stand or fall with the losses of their step; where there are none, with one that stays zero.
  if (g.losses.empty()) g.losses.push_back(g.add_buffer("loss", {3}, DType::f32, Role::output));
  for (const UnfoldedPlan::Input& i : whole.inputs)
    if (buffer[i.buffer] != kNone) out.inputs.push_back({buffer[i.buffer], i.replica, i.micro_batch});
  for (const Lane& lane : whole.plan.lanes) {
    if (lane.device != device) continue;
    Lane mine{0, {}, lane.is_asynchronous};
    for (const TaskId t : lane.tasks) mine.tasks.push_back(task[t]);
    out.plan.lanes.push_back(std::move(mine));
  }
  for (const Wait& w : whole.plan.waits)
    if (task[w.before] != kNone && task[w.after] != kNone) out.plan.waits.push_back({task[w.before], task[w.after]});
  std::ranges::sort(out.plan.waits);
  out.plan.schedule = whole.plan.schedule;
  return out;
}

Plan in_one_lane(Plan plan) {
  Lane lane{0, happens_before(plan, dependencies(plan)).topological, false};
  for (Task& t : plan.graph.tasks) t.device = 0;
  for (Buffer& b : plan.graph.buffers) b.device = 0;
  plan.lanes = {std::move(lane)};
  plan.waits.clear();
  return plan;
}

}  // namespace overtake
