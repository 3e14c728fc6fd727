#include "passes/share_concats.h"

#include <algorithm>
#include <ranges>
#include <vector>

#include "graph/place.h"
#include "rewrite/uses.h"

namespace overtake {
namespace {

constexpr std::int64_t kAccess = 16;  // bytes: kernels move so many at a time

// The place of what a batch norm's input gradient adds to its own among the reads; see ops/batch_norm.cpp.
constexpr std::size_t kAdded = 8;

class ConcatSharer {
 public:
  ConcatSharer(Graph& g, const Target& target)
      : graph_(g), target_(target), uses_(g), operands_(g.buffers.size()), holds_others_(g.buffers.size(), 0) {
    for (TaskId t = 0; t < g.tasks.size(); ++t) {
      std::size_t i = 0;
      for (const std::span<const BufferId> ids : {g.reads(t), g.writes(t)})
        for (const BufferId b : ids) {
          if (b != kNone) operands_[b].push_back({t, i});
          ++i;
        }
    }
  }

  void run() {
    const auto count = static_cast<TaskId>(graph_.tasks.size());
    // A whole gets its place before its parts do: the last concat of a chain first, the first gradient first.
    for (TaskId t = count; t-- > 0;)
      if (graph_.tasks[t].op == Op::concat && graph_.tasks[t].kind == Kind::forward) place_parts(t);
    for (TaskId t = 0; t < count; ++t) {
      const Task& task = graph_.tasks[t];
      if (task.kind != Kind::input_grad) continue;
      if (task.op == Op::concat) place_parts(t);
      if (task.op == Op::batch_norm && task.reads > kAdded) place_sum(t);
    }
  }

 private:
  struct Operand {
    TaskId task;
    std::size_t index;  // reads first, then writes
  };

  void place_parts(TaskId t) {
    const Task& task = graph_.tasks[t];
    const BufferId whole = concat_whole(graph_, task);
    if (graph_.attrs_of(task).integer("axis") != 1) return;
    for (const ConcatPart& part : concat_parts(graph_, task))
      if (part.buffer != kNone)
        place(part.buffer, {holder_of(graph_, whole), graph_.buffers[whole].inside.channel + part.first});
  }

  // What b, a part of it, shows in place; kNone if b was computed or copied there.
  BufferId shown_whole(BufferId b) const {
    const Task& writer = graph_.tasks[uses_.writer[b]];
    if (writer.op != Op::concat) return kNone;
    const BufferId whole = concat_whole(graph_, writer);
    return holder_of(graph_, whole) == holder_of(graph_, b) ? whole : kNone;
  }

  // The sum goes where the summand lies, if nobody else needs that any more: the summand itself, and all that shows the
  // same values, up to what was computed there.
  void place_sum(TaskId t) {
    const BufferId sum = graph_.writes(t)[0], added = graph_.reads(t)[kAdded];
    const Place at = graph_.buffers[added].inside;
    if (at.buffer == kNone || graph_.buffers[sum].shape != graph_.buffers[added].shape) return;
    for (BufferId b = added; b != kNone; b = shown_whole(b)) {
      const Task& writer = graph_.tasks[uses_.writer[b]];
      const bool has_parts_there = writer.op == Op::concat && writer.kind == Kind::forward;
      if (uses_.readers[b] != 1 || has_parts_there) return;
    }
    place(sum, at);
  }

  void place(BufferId b, const Place& at) {
    const Buffer &x = graph_.buffers[b], &holder = graph_.buffers[at.buffer];
    const auto is_movable = [](const Buffer& image) {
      return image.layout == channels_last_layout() && (image.role == Role::activation || image.role == Role::gradient);
    };
    const bool is_taken = x.inside.buffer != kNone || holds_others_[b];  // by another concat
    if (b == at.buffer || is_taken || !is_movable(x) || !is_movable(holder)) return;
    const std::int64_t pitch = holder.shape[1], bytes = bytes_of(x.dtype);
    if (at.channel * bytes % kAccess != 0 || pitch * bytes % kAccess != 0) return;
    const auto takes_it = [&](const Operand& o) {
      return target_.takes_pitch(graph_, graph_.tasks[o.task], o.index, pitch);
    };
    // Readers before the writer: what refuses is asked before a convolution has to be tried out.
    if (!std::ranges::all_of(operands_[b] | std::views::reverse, takes_it)) return;
    graph_.buffers[b].inside = at;
    graph_.buffers[b].layout.pitch = pitch;
    holds_others_[at.buffer] = 1;
  }

  Graph& graph_;
  const Target& target_;
  Uses uses_;
  std::vector<std::vector<Operand>> operands_;  // by buffer: where it is one
  std::vector<char> holds_others_;              // by buffer
};

}  // namespace

Graph share_concats(Graph graph, const Target& target) {
  ConcatSharer(graph, target).run();
  return graph;
}

}  // namespace overtake
