#pragma once
// One level of the memories of a device: its main memory, or one closer to its arithmetic.

#include <cstdint>
#include <string>

namespace overtake {

struct MemoryLevel {
  std::string name{};            // "HBM", "L2"; may be empty
  std::int64_t bytes = 0;        // 0: not known
  std::int64_t bytes_per_s = 0;  // 0: not known
  bool operator==(const MemoryLevel&) const = default;
};

}  // namespace overtake
