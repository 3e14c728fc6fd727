#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

#include "dataset_samples.h"

namespace overtake {
namespace {

TEST(Data, UnknownDataIsAUserError) {
  for (const char* spec : {"", "imagenet", "fashion", "npy2:a,b", ":x"}) {
    EXPECT_TRUE(says(open_error(spec, kImages), {"`data " + std::string(spec) + "`: no such data", "text:FILE"}));
  }
}

namespace fs = std::filesystem;

// ---- Fashion-MNIST

void write_gzip(const fs::path& path, const std::string& content) {
  const gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, content.data(), static_cast<unsigned>(content.size())), static_cast<int>(content.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

std::string idx_header(std::initializer_list<int> numbers) {
  std::string header;
  for (const int number : numbers) {
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(number >> shift);
  }
  return header;
}

constexpr const char* kTrainImages = "train-images-idx3-ubyte.gz";
constexpr const char* kTrainLabels = "train-labels-idx1-ubyte.gz";

// Three images: pixel p of image i is (7 i + p) % 256; labels 9, 0, 4.
class SmallFashion : public ::testing::Test {
 protected:
  SmallFashion() {
    for (int i = 0; i < 3; ++i) {
      for (int p = 0; p < 784; ++p) pixels_ += static_cast<char>((7 * i + p) % 256);
    }
    write_gzip(folder_.path() / kTrainImages, idx_header({0x803, 3, 28, 28}) + pixels_);
    write_gzip(folder_.path() / kTrainLabels, idx_header({0x801, 3}) + std::string("\x09\x00\x04", 3));
  }
  std::string spec() const { return "fashion-mnist:" + folder_.path().string(); }
  std::string error() const { return open_error(spec(), kImages); }

  TemporaryFolder folder_;
  std::string pixels_;
};

TEST_F(SmallFashion, IsNormalised) {
  const auto data = open_dataset(spec(), Split::train, kImages, 0);
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->form().classes, 10);
  const Filled filled = fill(*data, {2, 0});
  EXPECT_EQ(filled.labels, (std::vector<std::int32_t>{4, 9}));
  for (int p = 0; p < 784; ++p) {
    EXPECT_NEAR(filled.values[static_cast<std::size_t>(p)], ((14 + p) % 256 / 255.0 - 0.2860) / 0.3530, 1e-6);
    EXPECT_NEAR(filled.values[static_cast<std::size_t>(784 + p)], (p % 256 / 255.0 - 0.2860) / 0.3530, 1e-6);
  }
}

TEST_F(SmallFashion, FitsFlatModelsAndMoreClassesOnly) {
  EXPECT_EQ(open_dataset(spec(), Split::train, {}, 0)->form().input_dims, (std::vector<std::int64_t>{1, 28, 28}));
  const auto more = open_dataset(spec(), Split::train, {.input_dims = {28, 28}, .classes = 1000}, 0);
  EXPECT_EQ(more->form().input_dims, (std::vector<std::int64_t>{28, 28}));
  EXPECT_EQ(more->form().classes, 1000);
  EXPECT_TRUE(says(open_error(spec(), {.input_dims = {3, 224, 224}, .classes = 1000}),
                   {"`data fashion-mnist:", "does not fit", "[1, 28, 28]", "[3, 224, 224]", "choose"}));
  EXPECT_TRUE(says(open_error(spec(), {.input_dims = {1, 28, 28}, .classes = 5}), {"class of 10", "class of 5"}));
  EXPECT_TRUE(says(open_error(spec(), language_form(28)), {"does not fit", "tokens [28] below 256"}));
}

TEST_F(SmallFashion, MissingIsAUserErrorThatNamesThePackage) {
  EXPECT_TRUE(says(open_error(spec(), kImages, Split::test), {"t10k-images", "apt install dataset-fashion-mnist"}));
}

TEST_F(SmallFashion, TheEnvironmentMovesTheFolderOfAllData) {
  const TemporaryFolder root;
  fs::create_directory_symlink(folder_.path(), root.path() / "fashion-mnist");
  ASSERT_EQ(setenv("OVERTAKE_DATA", root.path().c_str(), 1), 0);
  EXPECT_EQ(open_dataset("fashion-mnist", Split::train, kImages, 0)->size(), 3);
  ASSERT_EQ(setenv("OVERTAKE_DATA", "/nowhere", 1), 0);
  EXPECT_TRUE(says(open_error("fashion-mnist", kImages), {"/nowhere/fashion-mnist/train-images", "apt install"}));
  unsetenv("OVERTAKE_DATA");
}

TEST_F(SmallFashion, DamageIsAUserError) {
  const fs::path images = folder_.path() / kTrainImages, labels = folder_.path() / kTrainLabels;
  const std::string labels_good = idx_header({0x801, 3}) + std::string("\x09\x00\x04", 3);
  write_gzip(labels, idx_header({0x801, 3}) + std::string("\x09\x0A\x04", 3));
  EXPECT_TRUE(says(error(), {kTrainLabels, "damaged: a label is 10", "apt reinstall"}));
  write_gzip(labels, idx_header({0x801, 2}) + std::string("\x09\x00", 2));
  EXPECT_TRUE(says(error(), {"2 labels for 3 images"}));
  write_gzip(labels, idx_header({0x801, 3}) + "\x09");
  EXPECT_TRUE(says(error(), {"it should hold 3 bytes of data and has 1"}));
  write_gzip(labels, idx_header({0x803, 3}) + "\x09");
  EXPECT_TRUE(says(error(), {"not an idx file"}));
  write_gzip(labels, "");
  EXPECT_TRUE(says(error(), {kTrainLabels, "not an idx file"}));
  write_gzip(labels, labels_good);

  write_gzip(images, idx_header({0x803, 0x7FFFFFFF, 28, 28}) + pixels_);
  EXPECT_TRUE(says(error(), {kTrainImages, "bytes of data and has 2352"}));
  write_gzip(images, idx_header({0x803, 3, 32, 28}) + pixels_);
  EXPECT_TRUE(says(error(), {"a dimension is 32, not 28"}));
  write_gzip(images, idx_header({0x803, 3, 28, 28}) + pixels_);
  fs::resize_file(images, fs::file_size(images) - 20);
  EXPECT_TRUE(says(error(), {kTrainImages, "damaged"}));
  write_gzip(images, idx_header({0x803, 3, 28, 28}) + pixels_);
  std::fstream file(images, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(images)) - 7);
  file.put('\x55');
  file.close();
  EXPECT_TRUE(says(error(), {kTrainImages, "damaged"})) << "a wrong checksum";
}

TEST(FashionMnist, DebiansPackageIsWhatItShouldBe) {
  if (!fs::exists("/usr/share/datasets/fashion-mnist")) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const auto train = open_dataset("fashion-mnist", Split::train, kImages, 0);
  const auto test = open_dataset("fashion-mnist", Split::test, kImages, 0);
  EXPECT_EQ(train->size(), 60000);
  EXPECT_EQ(test->size(), 10000);
  const Filled filled = fill(*train, all_of(*train));
  EXPECT_EQ(std::vector<std::int32_t>(filled.labels.begin(), filled.labels.begin() + 10),
            (std::vector<std::int32_t>{9, 0, 0, 3, 0, 2, 7, 2, 5, 5}));
  EXPECT_EQ(std::count(filled.labels.begin(), filled.labels.end(), 7), 6000);
  double sum = 0, squares = 0;
  for (const float value : filled.values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double count = static_cast<double>(filled.values.size());
  EXPECT_NEAR(sum / count, 0, 1e-3);
  EXPECT_NEAR(squares / count, 1, 1e-3);
}

// ---- text

TEST(MaskedText, HidesSomeTokensAndAsksForThem) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += static_cast<char>('a' + i % 26);
  SampleForm form = language_form(50);
  form.vocabulary = form.classes = 300;
  const std::string spec = "masked-text:" + folder.write("t", text).string();
  const auto data = open_dataset(spec, Split::train, form, 5);
  ASSERT_EQ(data->size(), 18000 / 50);
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < data->size(); ++i) indices.push_back(i);
  std::vector<std::int32_t> tokens(18000), labels(18000);
  data->fill(indices, {.tokens = tokens.data(), .labels = labels.data()});
  int asked = 0, hidden = 0, kept = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int32_t there = 'a' + static_cast<std::int32_t>(i % 26);
    if (labels[i] == -100) {
      EXPECT_EQ(tokens[i], there);
      continue;
    }
    EXPECT_EQ(labels[i], there);
    ++asked;
    hidden += tokens[i] == 256;
    kept += tokens[i] == there;
  }
  EXPECT_NEAR(asked / 18000.0, 0.15, 0.01);
  EXPECT_NEAR(hidden / static_cast<double>(asked), 0.8, 0.03);
  EXPECT_NEAR(kept / static_cast<double>(asked), 0.1, 0.03);
  EXPECT_TRUE(says(open_error(spec, language_form(50)), {"below 257", "does not fit"}));
}

TEST(Text, SamplesAreWindowsOfTheTwoParts) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i + 100);
  const std::string spec = "text:" + folder.write("t", text).string();
  const auto train = open_dataset(spec, Split::train, language_form(4), 0);
  ASSERT_EQ(train->size(), 22) << "89 pairs of neighbours in the first 90 bytes";
  const Filled filled = fill(*train, {21, 0});
  EXPECT_EQ(filled.tokens, (std::vector<std::int32_t>{184, 185, 186, 187, 100, 101, 102, 103}));
  EXPECT_EQ(filled.labels, (std::vector<std::int32_t>{185, 186, 187, 188, 101, 102, 103, 104}));
  const auto test = open_dataset(spec, Split::test, language_form(4, 300), 0);
  ASSERT_EQ(test->size(), 2);
  EXPECT_EQ(test->form().vocabulary, 300);
  EXPECT_EQ(fill(*test, {0}).tokens, (std::vector<std::int32_t>{190, 191, 192, 193}));
}

TEST(Text, UnfitTextsAreUserErrors) {
  const TemporaryFolder folder;
  const std::string spec = "text:" + folder.write("t", std::string(50, 'a')).string();
  EXPECT_EQ(open_dataset(spec, Split::train, language_form(44), 0)->size(), 1);
  EXPECT_TRUE(
      says(open_error(spec, language_form(45)), {"training part has 45 of the file's 50 bytes", "window of 46"}));
  EXPECT_TRUE(says(open_error(spec, language_form(5), Split::test), {"test part has 5", "longer text"}));
  EXPECT_TRUE(says(open_error(spec, language_form(5, 100)), {"tokens [5] below 256", "tokens [5] below 100"}));
  EXPECT_TRUE(says(open_error(spec, kImages), {"for models that take tokens", "[1, 28, 28]"}));
  SampleForm sees_ahead = language_form(5, 257);
  sees_ahead.sees_ahead = true;
  EXPECT_TRUE(says(open_error(spec, sees_ahead), {"sees the whole text", "masked-" + spec}));
  EXPECT_EQ(open_dataset("masked-" + spec, Split::train, sees_ahead, 0)->size(), 9);
  EXPECT_TRUE(says(open_error("text:", language_form(5)), {"no file", "text:FILE"}));
  EXPECT_TRUE(says(open_error("text:/none", language_form(5)), {"/none: cannot read"}));
}

}  // namespace
}  // namespace overtake
