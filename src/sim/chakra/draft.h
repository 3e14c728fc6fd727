#pragma once
// A node of a Chakra file as it is read, before it is known what becomes of it.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/wire.h"
#include "sim/chakra/format.h"
#include "sim/chakra/nodes.h"

namespace overtake::chakra {

inline constexpr std::string_view kAdvice = "it is damaged, or no Chakra execution trace: convert or fetch it again";

// Views of the file.
struct Draft {
  Node node;
  std::string_view name, group;
  std::string_view input_values, input_types;  // as Python prints lists
  NodeType type = NodeType::invalid;
  std::optional<Kind> kind;
  std::int64_t stream = -1, thread = -1, lane = -1;
  std::int64_t comm_type = -1, comm_size = -1, source = -1, destination = -1, tag = 0, priority = 0, collective = -1;
  bool is_cpu = false, is_asynchronous = false, has_place = false, involves_all = true, has_own_times = false;

  bool communicates() const { return type == NodeType::send || type == NodeType::recv || type == NodeType::collective; }
};

// Appends what the node depends on. With `is_ours`, attributes of ours count.
Draft read_draft(WireReader message, std::uint16_t rank, bool is_ours, std::vector<std::uint64_t>& dependencies);

}  // namespace overtake::chakra
