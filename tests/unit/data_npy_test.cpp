#include <gtest/gtest.h>

#include <limits>

#include "dataset_samples.h"

namespace overtake {
namespace {

template <class T>
std::string npy(const std::string& descr, const std::string& shape, const std::vector<T>& values,
                const std::string& fortran = "False") {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
  header.resize((header.size() + 10 + 64) / 64 * 64 - 10, ' ');
  std::string content = std::string("\x93NUMPY\x01\x00", 8);
  content += static_cast<char>(header.size() % 256);
  content += static_cast<char>(header.size() / 256);
  content += header;
  content.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return content;
}

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
  const auto pixels = values_of(npy("|u1", "(2, 2)", std::vector<std::uint8_t>{0, 51, 102, 255}));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(pixels[i], std::vector<double>({0, 0.2, 0.4, 1})[i], 1e-7);
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
  const auto last = open_dataset(spec(npy("<f4", "(2, 2, 4, 3)", counted<float>(48)), labels), Split::train, wanted, 0);
  EXPECT_EQ(last->form().input_dims, wanted.input_dims);
  const auto same = fill(*last, {1}).values;
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(same[i], static_cast<float>(24 + i));
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
