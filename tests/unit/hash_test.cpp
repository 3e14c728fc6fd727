#include "base/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>

namespace overtake {
namespace {

std::uint64_t hash_of(std::string_view text, std::uint64_t seed = 0) {
  return hash64(std::as_bytes(std::span(text)), seed);
}

// Values that other implementations of XXH64 give, python's xxhash among them.
TEST(Hash, GivesThePublishedValues) {
  EXPECT_EQ(hash_of(""), 0xEF46DB3751D8E999ull);
  EXPECT_EQ(hash_of("a"), 0xD24EC4F1A98C6E5Bull);
  EXPECT_EQ(hash_of("abc"), 0x44BC2CF5AD770999ull);
  EXPECT_EQ(hash_of("message digest"), 0x066ED728FCEEB3BEull);
  EXPECT_EQ(hash_of("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            0xE04A477F19EE145Dull);
  std::string counted;
  for (char c = 0; c < 100; ++c) counted += c;
  EXPECT_EQ(hash_of(counted, 7), 0x80653E7E9B887CDDull);
  EXPECT_EQ(hash_of(std::string_view(counted).substr(0, 31), 7), 0x0BDBBCAEAD6C6E56ull);
}

std::string sample_text(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(i * i * 7 + 13 * i);
  return text;
}

TEST(Hash, DoesNotDependOnTheCuts) {
  const std::string text = sample_text(1000);
  const std::uint64_t whole = hash_of(text, 5);
  for (std::size_t piece = 1; piece < 100; ++piece) {
    Hash64 hash(5);
    for (std::size_t at = 0; at < text.size(); at += piece) hash.add(std::string_view(text).substr(at, piece));
    EXPECT_EQ(hash.value(), whole) << "pieces of " << piece;
  }
}

TEST(Hash, ValueCanBeAskedInBetween) {
  const std::string text = sample_text(200);
  Hash64 hash;
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(hash.value(), hash_of(std::string_view(text).substr(0, i)));
    hash.add(std::string_view(text).substr(i, 1));
  }
}

TEST(Hash, EveryBitCounts) {
  std::string text = sample_text(77);
  std::set<std::uint64_t> seen{hash_of(text)};
  double flipped = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = text;
      other[i] = static_cast<char>(other[i] ^ (1 << bit));
      flipped += std::popcount(hash_of(other) ^ hash_of(text));
      EXPECT_TRUE(seen.insert(hash_of(other)).second);
    }
  }
  EXPECT_NEAR(flipped / (77 * 8), 32, 1) << "a changed bit changes half of the hash";
  EXPECT_NE(hash_of(text, 0), hash_of(text, 1));
}

TEST(Hash, PrintsSixteenDigits) {
  EXPECT_EQ(hash_text(0xABCull), "0000000000000abc");
  EXPECT_EQ(hash_text(0xEF46DB3751D8E999ull), "ef46db3751d8e999");
}

TEST(SampledHash, LooksAtTheSizeTheEndsAndBetween) {
  std::vector<std::byte> bytes(std::size_t{8} << 20);
  const std::uint64_t before = sampled_hash64(bytes);
  for (const std::size_t at : {std::size_t{0}, std::size_t{4095}, bytes.size() - 1}) {
    bytes[at] = std::byte{1};
    EXPECT_NE(sampled_hash64(bytes), before) << at;
    bytes[at] = std::byte{0};
  }
  // A change that is as long as the pause between two blocks cannot be missed.
  std::fill_n(bytes.begin() + (3 << 20), (8 << 20) / 255, std::byte{1});
  EXPECT_NE(sampled_hash64(bytes), before);
  EXPECT_NE(sampled_hash64(std::vector<std::byte>(bytes.size() + 1)), before);
  std::vector<std::byte> few(1000);
  const std::uint64_t of_few = sampled_hash64(few);
  for (std::size_t i = 0; i < few.size(); ++i) {
    few[i] = std::byte{1};
    EXPECT_NE(sampled_hash64(few), of_few) << i;
    few[i] = std::byte{0};
  }
}

}  // namespace
}  // namespace overtake
