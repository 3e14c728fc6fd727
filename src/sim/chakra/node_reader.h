#pragma once
// Reads the nodes of Chakra files, and says which lane and which transfer each belongs to.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/chakra/draft.h"
#include "sim/chakra/nodes.h"

namespace overtake::chakra {

// Takes in file after file, of ranks 0, 1, ...
class NodeReader {
 public:
  void read(const std::string& path, std::string_view content);
  Nodes finish();

 private:
  using LaneKey = std::array<std::int64_t, 4>;  // in the order of lanes in the plan

  // Of a file: what its collectives without a comm_type are to be.
  struct Unsaid {
    std::size_t count = 0;
    int innermost = 0;         // layer_of_pytorch() of their names, at most
    bool has_kernels = false;  // the file has transfers of the device, too
  };

  void read_nodes(WireReader stream);
  Draft next_node(WireReader& stream);
  void settle(Draft& draft, const Unsaid& unsaid);
  void add_notes();
  void read_process_groups(std::string_view values);
  void complete_groups();
  void take(Draft& draft);
  void take_transfer(Draft& draft);
  std::uint32_t lane_of(const Draft& draft, bool is_transfer);
  LayerId layer_of(std::string_view name);

  Nodes out_;
  std::map<LaneKey, std::uint32_t> lanes_;
  std::vector<LayerId> layers_;  // by StringId
  std::map<Group, std::uint32_t> groups_;
  std::size_t launches_ = 0, derived_ = 0, replayed_ = 0;  // nodes of which something was assumed
  // Of the file at hand.
  std::uint16_t rank_ = 0;
  bool is_ours_ = false;
  std::size_t first_transfer_ = 0;
  std::map<std::string, std::uint32_t, std::less<>> group_names_;  // Transfer::group until the file has been read
  std::map<std::string, std::vector<std::uint32_t>, std::less<>> process_groups_;
};

}  // namespace overtake::chakra
