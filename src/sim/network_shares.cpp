// Max-min fair shares by progressive filling: the link with the smallest equal share holds its flows at that; then the
// next, with what is left. A flow's own limit is a link of its own.

#include <algorithm>
#include <tuple>

#include "sim/network.h"

namespace overtake {

void FlowNetwork::settle() {
  find_component();
  std::sort(component_.begin(), component_.end(), [&](FlowId a, FlowId b) {
    return std::tuple(-int{flows_[a].priority}, flows_[a].limit, a) <
           std::tuple(-int{flows_[b].priority}, flows_[b].limit, b);
  });
  for (const LinkId l : tight_links_) rests_[l].left = links_[l].capacity;
  const std::span<FlowId> flows(component_);
  for (std::size_t begin = 0; begin < flows.size();) {
    std::size_t end = begin;
    while (end < flows.size() && flows_[flows[end]].priority == flows_[flows[begin]].priority) ++end;
    share_out(flows.subspan(begin, end - begin));
    begin = end;
  }
  for (const FlowId id : component_)
    if (new_rates_[id] != flows_[id].rate || flows_[id].remaining == 0) set_rate(id, new_rates_[id]);
}

// All flows whose shares may change, and the tight links among theirs.
void FlowNetwork::find_component() {
  ++mark_;
  component_.clear();
  tight_links_.clear();
  const auto add_flows = [&](const Link& link) {
    for (const Use& use : link.flows) {
      if (flows_[use.flow].mark == mark_) continue;
      flows_[use.flow].mark = mark_;
      component_.push_back(use.flow);
    }
  };
  for (const LinkId l : dirty_) {
    links_[l].is_dirty = false;
    add_flows(links_[l]);
  }
  dirty_.clear();
  for (std::size_t i = 0; i < component_.size(); ++i) {
    for (const LinkId l : path_links(flows_[component_[i]].path)) {
      Link& link = links_[l];
      if (link.mark == mark_ || !link.is_tight()) continue;
      link.mark = mark_;
      tight_links_.push_back(l);
      add_flows(link);
    }
  }
}

// `flows` have one priority and come by limit, smallest first.
void FlowNetwork::share_out(std::span<FlowId> flows) {
  const auto is_later = [](const LinkShare& a, const LinkShare& b) {
    return std::tuple(a.share, a.link) > std::tuple(b.share, b.link);
  };
  for (const LinkId l : tight_links_) rests_[l].unfrozen = 0;
  for (const FlowId id : flows) {
    new_rates_[id] = -1;
    for (const LinkId l : path_links(flows_[id].path)) ++rests_[l].unfrozen;
  }
  link_heap_.clear();
  for (const LinkId l : tight_links_)
    if (rests_[l].unfrozen > 0) link_heap_.push_back({rests_[l].left / rests_[l].unfrozen, l});
  std::make_heap(link_heap_.begin(), link_heap_.end(), is_later);
  const std::uint8_t priority = flows.empty() ? std::uint8_t{0} : flows_[flows[0]].priority;
  std::size_t next = 0;
  while (true) {
    while (next < flows.size() && new_rates_[flows[next]] >= 0) ++next;
    if (next == flows.size()) return;
    // Shares only grow while flows are frozen at less, so an old entry is at worst too early.
    while (!link_heap_.empty()) {
      const LinkShare top = link_heap_.front();
      const Rest& rest = rests_[top.link];
      const double share = rest.unfrozen > 0 ? rest.left / rest.unfrozen : 0;
      if (rest.unfrozen > 0 && share <= top.share) break;
      std::pop_heap(link_heap_.begin(), link_heap_.end(), is_later);
      link_heap_.pop_back();
      if (rest.unfrozen == 0) continue;
      link_heap_.push_back({share, top.link});
      std::push_heap(link_heap_.begin(), link_heap_.end(), is_later);
    }
    if (link_heap_.empty() || flows_[flows[next]].limit <= link_heap_.front().share) {
      freeze(flows[next], flows_[flows[next]].limit);
      continue;
    }
    const LinkShare least = link_heap_.front();
    // What rounding leaves of a link that higher priorities fill is nothing.
    const double share = least.share > links_[least.link].capacity * 1e-9 ? least.share : 0;
    for (const Use& use : links_[least.link].flows)
      if (flows_[use.flow].priority == priority && new_rates_[use.flow] < 0) freeze(use.flow, share);
  }
}

void FlowNetwork::freeze(FlowId id, double rate) {
  new_rates_[id] = rate;
  for (const LinkId l : path_links(flows_[id].path)) {
    Rest& rest = rests_[l];
    rest.left = std::max(0.0, rest.left - rate);
    --rest.unfrozen;
  }
}

}  // namespace overtake
