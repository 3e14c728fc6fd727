#pragma once
// The keys of the sections of a machine file: one table per kind of section, which reading and printing both follow.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/units.h"
#include "overtake/cluster.h"

namespace overtake {

// The two ends of one link.
struct LinkEnds {
  Endpoint from, to;
};

// Where the value of a key is kept, and what it may be.
struct Integer {  // a text with a unit, or a whole number of base units
  std::int64_t* value;
  Measure measure;
  bool may_be_zero = false;
};
struct Count {
  std::int32_t* value;
};
struct Factor {
  double* value;
  double least, most;
};
struct Text {
  std::string* value;
};
struct Slots {  // { gpu = 8, cpu = 2 }
  std::vector<DeviceSlot>* value;
};
struct Levels {  // [{ capacity = "80 GB", bandwidth = "3.35 TB/s" }], outermost first
  std::vector<MemoryLevel>* value;
  const DeviceType* device;
};
struct Pairs {  // ["box/gpu", "leaf"], or a list of such pairs
  std::vector<LinkEnds>* value;
};
struct Ends {  // "box/gpu"
  Endpoint* value;
};
struct Sizes {  // [4, 4, 8]
  std::vector<std::int32_t>* value;
};
using FieldPlace = std::variant<Integer, Count, Factor, Text, Slots, Levels, Pairs, DeviceTarget*, KernelGeneration*,
                                LinkKind*, Wiring*, ReductionMode*, NetworkKind*, Ends, Sizes>;
struct ClusterField {
  std::string_view key;
  FieldPlace place;
  bool is_required = false;
};

std::vector<ClusterField> fields_of(DeviceType& device);
std::vector<ClusterField> fields_of(MemoryLevel& level, const DeviceType& device);
std::vector<ClusterField> fields_of(NodeType& node);
std::vector<ClusterField> fields_of(SwitchType& type);
std::vector<ClusterField> fields_of(LinkType& link,
                                    std::vector<LinkEnds>& pairs);  // one section may be of several links

std::vector<ClusterField> fields_of(TorusType& torus);

// "NODE/NAME", or "NAME" outside nodes; with ".3" behind it for the fourth of them.
std::string path_of(const std::string& node, const std::string& name);
std::string path_of(const Endpoint& end);

}  // namespace overtake
