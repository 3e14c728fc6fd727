#pragma once
// The keys of the sections of a cluster file: one table per kind of section, which reading and printing both follow.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "machine/cluster.h"
#include "machine/cluster_units.h"

namespace overtake {

// Where the value of a key is kept, and what it may be.
struct Integer {
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
struct Slots {
  std::vector<DeviceSlot>* value;
};
using FieldPlace = std::variant<Integer, Count, Factor, Text, Slots, LinkKind*, Wiring*, ReductionMode*>;
struct Field {
  std::string_view key;
  FieldPlace place;
  bool is_required = false;
};

std::vector<Field> fields_of(DeviceType& device);
std::vector<Field> fields_of(NodeType& node);
std::vector<Field> fields_of(SwitchType& type);
std::vector<Field> fields_of(LinkType& link);

// "NODE/NAME", or "NAME" outside nodes.
std::string path_of(const std::string& node, const std::string& name);

}  // namespace overtake
