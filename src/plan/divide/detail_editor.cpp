#include "plan/divide/detail_editor.h"

#include <algorithm>

#include "base/error.h"
#include "passes/weights.h"

namespace overtake {
namespace {

constexpr std::int64_t kPriority = 300;  // before all sums of gradients: someone waits

}  // namespace

DetailEditor::DetailEditor(Detail& plan, const Target& target) : plan_(plan), target_(target), devices_(plan.devices) {
  for (const Task& t : graph().tasks)
    if (graph().attrs_of(t).has("collective"))
      collectives_ = std::max(collectives_, graph().attrs_of(t).integer("collective") + 1);
}

std::vector<TaskId>& DetailEditor::lane(std::uint32_t device) {
  const auto is_own = [&](const Lane& lane) { return lane.device == device && !lane.is_asynchronous; };
  const auto found = std::ranges::find_if(plan_.plan.lanes, is_own);
  OVERTAKE_CHECK(found != plan_.plan.lanes.end(), "device {} computes nothing", device);
  return found->tasks;
}

BufferId DetailEditor::add_doubles(std::string_view name, std::uint32_t device, std::int64_t count, Role role) {
  const BufferId b = graph().add_buffer(name, {count * std::int64_t{sizeof(double)}}, DType::u8, role);
  graph().buffers[b].device = static_cast<std::uint16_t>(device);
  return b;
}

BufferId DetailEditor::add_like(BufferId other) {
  graph().buffers.push_back(Buffer(graph().buffers[other]));
  return static_cast<BufferId>(graph().buffers.size() - 1);
}

TaskId DetailEditor::add_task(std::uint32_t device, std::uint32_t micro_batch, Kind kind, Op op, LayerId layer,
                              const Attrs& attrs, const std::vector<BufferId>& reads,
                              const std::vector<BufferId>& writes) {
  Graph& g = graph();
  const TaskId t = g.add_task(kind, op, layer, g.add_attrs(attrs), reads, writes);
  g.tasks[t].device = static_cast<std::uint16_t>(device);
  g.tasks[t].micro_batch = micro_batch;
  if (op != Op::transfer) add_scratch(g, t, target_);
  return t;
}

void DetailEditor::add_collective(Kind kind, const std::vector<std::uint32_t>& members, LayerId layer,
                                  std::uint32_t micro_batch, const std::vector<std::vector<BufferId>>& operands,
                                  const std::vector<std::vector<BufferId>>& results) {
  std::vector<BufferId> reads;
  for (const std::vector<BufferId>& of_member : operands) reads.insert(reads.end(), of_member.begin(), of_member.end());
  Attrs attrs = {{"collective", collectives_++},
                 {"priority", kPriority},
                 {"members", std::vector<std::int64_t>(members.begin(), members.end())}};
  for (std::size_t i = 0; i < members.size(); ++i) {
    attrs.set("index", static_cast<std::int64_t>(i));
    const TaskId t = add_task(members[i], micro_batch, kind, Op::transfer, layer, attrs, reads, results[i]);
    const auto [place, is_new] = transfers_.try_emplace(members[i], plan_.plan.lanes.size());
    if (is_new)
      plan_.plan.lanes.push_back(
          {.device = static_cast<std::uint16_t>(members[i]), .tasks = {}, .is_asynchronous = true});
    plan_.plan.lanes[place->second].tasks.push_back(t);
  }
}

void DetailEditor::add_all_reduce(const std::vector<std::uint32_t>& members, LayerId layer, std::uint32_t micro_batch,
                                  const std::vector<std::vector<BufferId>>& operands,
                                  const std::vector<std::vector<BufferId>>& sums) {
  add_collective(Kind::all_reduce, members, layer, micro_batch, operands, sums);
}

std::vector<BufferId> DetailEditor::add_all_gather(const std::vector<std::uint32_t>& members, LayerId layer,
                                                   std::uint32_t micro_batch, const std::vector<BufferId>& parts) {
  std::vector<std::vector<BufferId>> operands, results;
  std::vector<BufferId> wholes;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const BufferId whole = add_like(parts[i]);
    graph().buffers[whole].shape[0] *= std::ssize(members);
    operands.push_back({parts[i]});
    results.push_back({whole});
    wholes.push_back(whole);
  }
  add_collective(Kind::all_gather, members, layer, micro_batch, operands, results);
  return wholes;
}

}  // namespace overtake
