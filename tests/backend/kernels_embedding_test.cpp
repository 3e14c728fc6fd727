#include "kernels/cpu/embedding.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tensor_check.h"

namespace overtake::kernels {
namespace {

struct Shape {
  std::int64_t n, vocabulary, width;
};

const std::vector<Shape> kShapes = {{1, 1, 1}, {5, 3, 7}, {50, 17, 16}, {200, 10, 130}, {333, 1000, 257}, {64, 5, 512}};

// Skewed tokens: half of them are token 1 where there is one.
std::vector<std::int32_t> random_tokens(const Shape& s) {
  std::mt19937 generator(3);
  std::uniform_int_distribution<std::int32_t> uniform(0, static_cast<std::int32_t>(s.vocabulary) - 1);
  std::vector<std::int32_t> tokens(index(s.n));
  for (std::int32_t& token : tokens) {
    token = uniform(generator);
    if (s.vocabulary > 1 && generator() % 2 == 0) token = 1;
  }
  return tokens;
}

template <class W, class T>
void check_forward() {
  for (const Shape& s : kShapes) {
    const auto tokens = random_tokens(s);
    const auto table = random_tensor<W>(s.vocabulary * s.width, 4);
    const auto y = run_whole_and_split<T>(s.n * s.width, s.n, [&](T* out, std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(embedding_forward(tokens.data(), table.data(), out, s.vocabulary, s.width, begin, end), -1);
    });
    std::vector<double> want;
    for (const std::int32_t token : tokens) {
      for (std::int64_t i = 0; i < s.width; ++i) {
        want.push_back(static_cast<double>(to_float(table[index(token * s.width + i)])));
      }
    }
    expect_close(y, want, 0.0);
  }
}

TEST(EmbeddingKernel, ForwardFloat) { check_forward<float, float>(); }
TEST(EmbeddingKernel, ForwardFloatToBf16) { check_forward<float, bf16>(); }
TEST(EmbeddingKernel, ForwardBf16) { check_forward<bf16, bf16>(); }

TEST(EmbeddingKernel, ReportsTheFirstBadToken) {
  const std::vector<std::int32_t> tokens = {0, 2, 3, -1, 1};
  const std::vector<float> table = {1, 2, 3, 4, 5, 6};  // [3, 2]
  std::vector<float> y(10, 9.0f);
  EXPECT_EQ(embedding_forward(tokens.data(), table.data(), y.data(), 3, 2, 0, 5), 2);
  EXPECT_EQ(y, (std::vector<float>{1, 2, 5, 6, 0, 0, 0, 0, 3, 4}));
  EXPECT_EQ(embedding_forward(tokens.data(), table.data(), y.data(), 3, 2, 3, 5), 3);
  EXPECT_EQ(embedding_forward(tokens.data(), table.data(), y.data(), 3, 2, 0, 2), -1);

  std::vector<std::int32_t> offsets(4), positions(5, -7);
  embedding_index(tokens.data(), 5, 3, -1, offsets.data(), positions.data());
  EXPECT_EQ(offsets, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(positions, (std::vector<std::int32_t>{0, 4, 1, -7, -7}));
  embedding_index(tokens.data(), 5, 3, /*padding=*/2, offsets.data(), positions.data());
  EXPECT_EQ(offsets, (std::vector<std::int32_t>{0, 1, 2, 2}));
}

TEST(EmbeddingKernel, IndexListsPositionsInOrder) {
  for (const Shape& s : kShapes) {
    const auto tokens = random_tokens(s);
    std::vector<std::int32_t> offsets(index(s.vocabulary + 1)), positions(index(s.n));
    embedding_index(tokens.data(), s.n, s.vocabulary, -1, offsets.data(), positions.data());
    std::vector<std::int32_t> want;
    for (std::int32_t v = 0; v < s.vocabulary; ++v) {
      EXPECT_EQ(offsets[index(v)], static_cast<std::int32_t>(want.size()));
      for (std::int64_t i = 0; i < s.n; ++i) {
        if (tokens[index(i)] == v) want.push_back(static_cast<std::int32_t>(i));
      }
    }
    EXPECT_EQ(offsets.back(), s.n);
    EXPECT_EQ(positions, want);
  }
}

template <class T>
void check_backward(std::int32_t padding = -1) {
  for (const Shape& s : kShapes) {
    const auto tokens = random_tokens(s);
    const auto dy = random_tensor<T>(s.n * s.width, 5);
    std::vector<std::int32_t> offsets(index(s.vocabulary + 1)), positions(index(s.n));
    embedding_index(tokens.data(), s.n, s.vocabulary, padding, offsets.data(), positions.data());
    const auto dtable = run_whole_and_split<float>(
        s.vocabulary * s.width, embedding_backward_units(s.vocabulary, s.width),
        [&](float* out, std::int64_t begin, std::int64_t end) {
          embedding_backward(offsets.data(), positions.data(), dy.data(), out, s.vocabulary, s.width, begin, end);
        });
    std::vector<double> want(dtable.size(), 0.0);
    std::vector<float> in_order(dtable.size(), 0.0f);  // the promised order of the sum, to the last bit
    for (std::int64_t i = 0; i < s.n; ++i) {
      if (tokens[index(i)] == padding) continue;
      for (std::int64_t c = 0; c < s.width; ++c) {
        const std::size_t to = index(tokens[index(i)] * s.width + c);
        want[to] += static_cast<double>(to_float(dy[index(i * s.width + c)]));
        in_order[to] += to_float(dy[index(i * s.width + c)]);
      }
    }
    expect_close(dtable, want, 1e-6, 10.0);
    EXPECT_EQ(dtable, in_order);
  }
}

TEST(EmbeddingKernel, BackwardFloat) { check_backward<float>(); }
TEST(EmbeddingKernel, BackwardBf16) { check_backward<bf16>(); }
TEST(EmbeddingKernel, PaddingHasNoGradient) { check_backward<float>(1); }

}  // namespace
}  // namespace overtake::kernels
