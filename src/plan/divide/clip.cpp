#include "plan/divide/clip.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "plan/divide/detail_editor.h"

namespace overtake {
namespace {

// Where an update has its gradient and its factor.
constexpr std::size_t kGradient = 1, kFactor = 2;

class Clipper {
 public:
  Clipper(Detail& plan, const Graph& step, double max_norm, const Target& target)
      : plan_(plan), to_(plan, target), layer_(plan.plan.graph.add_layer("clip")), max_norm_(max_norm) {
    for (const Parameter& p : step.parameters)
      if (p.gradient != kNone) place_of_.try_emplace(step.buffer_name(p.buffer), place_of_.size());
  }

  void run() {
    const std::uint32_t stages = to_.devices() / plan_.replicas;
    for (std::uint32_t r = 0; r < plan_.replicas; ++r) clip_replica(r * stages, (r + 1) * stages);
  }

 private:
  // A device with weights.
  struct Member {
    std::uint32_t device;
    std::vector<std::pair<std::size_t, TaskId>> updates;  // by place among the model's parameters
    TaskId norms;
  };

  Graph& graph() { return plan_.plan.graph; }
  bool is_update(TaskId t) { return graph().tasks[t].op == Op::sgd || graph().tasks[t].op == Op::adamw; }

  void clip_replica(std::uint32_t first, std::uint32_t end) {
    std::vector<Member> members;
    std::size_t most = 0;
    for (std::uint32_t d = first; d < end; ++d) {
      Member member{d, updates_on(d), kNone};
      if (member.updates.empty()) continue;
      most = std::max(most, member.updates.size());
      members.push_back(std::move(member));
    }
    std::vector<std::uint32_t> devices;
    std::vector<BufferId> sums;
    std::map<std::size_t, std::int64_t> place_of_sum;  // of each parameter; where several have it, the first one's
    for (std::size_t i = 0; i < members.size(); ++i) {
      devices.push_back(members[i].device);
      sums.push_back(add_norms(members[i], most));
      for (std::size_t k = 0; k < members[i].updates.size(); ++k)
        place_of_sum.try_emplace(members[i].updates[k].first, static_cast<std::int64_t>(i * most + k));
    }
    if (members.size() > 1) sums = to_.add_all_gather(devices, layer_, 0, sums);
    std::vector<std::int64_t> order;
    for (const auto& [parameter, place] : place_of_sum) order.push_back(place);
    for (std::size_t i = 0; i < members.size(); ++i) add_factor(members[i], sums[i], order);
  }

  std::vector<std::pair<std::size_t, TaskId>> updates_on(std::uint32_t device) {
    std::vector<std::pair<std::size_t, TaskId>> updates;
    for (const TaskId t : to_.lane(device)) {
      if (!is_update(t)) continue;
      OVERTAKE_CHECK(!graph().tasks[t].is_delayed, "{} is clipped, but runs a step late", graph().task_name(t));
      updates.emplace_back(place_of_.at(graph().buffer_name(graph().writes(t)[0])), t);
    }
    std::ranges::sort(updates);
    return updates;
  }

  // The sums of squares of its gradients, with room for as many as the member with most has.
  BufferId add_norms(Member& member, std::size_t most) {
    std::vector<BufferId> gradients;
    for (const auto& [place, t] : member.updates) gradients.push_back(graph().reads(t)[kGradient]);
    const BufferId sums = to_.add_doubles("clip.sums", member.device, static_cast<std::int64_t>(most), Role::gradient);
    member.norms = to_.add_task(member.device, 0, Kind::update, Op::squared_norm, layer_, {}, gradients, {sums});
    return sums;
  }

  void add_factor(const Member& member, BufferId sums, const std::vector<std::int64_t>& order) {
    const BufferId factor = graph().add_buffer("clip.factor", {2}, DType::f32, Role::gradient);
    graph().buffers[factor].device = static_cast<std::uint16_t>(member.device);
    const Attrs attrs = {{"max_norm", max_norm_}, {"order", order}};
    const TaskId clip = to_.add_task(member.device, 0, Kind::update, Op::clip_norm, layer_, attrs, {sums}, {factor});
    for (const auto& [place, t] : member.updates) {
      std::vector<BufferId> reads(graph().reads(t).begin(), graph().reads(t).end());
      const std::vector<BufferId> writes(graph().writes(t).begin(), graph().writes(t).end());
      reads[kFactor] = factor;
      graph().set_operands(t, reads, writes);
    }
    std::vector<TaskId>& lane = to_.lane(member.device);
    lane.insert(std::ranges::find_if(lane, [&](TaskId t) { return is_update(t); }), {member.norms, clip});
  }

  Detail& plan_;
  DetailEditor to_;
  LayerId layer_;
  double max_norm_;
  std::map<std::string, std::size_t> place_of_;  // of trained parameters, by name
};

}  // namespace

Detail clip_gradients(Detail plan, const Graph& step, double max_norm, const Target& target) {
  Clipper(plan, step, max_norm, target).run();
  return plan;
}

}  // namespace overtake
