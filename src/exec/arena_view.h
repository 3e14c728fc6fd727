#pragma once
// Where the buffers of plans lie: what lives across steps in memory that outlives an executor, the rest in its own.

#include <cstddef>
#include <cstdint>

namespace overtake {

struct ArenaView {
  std::byte* persistent = nullptr;
  std::byte* own = nullptr;
  std::uint64_t persistent_bytes = 0;  // offsets below it are of what lives across steps

  std::byte* at(std::uint64_t offset) const {
    return offset < persistent_bytes ? persistent + offset : own + (offset - persistent_bytes);
  }
};

}  // namespace overtake
