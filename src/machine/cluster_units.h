#pragma once
// Quantities of a cluster file: exact decimals with a unit, such as "989.4 TFLOP/s", "25 Gb/s", "1.5 us".

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace overtake {

enum class Measure : std::uint8_t { count, bytes, bytes_per_s, bits_per_s, flops, nanoseconds };

// The whole number of base units (bytes, bytes/s, FLOP/s, ns) nearest to the text; nothing where it is no number with a
// unit of that measure, or does not fit. bytes_per_s and bits_per_s read the same units and differ in what is printed.
std::optional<std::int64_t> parse_quantity(std::string_view text, Measure measure);
// In the largest unit that makes the number 1 or more; reads back as the same value.
std::string print_quantity(std::int64_t value, Measure measure);
// The units of a measure for people: "ns, us, ms, s".
std::string unit_list(Measure measure);

}  // namespace overtake
