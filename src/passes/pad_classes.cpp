#include "passes/pad_classes.h"

#include <algorithm>
#include <vector>

namespace overtake {
namespace {

constexpr std::int64_t kAligned = 8, kMultiple = 64;
constexpr std::int64_t kLeastClasses = 512;  // below, it is not worth it

struct Readers {
  explicit Readers(const Graph& g) : of(g.buffers.size()) {
    for (TaskId t = 0; t < g.tasks.size(); ++t)
      for (std::size_t i = 0; i < g.tasks[t].reads; ++i)
        if (const BufferId b = g.reads(t)[i]; b != kNone) of[b].push_back({t, i});
  }
  struct Place {
    TaskId task;
    std::size_t operand;
  };
  std::vector<std::vector<Place>> of;
};

// The linear layer that makes these logits, if all of it can be widened.
TaskId widenable(const Graph& g, const Readers& readers, BufferId logits) {
  if (g.buffers[logits].role != Role::activation || readers.of[logits].size() != 1) return kNone;
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].op != Op::linear || g.writes(t)[0] != logits || g.tasks[t].writes != 1) continue;
    const BufferId weight = g.reads(t)[1], bias = g.reads(t)[2];
    const auto is_own = [&](BufferId b) { return g.buffers[b].role == Role::weight; };
    const bool is_weight_free = is_own(weight) && std::ranges::all_of(readers.of[weight], [&](const Readers::Place& p) {
                                  return p.task == t || (g.tasks[p.task].op == Op::embedding && p.operand == 1);
                                });
    const bool is_bias_free = bias == kNone || (is_own(bias) && readers.of[bias].size() == 1);
    return is_weight_free && is_bias_free ? t : kNone;
  }
  return kNone;
}

void widen_rows(Graph& g, BufferId weight, std::int64_t rows) {
  const auto p = std::ranges::find(g.parameters, weight, &Parameter::buffer);
  p->stored_rows = g.buffers[weight].shape[0];
  g.buffers[weight].shape[0] = rows;
}

void set_attribute(Graph& g, TaskId t, const char* name, std::int64_t value) {
  Attrs attrs = g.attrs_of(g.tasks[t]);
  attrs.set(name, value);
  g.tasks[t].attrs = g.add_attrs(attrs);
}

}  // namespace

Graph pad_classes(Graph g) {
  const Readers readers(g);
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].op != Op::cross_entropy) continue;
    const BufferId logits = g.reads(t)[0];
    const std::int64_t classes = g.buffers[logits].shape.back();
    if (classes < kLeastClasses || classes % kAligned == 0) continue;
    const TaskId linear = widenable(g, readers, logits);
    if (linear == kNone) continue;
    const std::int64_t width = (classes + kMultiple - 1) / kMultiple * kMultiple;
    const BufferId weight = g.reads(linear)[1], bias = g.reads(linear)[2];
    widen_rows(g, weight, width);
    if (bias != kNone) widen_rows(g, bias, width);
    Shape& shape = g.buffers[logits].shape;
    shape[shape.rank - 1u] = width;
    set_attribute(g, linear, "out", width);
    set_attribute(g, t, "classes", classes);
  }
  return g;
}

}  // namespace overtake
