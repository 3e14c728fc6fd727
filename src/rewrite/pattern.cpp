#include "rewrite/pattern.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace overtake {

bool is_closed(const Rewriter& g, const MatchedTasks& group, TaskId last) {
  MatchedTasks tasks = group;
  std::ranges::sort(tasks);
  const auto repeated = std::ranges::unique(tasks);
  tasks.erase(repeated.begin(), repeated.end());
  std::map<BufferId, std::uint32_t> reads;
  for (const TaskId t : tasks)
    for (const BufferId b : g.ins(t)) ++reads[b];
  return std::ranges::all_of(tasks, [&](TaskId t) { return t == last || g.readers(g.out(t)) == reads[g.out(t)]; });
}

bool is_close(double value, double expected, double relative) {
  return std::abs(value - expected) <= relative * std::abs(expected);
}

Product product_of(const Rewriter& g, BufferId b, MatchedTasks& group) {
  Product all;
  std::vector<BufferId> open{b};
  while (!open.empty()) {
    const BufferId next = open.back();
    open.pop_back();
    if (const auto number = g.scalar(next)) {
      all.scale *= *number;
      continue;
    }
    const TaskId t = g.writer(next, Op::mul);
    if (t == kNone || (next != b && g.readers(next) != 1)) {
      all.factors.push_back(next);
      continue;
    }
    group.push_back(t);
    open.push_back(g.in(t, 1));
    open.push_back(g.in(t, 0));
  }
  return all;
}

Scaled without_scale_and_reshape(const Rewriter& g, BufferId b, MatchedTasks& group) {
  Scaled all{b};
  for (;;) {
    const TaskId t = g.writer(all.source);
    if (t == kNone || (g.op(t) != Op::reshape && g.op(t) != Op::mul)) return all;
    BufferId next = g.in(t, 0);
    if (g.op(t) == Op::mul) {
      const std::size_t at = g.scalar(g.in(t, 0)) ? 0 : 1;
      const auto number = g.scalar(g.in(t, at));
      if (!number) return all;
      all.scale *= *number;
      next = g.in(t, 1 - at);
    }
    group.push_back(t);
    all.source = next;
  }
}

BufferId without_reshape(const Rewriter& g, BufferId b, MatchedTasks& group) {
  for (TaskId t = g.writer(b, Op::reshape); t != kNone; t = g.writer(b, Op::reshape)) {
    group.push_back(t);
    b = g.in(t, 0);
  }
  return b;
}

std::optional<Shifted> plus_scalar(const Rewriter& g, BufferId b, MatchedTasks& group) {
  const TaskId t = g.writer(b, Op::add);
  if (t == kNone) return std::nullopt;
  for (const std::size_t i : {0u, 1u}) {
    const auto number = g.scalar(g.in(t, i));
    if (!number) continue;
    group.push_back(t);
    return Shifted{g.in(t, 1 - i), *number};
  }
  return std::nullopt;
}

BufferId argument_of(const Rewriter& g, BufferId b, std::string_view function, MatchedTasks& group) {
  const TaskId t = g.writer_of_function(b, function);
  if (t == kNone) return kNone;
  group.push_back(t);
  return g.in(t, 0);
}

BufferId other_operand(const Rewriter& g, TaskId t, BufferId one) {
  return g.in(t, 0) == one ? g.in(t, 1) : g.in(t, 0);
}

}  // namespace overtake
