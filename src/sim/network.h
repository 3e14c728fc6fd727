#pragma once
// Flows over shared links. Every moment each flow has its max-min fair share: no flow can get more without one that has
// no more getting less. A higher priority takes its shares first. Time is whole nanoseconds.
//
// Shares are found again only where they can change: from the links a flow came to or left, through links that cannot
// give all their flows what these could take ("tight"). A flow that meets no tight link costs O(log n).

#include <cstdint>
#include <span>
#include <vector>

#include "overtake/cluster.h"
#include "sim/events.h"

namespace overtake {

using LinkId = std::uint32_t;
using PathId = std::uint32_t;
using FlowId = std::uint32_t;  // used again when the flow has arrived
inline constexpr std::int64_t kNever = INT64_MAX;

struct FlowOptions {
  std::uint64_t tag = 0;       // comes back in the reports
  double bytes_per_ns = 1e18;  // never faster than this
  std::int64_t extra_latency_ns = 0;
  std::uint8_t priority = 0;  // higher first
};

enum class FlowProgress : std::uint8_t {
  sent,     // the last byte left: the links are free again
  arrived,  // the last byte is there
  both      // at once, on a path without latency
};
struct FlowReport {
  std::uint64_t tag = 0;
  FlowId flow = 0;
  FlowProgress progress = FlowProgress::sent;
};

class FlowNetwork {
 public:
  explicit FlowNetwork(const std::vector<DirectedLink>& links);

  // A flow uses all links of its path at one rate. A path may be a tree: the copies of a multicast, the legs of a
  // reduction in a switch. `latency_ns` is from the first byte's start to its arrival.
  PathId add_path(std::vector<LinkId> links, std::int64_t latency_ns);
  PathId add_path(std::vector<LinkId> links);  // the latency is the sum over the links

  // Times given never go back.
  FlowId start(std::int64_t now, PathId path, std::int64_t bytes, const FlowOptions& options);
  void set_bandwidth(std::int64_t now, LinkId link, double bytes_per_s);  // zero stops its flows

  // When to call advance() next; kNever when no flow moves. It may find nothing then: the end of a flow that was slowed
  // down is moved only when the old one comes.
  std::int64_t next_time();
  // What happened until `now`, which is not after next_time(). Flows started in answer may have more at `now`.
  std::span<const FlowReport> advance(std::int64_t now);

  double flow_rate(FlowId flow);  // bytes/s
  double link_rate(LinkId link);  // bytes/s over all its flows
  double bandwidth(LinkId link) const { return links_[link].capacity * 1e9; }
  double path_bandwidth(PathId path) const;  // bytes/s of its narrowest link
  std::int64_t path_latency_ns(PathId path) const { return paths_[path].latency_ns; }
  std::span<const LinkId> path_links(PathId path) const;
  std::int64_t link_bytes(LinkId link) const { return links_[link].bytes; }  // of all flows ever started on it
  std::uint64_t event_count() const { return events_; }                      // starts and arrivals of flows

 private:
  struct Use {
    FlowId flow;
    std::uint32_t hop;
  };
  struct alignas(64) Link {
    double capacity = 0;  // bytes/ns
    double demand = 0;    // sum of its flows' limits
    std::int64_t bytes = 0;
    std::vector<Use> flows;
    std::uint32_t mark = 0;  // of the search that saw it last
    bool is_dirty = false;

    bool is_tight() const { return demand > capacity * (1 + 1e-9); }
  };
  // Of a link, while shares are found.
  struct Rest {
    double left = 0;             // bytes/ns that are not given away yet
    std::uint32_t unfrozen = 0;  // flows of the present priority without a share yet
  };
  struct Path {
    std::uint32_t first = 0, count = 0;  // in path_links_
    std::int64_t latency_ns = 0;
  };
  struct Flow {
    double remaining = 0;  // bytes, at updated_ns
    double rate = 0;       // bytes/ns
    double limit = 0;      // of itself: its path's narrowest link, and what it was started with
    std::int64_t updated_ns = 0;
    std::int64_t end_ns = 0;  // of sending, at this rate
    std::int64_t due_ns = 0;  // not after end_ns
    std::int64_t latency_ns = 0;
    std::uint64_t tag = 0;
    double own_limit = 0;  // what it was started with
    PathId path = 0;
    std::uint32_t places = 0;  // in places_: where it stands in the list of each of its links
    std::uint32_t stamp = 0;   // events with another are of the past
    std::uint32_t mark = 0;
    std::uint8_t priority = 0;
    bool is_sending = false;
    bool is_due = false;  // an event for it is in the queue, at due_ns or when it arrives
  };

  void join_links(FlowId id);
  void leave_links(FlowId id);
  void make_dirty(LinkId link);
  double limit_of(const Flow& flow) const;
  void set_rate(FlowId id, double rate);
  void move_to(std::int64_t now);
  void push_end(FlowId id);
  void finish_sending(const Event& event);
  void finish(FlowId id, FlowProgress progress);
  void set_due(Flow& flow, bool is_due);

  // network_shares.cpp
  void settle();
  void find_component();
  void share_out(std::span<FlowId> flows);
  void freeze(FlowId id, double rate);

  std::uint32_t take_places(std::uint32_t count);

  std::int64_t now_ = 0;
  std::uint64_t events_ = 0;
  std::size_t due_ = 0;  // flows with an event in the queue
  std::vector<Link> links_;
  std::vector<Rest> rests_;                 // per link
  std::vector<std::int64_t> latencies_ns_;  // per link
  std::vector<Path> paths_;
  std::vector<LinkId> path_links_;
  std::vector<Flow> flows_;
  std::vector<FlowId> free_flows_;
  std::vector<std::uint32_t> places_;
  std::vector<std::vector<std::uint32_t>> free_places_;  // by length
  EventQueue queue_;
  std::vector<FlowReport> reports_;

  std::vector<LinkId> dirty_;
  std::uint32_t mark_ = 0;
  std::vector<LinkId> tight_links_;  // of the component
  std::vector<FlowId> component_;    // flows
  std::vector<double> new_rates_;    // per flow id
  struct LinkShare {
    double share;
    LinkId link;
  };
  std::vector<LinkShare> link_heap_;
};

}  // namespace overtake
