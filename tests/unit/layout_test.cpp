#include "overtake/layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace overtake {
namespace {

using Dims = std::vector<std::int64_t>;

TEST(Layout, TagsRoundTrip) {
  for (const char* tag : {"", "a", "ab", "abcd", "acdb", "abcde", "aBcd16b", "ABcd16b16a", "Abcde16a", "ABcd8b16a2b",
                          "aBdec8b", "fedcba", "acdb/256", "ab/3"}) {
    EXPECT_EQ(to_string(layout_from_string(tag)), tag);
  }
  EXPECT_EQ(to_string(plain_layout(4)), "abcd");
  EXPECT_EQ(to_string(channels_last_layout()), "acdb");
}

TEST(Layout, EqualityIsByContent) {
  EXPECT_EQ(layout_from_string("acdb"), channels_last_layout());
  EXPECT_EQ(layout_from_string("abcde"), plain_layout(5));
  EXPECT_NE(layout_from_string("aBcd16b"), layout_from_string("aBcd8b"));
  EXPECT_NE(plain_layout(4), channels_last_layout());
  EXPECT_TRUE(is_plain(plain_layout(0)));
  EXPECT_TRUE(is_plain(plain_layout(6)));
  EXPECT_FALSE(is_plain(channels_last_layout()));
  EXPECT_FALSE(is_plain(layout_from_string("Abcd16a")));
}

TEST(Layout, PaddingRoundsUpToTheProductOfTheBlocks) {
  EXPECT_EQ(padded_elements(plain_layout(4), Dims{2, 3, 5, 7}), 210);
  EXPECT_EQ(padded_elements(layout_from_string("aBcd16b"), Dims{2, 3, 5, 7}), 2 * 16 * 5 * 7);
  EXPECT_EQ(padded_elements(layout_from_string("ABcd8b16a2b"), Dims{17, 17, 1, 1}), 32 * 32);
  EXPECT_EQ(padded_elements(plain_layout(0), Dims{}), 1);
}

TEST(Layout, OffsetsOfKnownPlaces) {
  const Dims dims{2, 3, 5, 7};
  EXPECT_EQ(offset_of(plain_layout(4), dims, Dims{1, 2, 3, 4}), ((1 * 3 + 2) * 5 + 3) * 7 + 4);
  EXPECT_EQ(offset_of(channels_last_layout(), dims, Dims{1, 2, 3, 4}), ((1 * 5 + 3) * 7 + 4) * 3 + 2);
  // [1][20/16=1] of [2][32/16=2], then h, w, then 20%16=4 inside the block.
  EXPECT_EQ(offset_of(layout_from_string("aBcd16b"), Dims{2, 20, 5, 7}, Dims{1, 17, 3, 4}),
            (((1 * 2 + 1) * 5 + 3) * 7 + 4) * 16 + 1);
  // OIhw8i16o2i: i = 21 is block 1, (21%16)/2 = 2 of the 8, 21%2 = 1 of the 2.
  EXPECT_EQ(offset_of(layout_from_string("ABcd8b16a2b"), Dims{32, 32, 1, 1}, Dims{19, 21, 0, 0}),
            (1 * 2 + 1) * 256 + 2 * 32 + 3 * 2 + 1);
}

TEST(Layout, OffsetsAreAPermutationOfThePaddedTensor) {
  for (const char* tag : {"abcd", "acdb", "dcba", "aBcd16b", "ABcd4b4a", "ABcd2b4a2b", "bAcd8a"}) {
    const Layout layout = layout_from_string(tag);
    const Dims dims{3, 5, 2, 3};
    const auto padded = padded_dims(layout, dims);
    std::vector<int> hits(static_cast<std::size_t>(padded_elements(layout, dims)));
    for (std::int64_t a = 0; a < padded[0]; ++a) {
      for (std::int64_t b = 0; b < padded[1]; ++b) {
        for (std::int64_t c = 0; c < padded[2]; ++c) {
          for (std::int64_t d = 0; d < padded[3]; ++d) {
            ++hits.at(static_cast<std::size_t>(offset_of(layout, dims, Dims{a, b, c, d})));
          }
        }
      }
    }
    for (const int count : hits) ASSERT_EQ(count, 1) << tag;
  }
}

// [2, 3, 5, 7] in the rows of an image with 8 channels: nothing of the others is touched, and the last row ends with
// us.
TEST(Layout, APitchLeavesGapsBetweenRows) {
  const Layout layout = layout_from_string("acdb/8");
  const Dims dims{2, 3, 5, 7};
  EXPECT_EQ(layout.pitch, 8);
  EXPECT_NE(layout, channels_last_layout());
  EXPECT_FALSE(is_plain(layout_from_string("abcd/8")));
  EXPECT_EQ(padded_dims(layout, dims)[1], 8);
  EXPECT_EQ(padded_elements(layout, dims), (2 * 5 * 7 - 1) * 8 + 3);
  EXPECT_EQ(padded_elements(layout, Dims{0, 3, 5, 7}), 0);
  EXPECT_EQ(offset_of(layout, dims, Dims{1, 2, 3, 4}), ((1 * 5 + 3) * 7 + 4) * 8 + 2);
  EXPECT_EQ(offset_of(layout, dims, Dims{1, 2, 4, 6}) + 1, padded_elements(layout, dims));
  EXPECT_EQ(canonical_layout(layout, dims), layout);
  EXPECT_THROW(padded_dims(layout_from_string("acdb/2"), dims), InternalError);
}

TEST(Layout, CanonicalPutsSingleDimensionsWhereTheyArePlainest) {
  const auto canonical = [](const char* tag, const Dims& dims) {
    return to_string(canonical_layout(layout_from_string(tag), dims));
  };
  EXPECT_EQ(canonical("Acdb16a", {64, 32, 1, 1}), "Abcd16a");
  EXPECT_EQ(canonical("Acdb16a", {64, 32, 3, 3}), "Acdb16a");
  EXPECT_EQ(canonical("dcba", {1, 1, 1, 1}), "abcd");
  EXPECT_EQ(canonical("dbceA16a", {32, 1, 1, 3, 3}), "bcdeA16a");
  EXPECT_EQ(canonical("BAcd16a16b", {16, 48, 1, 1}), "ABcd16a16b");
  EXPECT_EQ(canonical("BAcd16a16b", {32, 48, 1, 1}), "BAcd16a16b");
  EXPECT_EQ(canonical("", {}), "");
}

TEST(Layout, MalformedTagsAreUserErrors) {
  for (const char* tag : {"abd",        "aab",     "abcd16b",  "aBcd",
                          "aBcd16",     "aBcd1b",  "aBcd0b",   "aBcd16e",
                          "aBcd16B",    "a b",     "abcdefg",  "ABcd2a2b2a2b",
                          "aBcd70000b", "16b",     "aBcd16b ", "acdb/",
                          "acdb/0",     "acdb/-8", "acdb/8x",  "acdb/99999999999999999999",
                          "acdB8b/16",  "/8"}) {
    EXPECT_THROW(layout_from_string(tag), UserError) << tag;
  }
}

}  // namespace
}  // namespace overtake
