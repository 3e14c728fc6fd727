#include "sim/chakra/order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

#include "base/error.h"

namespace overtake::chakra {
namespace {

using Edge = std::pair<TaskId, TaskId>;  // (after, before)

struct FileEdges {
  std::vector<Edge> data, control;  // sorted, each once
};

FileEdges resolve(const Nodes& in) {
  std::vector<std::vector<TaskId>> of_rank(in.files.size());  // by id
  for (TaskId t = 0; t < in.nodes.size(); ++t) of_rank[in.nodes[t].rank].push_back(t);
  FileEdges out;
  for (TaskId t = 0; t < in.nodes.size(); ++t) {
    const Node& node = in.nodes[t];
    const auto& tasks = of_rank[node.rank];
    for (std::uint32_t i = 0; i < node.dependencies; ++i) {
      const std::uint64_t id = in.dependencies[node.first_dependency + i];
      const auto at = std::ranges::lower_bound(tasks, id, {}, [&](TaskId other) { return in.nodes[other].id; });
      if (at == tasks.end() || in.nodes[*at].id != id)
        in.fail(node, fmt::format("it depends on node {}, which is not there; the file is cut short, or was converted "
                                  "wrongly: convert or fetch it again",
                                  id));
      (i < node.controls ? out.control : out.data).emplace_back(t, *at);
    }
  }
  for (auto* edges : {&out.data, &out.control}) {
    std::ranges::sort(*edges);
    edges->erase(std::ranges::unique(*edges).begin(), edges->end());
  }
  return out;
}

// What must have ended before a task begins, and which tasks of asynchronous lanes begin after which have begun.
struct Constraints {
  Dependencies before;
  std::vector<TaskId> next_to_begin;  // per task; kNone, or empty: none
};

struct Walk {
  std::vector<TaskId> begun, ended;  // a member of a collective ends when all have begun
  std::vector<char> has_ended;
};

// Begins what can, the first by `position` first.
Walk walk(const Constraints& c, const Nodes& in, const Matches* matches, const std::vector<TaskId>& by_position) {
  const std::size_t n = by_position.size();
  std::vector<std::uint32_t> position(n), waiting(n);
  for (std::uint32_t i = 0; i < n; ++i) position[by_position[i]] = i;
  const Dependencies after = reversed(c.before);
  for (TaskId t = 0; t < n; ++t) waiting[t] = static_cast<std::uint32_t>(c.before.of(t).size());
  for (const TaskId next : c.next_to_begin)
    if (next != kNone) ++waiting[next];
  std::vector<std::size_t> begun_of(matches ? matches->collectives.size() : 0);

  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (TaskId t = 0; t < n; ++t)
    if (waiting[t] == 0) ready.push(position[t]);
  const auto release = [&](TaskId t) {
    if (--waiting[t] == 0) ready.push(position[t]);
  };
  Walk out;
  out.has_ended.assign(n, 0);
  const auto end = [&](TaskId t) {
    out.ended.push_back(t);
    out.has_ended[t] = 1;
    for (const TaskId next : after.of(t)) release(next);
  };
  while (!ready.empty()) {
    const TaskId t = by_position[ready.top()];
    ready.pop();
    out.begun.push_back(t);
    if (!c.next_to_begin.empty() && c.next_to_begin[t] != kNone) release(c.next_to_begin[t]);
    const std::uint32_t transfer = in.nodes[t].transfer;
    if (!matches || transfer == kNone || in.transfers[transfer].peer != kNone) {
      end(t);
      continue;
    }
    const Collective& collective = matches->collectives[matches->other[transfer]];
    if (++begun_of[matches->other[transfer]] == collective.members.size())
      for (const TaskId member : collective.members) end(member);
  }
  return out;
}

// Of tasks that wait for one another, each for the next, the one with the least id first.
std::vector<TaskId> find_circle(const Walk& stuck, const Constraints& c, const Nodes& in, const Matches* matches) {
  const auto unmet = [&](TaskId t) {
    for (const TaskId before : c.before.of(t))
      if (!stuck.has_ended[before]) return before;
    return kNone;
  };
  const auto next = [&](TaskId t) {
    const TaskId own = unmet(t);
    if (own != kNone || !matches) return own;
    for (const TaskId member : matches->collectives[matches->other[in.nodes[t].transfer]].members)
      if (unmet(member) != kNone) return member;
    return kNone;
  };
  TaskId t = 0;
  while (stuck.has_ended[t]) ++t;
  std::vector<TaskId> path;
  std::vector<std::uint32_t> place(in.nodes.size(), kNone);
  while (place[t] == kNone) {
    place[t] = static_cast<std::uint32_t>(path.size());
    path.push_back(t);
    t = next(t);
    OVERTAKE_CHECK(t != kNone, "a task that waits for nothing did not run");
  }
  path.erase(path.begin(), path.begin() + place[t]);
  std::ranges::rotate(path, std::ranges::min_element(path));
  return path;
}

[[noreturn]] void fail_circle(const Nodes& in, const std::vector<TaskId>& circle, bool is_in_file) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(circle.size(), most); ++i) {
    const Node& node = in.nodes[circle[i]];
    text += is_in_file ? fmt::format("{} -> ", node.id) : fmt::format("{} of rank {} -> ", node.id, node.rank);
  }
  if (circle.size() > most) text += fmt::format("({} more) -> ", circle.size() - most);
  const Node& first = in.nodes[circle.front()];
  text += is_in_file ? fmt::format("{}", first.id) : fmt::format("{} of rank {}", first.id, first.rank);
  if (is_in_file)
    fail_user("{}: nodes {} depend on one another, each on the next; a trace has no circles: convert it again",
              in.files[first.rank], text);
  fail_user(
      "{}: nodes {} wait for one another, each for the next, by dependencies, messages, collectives or the order "
      "on their stream; check that the files are of one run",
      in.files[first.rank], text);
}

std::vector<Lane> lanes_by(const Nodes& in, const std::vector<TaskId>& order) {
  std::vector<Lane> lanes(in.lanes.size());
  for (std::size_t l = 0; l < lanes.size(); ++l)
    lanes[l] = {.device = in.lanes[l].rank, .tasks = {}, .is_asynchronous = in.lanes[l].is_asynchronous};
  for (const TaskId t : order) lanes[in.nodes[t].lane].tasks.push_back(t);
  return lanes;
}

class Orderer {
 public:
  Orderer(const Nodes& in, const Matches& matches) : in_(in), matches_(matches), edges_(resolve(in)) {}

  Order run() {
    Order out;
    std::vector<TaskId> by_id(in_.nodes.size());
    std::iota(by_id.begin(), by_id.end(), TaskId{0});
    record(std::move(by_id));
    if (!runs_as_recorded()) {
      // Ids may run against dependencies, where all else is equal.
      record(order_of_files());
      if (!runs_as_recorded()) find_another();
    }
    out.waits = waits();
    out.lanes = std::move(lanes_);
    return out;
  }

 private:
  bool is_complete(const Walk& walked) const { return walked.ended.size() == in_.nodes.size(); }
  bool keeps_order(std::size_t lane) const { return in_.lanes[lane].has_order && !in_.lanes[lane].is_asynchronous; }

  // Lanes by place, time of start, and `ties`.
  void record(std::vector<TaskId> ties) {
    by_start_ = std::move(ties);
    std::ranges::stable_sort(by_start_, {}, [&](TaskId t) { return in_.nodes[t].start_ns; });
    lanes_ = lanes_by(in_, by_start_);
    for (Lane& lane : lanes_) std::ranges::stable_sort(lane.tasks, {}, [&](TaskId t) { return in_.nodes[t].place; });
  }

  bool runs_as_recorded() const { return is_complete(walk(constraints(true), in_, &matches_, by_start_)); }

  // One that no file speaks against; the error for a circle.
  std::vector<TaskId> order_of_files() const {
    const Constraints files{.before = dependencies_from(file_edges(), in_.nodes.size()), .next_to_begin = {}};
    Walk walked = walk(files, in_, nullptr, by_start_);
    if (!is_complete(walked)) fail_circle(in_, find_circle(walked, files, in_, nullptr), true);
    return std::move(walked.ended);
  }

  // Other orders for the lanes that may have them; the error for a circle.
  void find_another() {
    const Constraints loose = constraints(false);
    const Walk walked = walk(loose, in_, &matches_, by_start_);
    if (!is_complete(walked)) fail_circle(in_, find_circle(walked, loose, in_, &matches_), false);
    std::vector<Lane> begun = lanes_by(in_, walked.begun), ended = lanes_by(in_, walked.ended);
    for (std::size_t l = 0; l < lanes_.size(); ++l)
      if (!keeps_order(l)) lanes_[l] = std::move(lanes_[l].is_asynchronous ? begun[l] : ended[l]);
  }

  std::vector<Edge> file_edges() const {
    std::vector<Edge> edges = edges_.data;
    edges.insert(edges.end(), edges_.control.begin(), edges_.control.end());
    return edges;
  }

  // With the recorded order of all lanes, or only of those that certainly had it.
  Constraints constraints(bool is_strict) const {
    std::vector<Edge> edges = file_edges();
    for (std::uint32_t i = 0; i < in_.transfers.size(); ++i) {
      const Transfer& t = in_.transfers[i];
      if (in_.nodes[t.node].kind == Kind::recv) edges.emplace_back(t.node, in_.transfers[matches_.other[i]].node);
    }
    Constraints out;
    if (is_strict) out.next_to_begin.assign(in_.nodes.size(), kNone);
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      const std::vector<TaskId>& tasks = lanes_[l].tasks;
      for (std::size_t i = 1; i < tasks.size(); ++i) {
        if (is_strict && lanes_[l].is_asynchronous)
          out.next_to_begin[tasks[i - 1]] = tasks[i];
        else if (is_strict || keeps_order(l))
          edges.emplace_back(tasks[i], tasks[i - 1]);
      }
    }
    out.before = dependencies_from(std::move(edges), in_.nodes.size());
    return out;
  }

  std::vector<Wait> waits() const {
    std::vector<TaskId> previous(in_.nodes.size(), kNone);
    for (const Lane& lane : lanes_)
      for (std::size_t i = 1; i < lane.tasks.size() && !lane.is_asynchronous; ++i)
        previous[lane.tasks[i]] = lane.tasks[i - 1];
    std::vector<Wait> out;
    for (const auto& [after, before] : edges_.data) out.push_back({.before = before, .after = after});
    for (const auto& [after, before] : edges_.control)
      if (previous[after] != before) out.push_back({.before = before, .after = after});
    std::ranges::sort(out);
    out.erase(std::ranges::unique(out).begin(), out.end());
    return out;
  }

  const Nodes& in_;
  const Matches& matches_;
  FileEdges edges_;
  std::vector<TaskId> by_start_;
  std::vector<Lane> lanes_;
};

}  // namespace

Order order(const Nodes& nodes, const Matches& matches) { return Orderer(nodes, matches).run(); }

}  // namespace overtake::chakra
