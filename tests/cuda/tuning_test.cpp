// Choices kept on disk, and the measuring of candidates.

#include "kernels/cuda/tuning.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "base/file.h"
#include "cuda/device_array.h"
#include "kernels/cuda/random_fill.h"

namespace overtake::cuda {
namespace {

namespace fs = std::filesystem;

// A folder of its own for one test, and the notes given.
class TuningFile : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / (std::string("overtake-") + test->name() + std::to_string(::getpid()));
    fs::remove_all(folder_);
    path_ = folder_ / "deeper" / "tuning.txt";
  }
  void TearDown() override { fs::remove_all(folder_); }

  Tuning tuning(const std::string& platform = "a GPU; library 1") {
    return Tuning(path_, platform, {}, [this](const std::string& text) { notes_.push_back(text); });
  }
  void write(const std::string& text) {
    create_folders(path_.parent_path());
    write_file_atomically(path_, text);
  }

  fs::path folder_, path_;
  std::vector<std::string> notes_;
};

TEST(TuningParts, MustBeAbleToRunWhatIsChosen) {
  OVERTAKE_NEEDS_GPU();
  cudaStream_t part = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&part, cudaStreamNonBlocking), cudaSuccess);
  DeviceArray<float> x(64);
  const auto works = [&](cudaStream_t s) { random_fill(s, ElementType::f32, x.data(), 64, 1); };
  const auto fails = [&](cudaStream_t s) {
    if (s == part) throw std::runtime_error("not here");
    works(s);
  };
  works(nullptr);
  Tuning whole({}, {}, nullptr), with_part({}, {.parts = {part}}, nullptr);
  EXPECT_TRUE(whole.can_run(fails));
  EXPECT_TRUE(with_part.can_run(works));
  EXPECT_FALSE(with_part.can_run(fails));
  EXPECT_TRUE(with_part.can_run(works));  // the stream is as good as before
  const auto second = with_part.fastest_of(2, [&](std::size_t i, cudaStream_t s) { i == 0 ? fails(s) : works(s); });
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->candidate, 1u);
  EXPECT_EQ(cudaStreamDestroy(part), cudaSuccess);
}

TEST_F(TuningFile, KeepsChoices) {
  {
    Tuning first = tuning();
    EXPECT_EQ(first.find("a key"), std::nullopt);
    first.keep("a key", "one");
    first.keep("a key", "another");
    first.keep("b key", "two words");
    EXPECT_EQ(first.find("a key"), "another");
    first.save();
  }
  Tuning second = tuning();
  EXPECT_EQ(second.find("a key"), "another");
  EXPECT_EQ(second.find("b key"), "two words");
  EXPECT_EQ(second.find("c key"), std::nullopt);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(TuningFile, OfAnotherPlatformIsLeftAsideAndReplaced) {
  Tuning first = tuning();
  first.keep("key", "one");
  first.save();
  Tuning other = tuning("a GPU; library 2");
  EXPECT_EQ(notes_.size(), 1u);
  EXPECT_EQ(other.find("key"), std::nullopt);
  other.save();  // nothing new: the file stays
  EXPECT_EQ(tuning().find("key"), "one");
  other.keep("key", "two");
  other.save();
  EXPECT_EQ(tuning("a GPU; library 2").find("key"), "two");
}

TEST_F(TuningFile, DamagedIsLeftAsideWithOneNote) {
  Tuning good = tuning();
  good.keep("first key", "one");
  good.keep("second key", "two");
  good.save();
  const std::string text = read_file(path_);
  const std::vector<std::string> damaged = {"",
                                            "\n",
                                            text.substr(0, text.size() - 1),         // cut
                                            text.substr(0, text.find('\t')) + "\n",  // a line without a choice
                                            text + "key\t\n",                        // an empty one
                                            text + "\n",                             // an empty line
                                            text + "key\tone\ttwo\n",                // too many
                                            std::string("\0\xff\n", 3) + text,       // another header
                                            text.substr(text.find('\n') + 1)};       // none
  for (const std::string& content : damaged) {
    write(content);
    notes_.clear();
    Tuning again = tuning();
    EXPECT_EQ(notes_.size(), 1u) << content;
    EXPECT_EQ(again.find("first key"), std::nullopt) << content;
    again.keep("key", "three");
    again.save();
    EXPECT_EQ(tuning().find("key"), "three") << content;
    EXPECT_EQ(notes_.size(), 1u) << content;
  }
}

TEST_F(TuningFile, ThatCannotBeWrittenIsANote) {
  create_folders(folder_);
  write_file_atomically(folder_ / "deeper", "a file where a folder should be");
  Tuning blocked = tuning();
  blocked.keep("key", "one");
  blocked.save();
  EXPECT_EQ(notes_.size(), 1u);
  EXPECT_EQ(blocked.find("key"), "one");
}

TEST_F(TuningFile, IsNotWrittenWithoutAPath) {
  Tuning memory({}, "a GPU", {}, nullptr);
  memory.keep("key", "one");
  memory.save();
  EXPECT_EQ(memory.find("key"), "one");
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(TuningFile, RefusesWhatWouldBreakALine) {
  Tuning memory({}, "a GPU", {}, nullptr);
  EXPECT_THROW(memory.keep("a\tkey", "one"), std::logic_error);
  EXPECT_THROW(memory.keep("key", "one\n"), std::logic_error);
  EXPECT_THROW(memory.keep("key", ""), std::logic_error);
}

TEST(TuningPath, FollowsTheCacheFolder) {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const std::string before = xdg == nullptr ? "" : xdg;
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(Tuning::default_path("NVIDIA H200"), fs::path("/somewhere/overtake/tuning-NVIDIA-H200.txt"));
  ::setenv("XDG_CACHE_HOME", "", 1);
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') {
    EXPECT_EQ(Tuning::default_path("x/y"), fs::path(home) / ".cache" / "overtake" / "tuning-x-y.txt");
  }
  if (xdg == nullptr) {
    ::unsetenv("XDG_CACHE_HOME");
  } else {
    ::setenv("XDG_CACHE_HOME", before.c_str(), 1);
  }
}

TEST(TuningMeasure, TellsShortFromLong) {
  OVERTAKE_NEEDS_GPU();
  Tuning tuning({}, {}, nullptr);
  constexpr std::int64_t kCount = 64 << 20;
  const TemporaryArray array(ElementType::f32, kCount, 1);
  const auto fill = [&](std::size_t i, cudaStream_t stream) {
    if (i == 1) throw std::runtime_error("not this one");
    random_fill(stream, ElementType::f32, array.data(), i == 2 ? kCount / 64 : kCount, 2);
  };
  const std::optional<Fastest> best = tuning.fastest_of(4, fill);
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(best->candidate, 2u);
  EXPECT_GT(best->microseconds, 0.1);
  EXPECT_LT(best->microseconds, 1000);
  EXPECT_FALSE(tuning.fastest_of(2, [](std::size_t, cudaStream_t) { throw std::runtime_error("none"); }).has_value());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const double all = time_microseconds(nullptr, [&](cudaStream_t stream) { fill(0, stream); });
  EXPECT_GT(all, best->microseconds);
}

TEST(RandomFill, IsUniformAndAFunctionOfTheSeed) {
  OVERTAKE_NEEDS_GPU();
  constexpr std::size_t kCount = 100'003;
  const auto values = [](std::uint32_t seed) {
    DeviceArray<float> array(kCount);
    random_fill(nullptr, ElementType::f32, array.data(), kCount, seed);
    return array.download();
  };
  const std::vector<float> first = values(1);
  EXPECT_EQ(first, values(1));
  EXPECT_NE(first, values(2));
  double sum = 0, squares = 0;
  for (const float x : first) {
    ASSERT_TRUE(x >= -1 && x < 1);
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.01);
}

}  // namespace
}  // namespace overtake::cuda
