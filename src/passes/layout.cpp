#include "passes/layout.h"

#include <map>
#include <optional>

#include "base/error.h"
#include "rewrite/uses.h"

namespace overtake {
namespace {

bool is_image(const Graph& g, BufferId b) {
  return b != kNone && g.buffers[b].shape.rank == 4 && !is_persistent(g.buffers[b].role);
}

// A trained tensor may be used like an image; a convolution's own weight is none.
bool is_image_operand(const Graph& g, const Task& task, std::size_t read, BufferId b) {
  return b != kNone && g.buffers[b].shape.rank == 4 && !(task.op == Op::conv2d && read == 1);
}

class LayoutChooser {
 public:
  LayoutChooser(const Graph& old, Graph& g, const Target& target, bool propagate)
      : old_(old), graph_(g), target_(target), propagate_(propagate) {}

  void run() {
    for (const Task& task : old_.tasks)
      for (const BufferId b : old_.reads(task))
        if (is_input_image(task, b)) graph_.buffers[b].layout = channels_last_layout();
    for (TaskId t = 0; t < old_.tasks.size(); ++t) place(t);
  }

 private:
  // Neither token ids nor what a loss compares with, which nobody reads as an image.
  bool is_input_image(const Task& task, BufferId b) const {
    return is_image(old_, b) && old_.buffers[b].role == Role::input && old_.buffers[b].dtype == DType::f32 &&
           !(task.op == Op::mse && old_.reads(task)[1] == b);
  }

  void place(TaskId t) {
    const Task& task = old_.tasks[t];
    std::vector<BufferId> reads(old_.reads(t).begin(), old_.reads(t).end());
    const std::vector<BufferId> writes(old_.writes(t).begin(), old_.writes(t).end());
    for (BufferId& b : reads)
      if (const auto plain = plain_of_.find(b); plain != plain_of_.end()) b = plain->second;
    const Layout layout = wanted(task, reads);
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (!is_image_operand(graph_, task, i, reads[i]) || task.op == Op::reorder) continue;
      const Layout own = i == 0 ? target_.first_image_layout(old_, task).value_or(layout) : layout;
      if (graph_.buffers[reads[i]].layout != own) reads[i] = reordered(reads[i], own, task.layer);
    }
    for (const BufferId b : writes)
      if (is_image(graph_, b)) graph_.buffers[b].layout = task.op == Op::reorder ? reader_layout(b, layout) : layout;
    add_like(graph_, task, reads, writes);
    for (const BufferId b : writes)
      if (!propagate_ && is_image(graph_, b) && graph_.buffers[b].dtype != DType::u8 && layout != plain_layout(4))
        plain_of_[b] = reordered(b, plain_layout(4), task.layer);
  }

  // What a reorder writes: as all of its readers want it, if they agree on something special.
  Layout reader_layout(BufferId b, const Layout& otherwise) const {
    std::optional<Layout> common;
    for (const Task& task : old_.tasks)
      for (std::size_t i = 0; i < task.reads; ++i) {
        if (old_.reads(task)[i] != b) continue;
        const auto own = i == 0 ? target_.first_image_layout(old_, task) : std::nullopt;
        if (!own || (common && *common != *own)) return otherwise;
        common = own;
      }
    return common.value_or(otherwise);
  }

  Layout wanted(const Task& task, const std::vector<BufferId>& reads) const {
    switch (target_.image_layout(old_, task)) {
      case ImageLayout::channels_last:
        return channels_last_layout();
      case ImageLayout::follow:
        for (std::size_t i = 0; i < reads.size(); ++i)
          if (is_image_operand(graph_, task, i, reads[i]) && !is_plain(graph_.buffers[reads[i]].layout))
            return graph_.buffers[reads[i]].layout;
        return plain_layout(4);
      case ImageLayout::plain:
        return plain_layout(4);
    }
    return plain_layout(4);
  }

  // The same values in another layout; made once however many tasks want it.
  BufferId reordered(BufferId from, const Layout& layout, LayerId layer) {
    BufferId& to = made_.try_emplace({from, to_string(layout)}, kNone).first->second;
    if (to != kNone) return to;
    const Buffer source = graph_.buffers[from];
    to = graph_.add_buffer(fmt::format("{}.{}", graph_.buffer_name(from), to_string(layout)), source.shape,
                           source.dtype, Role::activation);
    graph_.buffers[to].layout = layout;
    graph_.add_task(Kind::forward, Op::reorder, layer, 0, {from}, {to});
    return to;
  }

  const Graph& old_;
  Graph& graph_;
  const Target& target_;
  bool propagate_;
  std::map<BufferId, BufferId> plain_of_;  // without propagation
  std::map<std::pair<BufferId, std::string>, BufferId> made_;
};

}  // namespace

Graph choose_layouts(Graph graph, const Target& target, bool propagate) {
  const Graph old = graph;
  graph.tasks.clear();
  graph.operands.clear();
  LayoutChooser(old, graph, target, propagate).run();
  return graph;
}

}  // namespace overtake
