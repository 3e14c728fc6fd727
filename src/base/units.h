#pragma once
// Sizes, rates, counts and durations as people write them, and as they read them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace overtake {

// Rounded, for people: they do not read back.
std::string format_bytes(std::int64_t bytes);  // "512 B", "1.21 GiB"
std::string format_count(std::int64_t count);  // "999", "25.6 K", "25.6 M", "1.50 G"
std::string format_duration(double seconds);   // "350 ns", "1.23 ms", "42.0 s", "3 min 05 s", "2 h 07 min"

// What a quantity measures. bytes_per_s and bits_per_s read the same units and differ in those they are printed in.
enum class Measure : std::uint8_t { count, bytes, bytes_per_s, bits_per_s, flops, nanoseconds };

// The whole number of base units (bytes, bytes/s, FLOP/s, ns) nearest to a decimal number with a unit, such as
// "989.4 TFLOP/s", "25Gb/s" or "1.5 us"; nothing where the text is no such number, or does not fit. Sizes alone may be
// without a unit ("100000"), in upper or lower case ("512mib"), and short: K, M, G and T are powers of 1024, as in
// "2G".
std::optional<std::int64_t> parse_quantity(std::string_view text, Measure measure);
// In the largest unit that makes the number 1 or more; reads back as the same value.
std::string print_quantity(std::int64_t value, Measure measure);
// The units of a measure for people: "ns, us, ms, s".
std::string unit_list(Measure measure);

// A quantity of bytes; anything else is a user error that begins with `where` ("`memory_cap`").
std::int64_t parse_bytes(std::string_view text, std::string_view where);

}  // namespace overtake
