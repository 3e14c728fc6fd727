#include <gtest/gtest.h>

#include <limits>

#include "dataset_samples.h"
#include "npy_writer.h"

namespace overtake {
namespace {

class Npy : public ::testing::Test {
 protected:
  // The --data text for these two files.
  std::string spec(const std::string& x, const std::string& y) const {
    return "npy:" + folder_.write("x.npy", x).string() + "," + folder_.write("y.npy", y).string();
  }

  TemporaryFolder folder_;
};

template <class T>
std::vector<T> counted(std::size_t count) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), T{0});
  return values;
}

TEST_F(Npy, SplitsEveryTenthSampleOff) {
  const std::string both =
      spec(npy("<f4", "(20, 2)", counted<float>(40)), npy("<i8", "(20,)", counted<std::int64_t>(20)));
  const auto train = open_dataset(both, Split::train, {.input_dims = {2}, .classes = 20}, 0);
  const auto test = open_dataset(both, Split::test, {.input_dims = {2}, .classes = 20}, 0);
  ASSERT_EQ(train->size(), 18);
  ASSERT_EQ(test->size(), 2);
  EXPECT_EQ(fill(*test, {0, 1}).labels, (std::vector<std::int32_t>{9, 19}));
  EXPECT_EQ(fill(*test, {0, 1}).values, (std::vector<float>{18, 19, 38, 39}));
  std::vector<std::int32_t> expected;
  for (std::int32_t i = 0; i < 20; ++i) {
    if (i % 10 != 9) expected.push_back(i);
  }
  EXPECT_EQ(fill(*train, all_of(*train)).labels, expected);
}

TEST_F(Npy, TakesTestFilesOfTheirOwn) {
  const std::string first = spec(npy("<f4", "(3, 2)", counted<float>(6)), npy("<i4", "(3,)", counted<std::int32_t>(3)));
  const std::string second = folder_.write("xt.npy", npy("<f4", "(1, 2)", counted<float>(2))).string() + "," +
                             folder_.write("yt.npy", npy("<i4", "(1,)", std::vector<std::int32_t>{2})).string();
  const std::string four = first + "," + second;
  EXPECT_EQ(open_dataset(four, Split::train, {}, 0)->size(), 3);
  EXPECT_EQ(open_dataset(four, Split::test, {}, 0)->size(), 1);
  EXPECT_TRUE(says(open_error(first, {}, Split::test), {"3 samples are too few for a test split"}));
}

TEST_F(Npy, ReadsEveryType) {
  const std::string labels = npy("|u1", "(2, 1)", std::vector<std::uint8_t>{1, 0});
  const auto values_of = [&](const std::string& x) {
    return fill(*open_dataset(spec(x, labels), Split::train, {}, 0), {0, 1}).values;
  };
  const std::vector<float> expected{0, 1, 2, 3};
  EXPECT_EQ(values_of(npy("<f4", "(2, 2)", counted<float>(4))), expected);
  EXPECT_EQ(values_of(npy("<f8", "(2, 2)", counted<double>(4))), expected);
  EXPECT_EQ(values_of(npy("<i4", "(2, 2)", counted<std::int32_t>(4))), expected);
  EXPECT_EQ(values_of(npy("<i8", "(2, 2)", counted<std::int64_t>(4))), expected);
}

// As numbers they train another network than as pixels, so the user says which they are.
TEST_F(Npy, BytesAreScaledAsTheUserSays) {
  const std::string both = spec(npy("|u1", "(2, 2)", std::vector<std::uint8_t>{0, 51, 100, 255}),
                                npy("<i8", "(2,)", counted<std::int64_t>(2)));
  EXPECT_TRUE(says(open_error(both, {}), {"x.npy: bytes (uint8)", "`scale 1/255`", "`scale 1`"}));
  const auto values_with = [&](const std::string& scale) {
    return fill(*open_dataset(both, Split::train, {}, 0, {.scale = scale}), {0, 1}).values;
  };
  EXPECT_EQ(values_with("1"), (std::vector<float>{0, 51, 100, 255}));
  EXPECT_EQ(values_with("1/255"), (std::vector<float>{0, 51.0f / 255, 100.0f / 255, 1})) << "to the bit";
  EXPECT_EQ(values_with("-0.5"), (std::vector<float>{0, -25.5f, -50, -127.5f}));
  for (const char* wrong : {"0", "x", "1/0", "1/", "/255", "1/255/2", "nan", "inf", "1e999", " 1"})
    EXPECT_TRUE(
        says(open_error(both, {}, Split::train, {.scale = wrong}), {"`scale " + std::string(wrong) + "`", "1/255"}));
}

TEST_F(Npy, WhatIsConvertedIsSaid) {
  const std::string labels = npy("<i8", "(2,)", counted<std::int64_t>(2));
  const auto notes_of = [&](const std::string& x, DataConversion conversion) {
    std::vector<std::string> notes;
    conversion.note = [&](const std::string& line) { notes.push_back(line); };
    open_dataset(spec(x, labels), Split::train, {.input_dims = {2, 3}, .classes = 2}, 0, conversion);
    return notes;
  };
  EXPECT_TRUE(notes_of(npy("<f4", "(2, 2, 3)", counted<float>(12)), {}).empty());
  EXPECT_EQ(notes_of(npy("<i4", "(2, 2, 3)", counted<std::int32_t>(12)), {}).size(), 1u);
  const auto both = notes_of(npy("<f8", "(2, 3, 2)", counted<double>(12)), {.scale = "1/12", .channels_last = true});
  ASSERT_EQ(both.size(), 1u);
  EXPECT_TRUE(says(both[0], {"x.npy: float64 becomes float32", "multiplied by 1/12", "[3, 2] become [2, 3]"}));
}

TEST_F(Npy, OtherDataIsNotConverted) {
  EXPECT_TRUE(says(open_error("synthetic", {}, Split::train, {.scale = "1/255"}), {"`scale`", "npy", "synthetic"}));
  EXPECT_TRUE(says(open_error("fashion-mnist", {}, Split::train, {.channels_last = true}), {"`channels_last`", "npy"}));
  const std::string tokens =
      spec(npy("<i8", "(2, 3)", counted<std::int64_t>(6)), npy("<i8", "(2, 3)", counted<std::int64_t>(6)));
  EXPECT_TRUE(says(open_error(tokens, language_form(3), Split::train, {.scale = "2"}), {"`scale`", "tokens"}));
}

TEST_F(Npy, ImagesBecomeChannelsLast) {
  const std::string labels = npy("<i8", "(2,)", std::vector<std::int64_t>{0, 1});
  const SampleForm wanted{.input_dims = {3, 2, 4}, .classes = 2};
  const auto first =
      open_dataset(spec(npy("<f4", "(2, 3, 2, 4)", counted<float>(48)), labels), Split::train, wanted, 0);
  const auto values = fill(*first, {1}).values;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t p = 0; p < 8; ++p) EXPECT_EQ(values[p * 3 + c], static_cast<float>(24 + c * 8 + p));
  }
}

// Only where the user says so: by its dimensions alone, [4, 4] and [3, 3, 3] could be either.
TEST_F(Npy, ChannelsLastIsTurnedWhereAskedFor) {
  const std::string labels = npy("<i8", "(2,)", std::vector<std::int64_t>{0, 1});
  const SampleForm images{.input_dims = {3, 2, 4}, .classes = 2}, sequences{.input_dims = {4, 4}, .classes = 2};
  const std::string last = spec(npy("<f4", "(2, 2, 4, 3)", counted<float>(48)), labels);
  EXPECT_TRUE(says(open_error(last, images), {"x.npy", "[2, 4, 3]", "[3, 2, 4]", "`channels_last`"}));
  const auto turned = open_dataset(last, Split::train, images, 0, {.channels_last = true});
  EXPECT_EQ(turned->form().input_dims, images.input_dims);
  const auto same = fill(*turned, {1}).values;
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(same[i], static_cast<float>(24 + i)) << "images lie so in memory";

  const std::string square = spec(npy("<f4", "(2, 4, 4)", counted<float>(32)), labels);
  const auto as_given = fill(*open_dataset(square, Split::train, sequences, 0), {1}).values;
  const auto moved = fill(*open_dataset(square, Split::train, sequences, 0, {.channels_last = true}), {1}).values;
  for (std::size_t c = 0; c < 4; ++c) {
    for (std::size_t l = 0; l < 4; ++l) {
      EXPECT_EQ(as_given[c * 4 + l], static_cast<float>(16 + c * 4 + l));
      EXPECT_EQ(moved[c * 4 + l], static_cast<float>(16 + l * 4 + c));
    }
  }
  const SampleForm narrow{.input_dims = {3, 4}, .classes = 2};
  EXPECT_TRUE(
      says(open_error(square, narrow, Split::train, {.channels_last = true}), {"`channels_last`", "[4, 4]", "[3, 4]"}));
  const SampleForm one_channel{.input_dims = {1, 4, 4}, .classes = 2};
  EXPECT_TRUE(says(open_error(square, one_channel, Split::train, {.channels_last = true}), {"`channels_last`"}));
}

TEST_F(Npy, WhichDimensionIsTheClassesMustBeCertain) {
  const std::string both =
      spec(npy("<f4", "(2, 3, 4)", counted<float>(24)), npy("<i8", "(2, 4)", counted<std::int64_t>(8)));
  SampleForm wanted{.input_dims = {3, 4}, .label = LabelForm::class_per_position, .label_dims = {4}, .classes = 8};
  EXPECT_EQ(open_dataset(both, Split::train, wanted, 0)->size(), 2);
  wanted.label_dims = {8};
  EXPECT_TRUE(says(open_error(both, wanted), {"y.npy", "[batch, 8, 8]", "[batch, classes, positions, 1]"}));
}

// PyTorch's ignore_index.
TEST_F(Npy, LabelsMayBeLeftOut) {
  const std::string x = npy("<i8", "(2, 3)", counted<std::int64_t>(6));
  const auto data = open_dataset(spec(x, npy("<i8", "(2, 3)", std::vector<std::int64_t>{-100, 4, 5, 0, -100, 1})),
                                 Split::train, language_form(3, 6), 0);
  EXPECT_EQ(fill(*data, {0, 1}).labels, (std::vector<std::int32_t>{-100, 4, 5, 0, -100, 1}));
  const std::string none = spec(x, npy("<i8", "(2, 3)", std::vector<std::int64_t>(6, -100)));
  EXPECT_TRUE(says(open_error(none, language_form(3, 6)), {"y.npy: all labels are -100"}));
  const std::string other = spec(x, npy("<i8", "(2, 3)", std::vector<std::int64_t>{-100, 4, 5, 0, -1, 1}));
  EXPECT_TRUE(says(open_error(other, language_form(3, 6)), {"y.npy: labels from -1 to 5", "-100"}));
  EXPECT_TRUE(says(
      open_error(spec(npy("<i8", "(2, 3)", std::vector<std::int64_t>{-100, 4, 5, 0, 1, 1}), x), language_form(3, 6)),
      {"x.npy: tokens from -100"}));
}

TEST_F(Npy, HoldsTargetsAndTokens) {
  const auto targets =
      open_dataset(spec(npy("<f4", "(2, 2)", counted<float>(4)), npy("<f8", "(2, 3)", counted<double>(6))),
                   Split::train, {.input_dims = {2}, .label = LabelForm::targets, .label_dims = {3}}, 0);
  EXPECT_EQ(fill(*targets, {1, 0}).targets, (std::vector<float>{3, 4, 5, 0, 1, 2}));
  const auto tokens =
      open_dataset(spec(npy("<i8", "(2, 3)", counted<std::int64_t>(6)), npy("<i8", "(2, 3)", counted<std::int64_t>(6))),
                   Split::train, language_form(3, 100), 0);
  EXPECT_EQ(fill(*tokens, {1}).tokens, (std::vector<std::int32_t>{3, 4, 5}));
  EXPECT_EQ(fill(*tokens, {1}).labels, (std::vector<std::int32_t>{3, 4, 5}));
  EXPECT_EQ(tokens->form().vocabulary, 100);
}

TEST_F(Npy, UnfitContentIsAUserError) {
  const std::string good_x = npy("<f4", "(2, 2)", counted<float>(4));
  const std::string good_y = npy("<i8", "(2,)", std::vector<std::int64_t>{0, 1});
  const SampleForm wanted{.input_dims = {2}, .classes = 2};
  EXPECT_EQ(open_dataset(spec(good_x, good_y), Split::train, wanted, 0)->size(), 2);
  const auto error = [&](const std::string& x, const std::string& y) { return open_error(spec(x, y), wanted); };

  EXPECT_TRUE(says(error(good_x, npy("<i8", "(3,)", counted<std::int64_t>(3))),
                   {"y.npy: shape (3) does not fit", "shape (2, 2)", "2 samples"}));
  EXPECT_TRUE(says(error(good_x, npy("<i8", "(2,)", std::vector<std::int64_t>{0, 2})), {"class of 3", "class of 2"}));
  EXPECT_TRUE(
      says(error(good_x, npy("<i8", "(2,)", std::vector<std::int64_t>{0, -1})), {"y.npy: labels from -1 to 0"}));
  EXPECT_TRUE(says(error(good_x, npy("<i8", "(2,)", std::vector<std::int64_t>{0, 1ll << 40})), {"counted from 0"}));
  EXPECT_TRUE(says(error(good_x, npy("<f4", "(2,)", counted<float>(2))), {"does not fit", "targets"}));
  EXPECT_TRUE(says(error(npy("<f4", "(2, 3)", counted<float>(6)), good_y), {"[3]", "[2]"}));
  EXPECT_TRUE(says(error(npy("<f4", "(4,)", counted<float>(4)), good_y), {"x.npy: shape (4) is no batch of samples"}));
  EXPECT_TRUE(says(error(npy("<f4", "(0, 2)", std::vector<float>{}), good_y), {"x.npy: shape (0, 2) is no batch"}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(
      says(error(npy("<f4", "(2, 2)", std::vector<float>{0, 1, nan, 0}), good_y), {"x.npy: sample 1", "finite"}));
  EXPECT_TRUE(says(open_error(spec(good_x, good_y), language_form(2)), {"x.npy: tokens must be whole numbers"}));
}

TEST_F(Npy, DamagedFilesAreUserErrors) {
  const std::string good_x = npy("<f4", "(2, 2)", counted<float>(4));
  const std::string good_y = npy("<i8", "(2,)", std::vector<std::int64_t>{0, 1});
  const auto error = [&](const std::string& x) { return open_error(spec(x, good_y), {}); };
  for (std::size_t size = 0; size < good_x.size(); ++size) {
    EXPECT_TRUE(says(error(good_x.substr(0, size)), {"x.npy: ", "; "})) << size;
  }
  EXPECT_TRUE(says(error(good_x + "x"), {"shape (2, 2) needs 16 bytes and the file has 17"}));
  EXPECT_TRUE(says(error("PK\x03\x04 a zip archive"), {"x.npy: no npy file"}));
  EXPECT_TRUE(says(error(npy("<f4", "(2, 2)", counted<float>(4), "True")), {"not in C order", "ascontiguousarray"}));
  EXPECT_TRUE(says(error(npy(">f4", "(2, 2)", counted<float>(4))), {"elements of type '>f4'", "astype"}));
  EXPECT_TRUE(says(error(npy("<c8", "(2, 2)", counted<double>(4))), {"elements of type '<c8'"}));
  EXPECT_TRUE(says(error(npy("<f4", "(2, -2)", counted<float>(4))), {"no shape"}));
  EXPECT_TRUE(says(error(npy("<f4", "[2, 2]", counted<float>(4))), {"no shape"}));
  EXPECT_TRUE(says(error(npy("<f4", "(4611686018427387904, 4)", counted<float>(4))), {"more bytes than", "has 16"}));
}

TEST_F(Npy, BadSpecsAreUserErrors) {
  for (const char* text : {"npy", "npy:", "npy:x.npy", "npy:x.npy,", "npy:a,b,c", "npy:a,b,c,d,e"}) {
    EXPECT_TRUE(says(open_error(text, {}), {"`data ", "file names", "npy:X.npy,Y.npy"})) << text;
  }
  EXPECT_TRUE(says(open_error("npy:/none/x.npy,/none/y.npy", {}), {"/none/x.npy: cannot read"}));
}

}  // namespace
}  // namespace overtake
