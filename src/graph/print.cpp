#include <fmt/ranges.h>

#include "base/error.h"
#include "overtake/graph.h"

namespace overtake {
namespace {

std::string describe(const Graph& g, BufferId id) {
  if (id == kNone) return "-";
  const Buffer& b = g.buffers[id];
  const std::string layout = is_plain(b.layout) ? "" : ":" + to_string(b.layout);
  const std::string place =
      b.inside.buffer == kNone ? "" : fmt::format("@{} of %{}", b.inside.channel, g.buffer_name(b.inside.buffer));
  return fmt::format("%{}:{}{}{}{}", g.buffer_name(id), to_string(b.dtype), to_string(b.shape), layout, place);
}

std::string describe(const AttrValue& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return fmt::format("{}", *d);
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  return fmt::format("{}", fmt::join(std::get<std::vector<std::int64_t>>(value), ","));
}

std::string join_operands(const Graph& g, std::span<const BufferId> ids) {
  std::vector<std::string> words;
  for (const BufferId id : ids) words.push_back(describe(g, id));
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::string print(const Graph& g) {
  std::string out =
      fmt::format("graph {} ({} tasks, {} buffers, {} parts)\n", g.model, g.tasks.size(), g.buffers.size(), g.parts);
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    const Task& task = g.tasks[t];
    std::string attrs;
    for (const auto& [name, value] : g.attrs_of(task).values()) attrs += fmt::format(" {}={}", name, describe(value));
    out += fmt::format("{:>5} {:<11} {:<13} {} = ({}){}  # {}\n", t, to_string(task.kind), to_string(task.op),
                       join_operands(g, g.writes(t)), join_operands(g, g.reads(t)), attrs, g.layer_name(task.layer));
  }
  return out;
}

}  // namespace overtake
