#pragma once
// An attribute of a Chakra node, whatever type of number it was written as.

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/wire.h"

namespace overtake::chakra {

// Views of the file.
struct Attribute {
  std::string_view name;
  std::optional<std::int64_t> integer;  // of any number; of a list of truths: whether all are
  std::string_view text;
};

Attribute read_attribute(WireReader message);

}  // namespace overtake::chakra
