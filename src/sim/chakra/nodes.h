#pragma once
// The nodes of a Chakra trace, as they stand in its files.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "overtake/graph.h"

namespace overtake::chakra {

struct Node {
  std::uint64_t id = 0;
  std::int64_t start_ns = -1;  // -1: not recorded
  std::int64_t place = 0;      // in its lane, as far as the file says: goes before the time of start
  std::int64_t duration_ns = 0;
  std::int64_t operations = 0;
  std::int64_t bytes = 0;
  std::uint32_t first_dependency = 0;  // of Nodes::dependencies: those of control, then those on data
  std::uint32_t controls = 0;
  std::uint32_t dependencies = 0;  // all together
  std::uint32_t lane = 0;
  std::uint32_t transfer = kNone;  // index in Nodes::transfers
  LayerId layer = 0;
  AttrsId attrs = 0;  // of what is no transfer
  std::uint32_t micro_batch = 0;
  std::uint16_t rank = 0;
  Kind kind = Kind::forward;
};

// What a node that communicates says of it.
struct Transfer {
  std::uint32_t node = 0;
  std::int64_t bytes = 0;  // that its rank puts in, or gets (recv)
  std::int64_t priority = 0;
  std::uint32_t peer = kNone;  // of send and recv
  std::int64_t tag = 0;
  std::int64_t collective = -1;  // its number, in files of ours
  std::uint32_t group = 0;       // of a collective; index in Nodes::groups
};

struct Group {
  std::string name;                  // "": the one of all ranks
  std::vector<std::uint32_t> ranks;  // ascending; empty where no file says
  auto operator<=>(const Group&) const = default;
};

struct LaneOrigin {
  std::uint16_t rank = 0;
  bool is_asynchronous = false;
  bool has_order = false;  // its nodes have places, or times of start
};

struct Nodes {
  Graph graph;                 // names and attributes only
  std::string schedule;        // where the file tells
  bool has_own_times = false;  // in nanoseconds from the start of the step
  std::vector<std::string> files;
  std::vector<Node> nodes;  // by (id, rank): the place of one is its TaskId
  std::vector<std::uint64_t> dependencies;
  std::vector<Transfer> transfers;
  std::vector<Group> groups;
  std::vector<LaneOrigin> lanes;   // in the order they have in the plan
  std::vector<std::string> notes;  // what was assumed, a sentence each

  // The error for what is wrong with a node, naming file and node.
  [[noreturn]] void fail(const Node& node, std::string_view what) const;
};

}  // namespace overtake::chakra
