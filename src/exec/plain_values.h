#pragma once
// Values as the host keeps them, row-major without padding, and as a buffer lays them out.

#include <cstddef>
#include <span>

#include "overtake/graph.h"

namespace overtake {

// Bytes of a buffer's values in row-major order.
std::size_t plain_bytes(const Buffer& b);

// Both in host memory; `laid_out` is as large as the buffer with its padding, whose bytes are not touched.
void to_plain(const Buffer& b, std::span<const std::byte> laid_out, std::span<std::byte> plain);
void from_plain(const Buffer& b, std::span<const std::byte> plain, std::span<std::byte> laid_out);

}  // namespace overtake
