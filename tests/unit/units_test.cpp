#include "base/units.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "temporary_folder.h"

namespace overtake {
namespace {

TEST(Units, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1299227607), "1.21 GiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(1000 * 1024), "1000 KiB");
  EXPECT_EQ(format_bytes(-1024), "-1.00 KiB");
  EXPECT_EQ(format_bytes(INT64_MAX), "8192 PiB");
}

TEST(Units, Counts) {
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.00 K");
  EXPECT_EQ(format_count(61706), "61.7 K");
  EXPECT_EQ(format_count(25557032), "25.6 M");
  EXPECT_EQ(format_count(999499), "999 K");
  EXPECT_EQ(format_count(999500), "1.00 M");
  EXPECT_EQ(format_count(1500000000), "1.50 G");
}

TEST(Units, Durations) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(350e-9), "350 ns");
  EXPECT_EQ(format_duration(0.00123), "1.23 ms");
  EXPECT_EQ(format_duration(0.9999), "1.00 s");
  EXPECT_EQ(format_duration(42), "42.0 s");
  EXPECT_EQ(format_duration(59.99), "1 min 00 s");
  EXPECT_EQ(format_duration(185.2), "3 min 05 s");
  EXPECT_EQ(format_duration(3599.8), "1 h 00 min");
  EXPECT_EQ(format_duration(7620), "2 h 07 min");
  EXPECT_EQ(format_duration(-0.5), "-500 ms");
}

TEST(Units, ParsesSizes) {
  EXPECT_EQ(parse_bytes("100000", "`memory_cap`"), 100000);
  EXPECT_EQ(parse_bytes("2G", "`memory_cap`"), std::int64_t{2} << 30);
  EXPECT_EQ(parse_bytes("512MiB", "`memory_cap`"), 512 << 20);
  EXPECT_EQ(parse_bytes("512mb", "`memory_cap`"), 512000000);
  EXPECT_EQ(parse_bytes("1.5 GB", "`memory_cap`"), 1500000000);
  EXPECT_EQ(parse_bytes("0.5k", "`memory_cap`"), 512);
  EXPECT_EQ(parse_bytes("0", "`memory_cap`"), 0);
  EXPECT_EQ(parse_bytes("9007199254740993", "`memory_cap`"), 9007199254740993) << "beyond a double's 53 bits";
}

// Every spelling of a size that flags and machine files have taken so far, with the value it had.
TEST(Units, SizesInEverySpelling) {
  constexpr std::int64_t one = 1;
  struct Spelling {
    const char* unit;
    std::int64_t bytes;
  };
  for (const auto& [unit, bytes] :
       {Spelling{"", one}, Spelling{"B", one}, Spelling{"b", one}, Spelling{"k", one << 10}, Spelling{"K", one << 10},
        Spelling{"KiB", one << 10}, Spelling{"kib", one << 10}, Spelling{"KB", 1000}, Spelling{"kB", 1000},
        Spelling{"M", one << 20}, Spelling{"MiB", one << 20}, Spelling{"MB", 1'000'000}, Spelling{"g", one << 30},
        Spelling{"GiB", one << 30}, Spelling{"GB", 1'000'000'000}, Spelling{"T", one << 40}, Spelling{"TIB", one << 40},
        Spelling{"tb", 1'000'000'000'000}}) {
    EXPECT_EQ(parse_bytes(std::string("3") + unit, "x"), 3 * bytes) << unit;
    EXPECT_EQ(parse_bytes(std::string("2.5  ") + unit, "x"), (5 * bytes + 1) / 2) << unit << ", to the nearest";
    EXPECT_EQ(parse_quantity(std::string("0003.") + unit, Measure::bytes), 3 * bytes) << unit;
  }
  EXPECT_EQ(parse_bytes(".5K", "x"), 512);
  EXPECT_EQ(parse_bytes("0.1G", "x"), 107374182);
  EXPECT_EQ(parse_bytes("00000000000000000000000000000000002", "x"), 2);
  EXPECT_EQ(parse_bytes("2.50000000000000000000000000000000000", "x"), 3);
  EXPECT_EQ(parse_bytes("0.0000000000000000000000000000000000025T", "x"), 0);
  EXPECT_EQ(parse_bytes("9223372036854775807", "x"), INT64_MAX);
}

TEST(Units, Quantities) {
  EXPECT_EQ(parse_quantity("989.4 TFLOP/s", Measure::flops), 989'400'000'000'000);
  EXPECT_EQ(parse_quantity("3 us", Measure::nanoseconds), 3000);
  EXPECT_EQ(parse_quantity("0.5ns", Measure::nanoseconds), 1) << "to the nearest";
  EXPECT_EQ(parse_quantity("10 Gb/s", Measure::bytes_per_s), 1'250'000'000);
  EXPECT_EQ(parse_quantity("1.25 GB/s", Measure::bits_per_s), 1'250'000'000);
  EXPECT_EQ(parse_quantity("4096", Measure::count), 4096);
  EXPECT_EQ(parse_quantity("4096 entries", Measure::count), 4096);
  EXPECT_EQ(parse_quantity("9223372036.854775807 GB/s", Measure::bytes_per_s), INT64_MAX);
  EXPECT_EQ(parse_quantity("1.2345678901234567890123456789 PFLOP/s", Measure::flops), 1'234'567'890'123'457);
  for (const char* wrong : {"", "GB/s", "-1 GB/s", "1e3 GB/s", "1 gb/s", "1 GB", "1..5 GB/s", "99999999999 TB/s", "1",
                            "1 GB/s ", "99999999999999999999999 b/s"})
    EXPECT_FALSE(parse_quantity(wrong, Measure::bytes_per_s)) << wrong;
  for (const char* wrong : {"700", "700 NS", "1 min"})
    EXPECT_FALSE(parse_quantity(wrong, Measure::nanoseconds)) << wrong;
  EXPECT_FALSE(parse_quantity("1 tflop/s", Measure::flops)) << "only sizes may be in lower case: rates have b and B";
}

TEST(Units, PrintedQuantitiesReadBack) {
  EXPECT_EQ(print_quantity(3'125'000'000, Measure::bits_per_s), "25 Gb/s");
  EXPECT_EQ(print_quantity(16ll << 30, Measure::bytes), "16 GiB");
  EXPECT_EQ(print_quantity(80'000'000'000, Measure::bytes), "80 GB");
  EXPECT_EQ(print_quantity(5'500'000'000'000, Measure::bytes_per_s), "5.5 TB/s") << "10^12 is no power of 1024";
  EXPECT_EQ(print_quantity(989'400'000'000'000, Measure::flops), "989.4 TFLOP/s");
  EXPECT_EQ(print_quantity(1500, Measure::nanoseconds), "1.5 us");
  EXPECT_EQ(print_quantity(0, Measure::nanoseconds), "0 ns");
  EXPECT_EQ(print_quantity(4096, Measure::count), "4096");
  for (const Measure measure : {Measure::count, Measure::bytes, Measure::bytes_per_s, Measure::bits_per_s,
                                Measure::flops, Measure::nanoseconds})
    for (const std::int64_t value : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{1024},
                                     std::int64_t{1'234'567'891}, std::int64_t{1} << 40, INT64_MAX})
      EXPECT_EQ(parse_quantity(print_quantity(value, measure), measure), value) << print_quantity(value, measure);
}

TEST(Units, TheListOfUnitsIsOfThoseThatAreRead) {
  EXPECT_EQ(unit_list(Measure::nanoseconds), "ns, us, ms, s");
  EXPECT_EQ(unit_list(Measure::bytes), "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB");
  EXPECT_TRUE(says(unit_list(Measure::bits_per_s), {"Gb/s", "GB/s"}));
}

TEST(Units, OtherSizesAreUserErrors) {
  for (const char* text :
       {"", ".", "G", "2X", "-1", "2GG", "1e3", "nan", "inf", "12 34", "99999999T", " 2G", "9223372036854775808"}) {
    EXPECT_TRUE(says(user_error([&] { parse_bytes(text, "`memory_cap`"); }),
                     {"`memory_cap`: not a size in bytes: \"" + std::string(text) + "\"", "512MiB"}))
        << text;
  }
}

}  // namespace
}  // namespace overtake
