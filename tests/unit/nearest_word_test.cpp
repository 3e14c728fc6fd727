#include "base/nearest_word.h"

#include <gtest/gtest.h>

namespace overtake {
namespace {

TEST(NearestWord, CountsLettersAndSwaps) {
  EXPECT_EQ(word_distance("", ""), 0u);
  EXPECT_EQ(word_distance("", "abc"), 3u);
  EXPECT_EQ(word_distance("train", "train"), 0u);
  EXPECT_EQ(word_distance("trian", "train"), 1u);
  EXPECT_EQ(word_distance("lrr", "lr"), 1u);
  EXPECT_EQ(word_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(word_distance("sitting", "kitten"), 3u);
}

TEST(NearestWord, IsOnlySaidOfWordsThatAreLikeIt) {
  const std::vector<std::string> known = {"train", "launch", "bench", "skip_pass", "resnet-18", "resnet-34"};
  EXPECT_EQ(nearest_word("trian", known), "train");
  EXPECT_EQ(nearest_word("TRAIN", known), "train");
  EXPECT_EQ(nearest_word("skip-pas", known), "skip_pass");
  EXPECT_EQ(nearest_word("resnet", known), "resnet-18") << "a beginning";
  EXPECT_EQ(nearest_word("resnet34", known), "resnet-34");
  EXPECT_EQ(nearest_word("xyzzy", known), "");
  EXPECT_EQ(nearest_word("", known), "");
  EXPECT_EQ(nearest_word("train", {}), "");
  EXPECT_EQ(nearest_word(std::string(100'000, 'a'), known), "");
  EXPECT_EQ(did_you_mean("trian", known), "; did you mean train?");
  EXPECT_EQ(did_you_mean("xyzzy", known), "");
}

}  // namespace
}  // namespace overtake
