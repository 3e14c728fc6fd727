#pragma once
// Chakra execution traces (MLCommons), the input of ASTRA-sim and others: a file per rank, PREFIX.0.et, PREFIX.1.et,
// ... What of them becomes what of a plan: docs/chakra.md.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "overtake/plan.h"

namespace overtake {

struct ChakraPlan {
  Plan plan;  // a device per rank; its tasks are blocks and transfers
  // Per task; 0 where the trace does not say.
  std::vector<std::int64_t> durations_ns;
  std::vector<std::int64_t> operations;  // for a roofline, where there is no duration...
  std::vector<std::int64_t> bytes;       // ...and what they touch of memory
  Trace recorded;                        // when tasks ran; no spans where the trace has no times of start
  bool has_times = true;                 // of any computation, or something to compute one from; or there is none
  std::vector<std::string> notes;        // for people: what was assumed, and what is missing, a sentence each
};

// The content of a file of one rank, and what to call it in errors.
struct ChakraFile {
  std::string path;
  std::string content;
};

// `prefix` may also be the path of any one of the files. A user error, naming file and node, for a rank that is
// missing, what is no such trace or is cut short, dependencies in a circle or on a node that is not there, a send
// without its recv, and collectives whose ranks do not fit together. Memory used is bounded by a small multiple of the
// files' size.
ChakraPlan read_chakra(const std::filesystem::path& prefix);
// From memory: of ranks 0, 1, ...
ChakraPlan read_chakra(std::span<const ChakraFile> files);

// Writes one file per device, and PREFIX.groups.json, in the form of ASTRA-sim's --comm-group-configuration, if there
// are collectives of some devices only. Reading them gives the plan again: names, kinds, dependencies, lanes, durations
// and bytes sent, but every computation is a block. Tasks without a span have no time. A user error for a dependency
// between devices that is no transfer.
void write_chakra(const Plan& plan, const Trace& trace, const std::filesystem::path& prefix);

}  // namespace overtake
