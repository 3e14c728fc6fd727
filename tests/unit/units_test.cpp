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
  EXPECT_EQ(parse_bytes("100000", "--memory"), 100000);
  EXPECT_EQ(parse_bytes("2G", "--memory"), std::int64_t{2} << 30);
  EXPECT_EQ(parse_bytes("512MiB", "--memory"), 512 << 20);
  EXPECT_EQ(parse_bytes("512mb", "--memory"), 512000000);
  EXPECT_EQ(parse_bytes("1.5 GB", "--memory"), 1500000000);
  EXPECT_EQ(parse_bytes("0.5k", "--memory"), 512);
  EXPECT_EQ(parse_bytes("0", "--memory"), 0);
  EXPECT_EQ(parse_bytes("9007199254740993", "--memory"), 9007199254740993) << "beyond a double's 53 bits";
}

TEST(Units, OtherSizesAreUserErrors) {
  for (const char* text :
       {"", "G", "2X", "-1", "2GG", "1e3", "nan", "inf", "12 34", "99999999T", " 2G", "9223372036854775808"}) {
    EXPECT_TRUE(says(user_error([&] { parse_bytes(text, "--memory"); }),
                     {"--memory: not a size in bytes: \"" + std::string(text) + "\"", "512MiB"}))
        << text;
  }
}

}  // namespace
}  // namespace overtake
