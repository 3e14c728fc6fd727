#pragma once
// Sizes, counts and durations as people write them.

#include <cstdint>
#include <string>
#include <string_view>

namespace overtake {

std::string format_bytes(std::int64_t bytes);  // "512 B", "1.21 GiB"
std::string format_count(std::int64_t count);  // "999", "25.6 K", "25.6 M", "1.50 G"
std::string format_duration(double seconds);   // "350 ns", "1.23 ms", "42.0 s", "3 min 05 s", "2 h 07 min"

// Bytes from "100000", "512MiB", "2G", "1.5 GB". K, M, G, T alone or with "iB" are powers of 1024, with "B" powers of
// 1000; upper and lower case are the same. Anything else is a user error that begins with `where` ("--memory").
std::int64_t parse_bytes(std::string_view text, std::string_view where);

}  // namespace overtake
