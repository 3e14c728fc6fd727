#pragma once
// Training with a reduction over one member between every gradient and its update: what a rank does that has no others.
// The weights must be those of training without.

#include <string>
#include <vector>

#include "exec/backend.h"
#include "overtake/plan.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"
#include "plan/in_order.h"
#include "plan/memory.h"
#include "train/initial_values.h"

namespace overtake {

enum class OneMember : std::uint8_t {
  all_reduce,      // within the step
  scatter_gather,  // likewise
  delayed          // gathered, and weights updated, beside the next step
};

inline Graph small_training_graph(const Backend& backend, const std::string& model, const std::string& settings) {
  PassRunner runner({.skip = {"group_updates", "share_concats"}, .print = {}});
  return build_training_graph(
      build_model(model, ModelSettings::parse(settings)), backend.target(),
      {.optimizer = {.momentum = 0.9}, .bf16 = backend.precision() == Precision::bf16, .parts = 2, .extra = {}},
      runner);
}

class OneMemberPlan {
 public:
  OneMemberPlan(Graph graph, OneMember way) : way_(way) {
    plan_.graph = std::move(graph);
    plan_.schedule = "one member";
    Graph& g = plan_.graph;
    const auto own_tasks = static_cast<TaskId>(g.tasks.size());
    std::vector<TaskId> updates, others;
    for (TaskId t = 0; t < own_tasks; ++t) (g.tasks[t].kind == Kind::update ? updates : others).push_back(t);
    for (const TaskId t : updates) reduce_for(t);
    if (way_ == OneMember::delayed)
      for (const TaskId t : updates) g.tasks[t].is_delayed = true;
    const bool is_delayed = way_ == OneMember::delayed;
    std::vector<TaskId> lane = is_delayed ? updates : others;
    const std::vector<TaskId>& last = is_delayed ? others : updates;
    lane.insert(lane.end(), last.begin(), last.end());
    plan_.lanes = {{0, std::move(lane), false}, {0, sums_, true}};
    if (!gathers_.empty()) plan_.lanes.push_back({0, gathers_, true});
    set_all_turns();
  }

  std::size_t transfers() const { return sums_.size() + gathers_.size(); }
  Plan placed() const {
    Plan plan = place_memory(plan_);
    verify(plan);
    return plan;
  }

 private:
  void reduce_for(TaskId update) {
    Graph& g = plan_.graph;
    std::vector<BufferId> reads(g.reads(update).begin(), g.reads(update).end()),
        writes(g.writes(update).begin(), g.writes(update).end());
    for (BufferId& b : reads) {
      if (b == kNone || g.buffers[b].role != Role::weight_gradient) continue;
      Buffer like = g.buffers[b];
      const auto sum = static_cast<BufferId>(g.buffers.size());
      g.buffers.push_back(like);
      const LayerId layer = g.tasks[update].layer;
      const Attrs attrs{{"collective", next_++}, {"members", std::vector<std::int64_t>{0}}, {"index", std::int64_t{0}}};
      if (way_ == OneMember::all_reduce) {
        sums_.push_back(g.add_task(Kind::all_reduce, Op::transfer, layer, g.add_attrs(attrs), {b}, {sum}));
      } else {
        const BufferId part =
            g.add_buffer("part", {g.bytes(b) / bytes_of(like.dtype)}, like.dtype, Role::weight_gradient);
        sums_.push_back(g.add_task(Kind::reduce_scatter, Op::transfer, layer, g.add_attrs(attrs), {b}, {part}));
        gathers_.push_back(g.add_task(Kind::all_gather, Op::transfer, layer, g.add_attrs(attrs), {part}, {sum}));
        g.tasks[gathers_.back()].is_delayed = way_ == OneMember::delayed;
      }
      b = sum;
    }
    g.set_operands(update, reads, writes);
  }

  void set_all_turns() {
    std::vector<TaskId> order = way_ == OneMember::delayed ? gathers_ : sums_;
    const std::vector<TaskId>& last = way_ == OneMember::delayed ? sums_ : gathers_;
    order.insert(order.end(), last.begin(), last.end());
    for (std::size_t i = 0; i < order.size(); ++i) {
      Attrs attrs = plan_.graph.attrs_of(plan_.graph.tasks[order[i]]);
      attrs.set("turn", static_cast<std::int64_t>(i));
      plan_.graph.tasks[order[i]].attrs = plan_.graph.add_attrs(attrs);
    }
  }

  OneMember way_;
  Plan plan_;
  std::int64_t next_ = 0;
  std::vector<TaskId> sums_, gathers_;
};

// All weights and states after some steps, as bytes.
inline std::vector<std::byte> weights_after(Executor& executor, std::size_t steps) {
  fill_initial_parameters(executor, 3);
  fill_random_inputs(executor, 4);
  for (std::size_t i = 0; i < steps; ++i) executor.run(0, {.step = i, .seed = 5, .learning_rate = 0.05f});
  std::vector<std::byte> all;
  const Graph& g = executor.plan(0).graph;
  for (const Parameter& p : g.parameters) {
    const Buffer& b = g.buffers[p.buffer];
    std::vector<std::byte> values(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));
    executor.read_plain(p.buffer, values);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace overtake
