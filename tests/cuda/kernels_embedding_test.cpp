#include "kernels/cuda/embedding.h"

#include "cuda/against_cpu.h"
#include "kernels/cpu/embedding.h"

namespace overtake {
namespace {

// One pass of the sort, two and three; lists inside runs, across them, and (skew) one that is most of the text.
struct Case {
  std::int64_t n, vocabulary, width;
  double skew;  // probability of token 3
};
const std::vector<Case> kCases = {{1, 5, 8, 0},          {100, 7, 12, 0},      {2049, 300, 5, 0.3},
                                  {5000, 1000, 64, 0.9}, {4096, 70000, 16, 0}, {9000, 50257, 4, 0.1},
                                  {300, 4, 1030, 0},     {64, 5, 8, 1.0}};

// Every 17th id is bad if asked for: negative, or past the end.
std::vector<std::int32_t> tokens_of(const Case& c, bool with_bad) {
  std::mt19937 generator(9);
  std::vector<std::int32_t> tokens(size(c.n));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool hot = std::uniform_real_distribution<double>(0, 1)(generator) < c.skew;
    const std::int64_t other = std::uniform_int_distribution<std::int64_t>(0, c.vocabulary - 1)(generator);
    tokens[i] = static_cast<std::int32_t>(hot ? 3 : other);
    if (with_bad && i % 17 == 5) tokens[i] = i % 2 == 0 ? -1 : static_cast<std::int32_t>(c.vocabulary);
  }
  return tokens;
}

template <class W, class T>
void check_forward(const Case& c, bool with_bad) {
  const std::vector<std::int32_t> tokens = tokens_of(c, with_bad);
  const std::vector<W> table = random_values<W>(c.vocabulary * c.width, 1, 0.2f);
  std::vector<T> y(size(c.n * c.width));
  const std::int64_t first_bad =
      kernels::embedding_forward(tokens.data(), table.data(), y.data(), c.vocabulary, c.width, 0, c.n);
  DeviceArray<std::int32_t> gpu_tokens(tokens);
  DeviceArray<W> gpu_table(table);
  DeviceArray<T> out(y.size());
  DeviceArray<std::int64_t> bad(std::vector<std::int64_t>{77});
  cuda::embedding_forward(nullptr, gpu_tokens.data(), gpu_table.data(), out.data(), c.vocabulary, c.width, c.n,
                          bad.data());
  expect_same_bytes(out.download(), y, "embedding of " + std::to_string(c.n));
  EXPECT_EQ(bad.download()[0], first_bad);
}

TEST(CudaEmbedding, ForwardHasTheCpusBits) {
  OVERTAKE_NEEDS_GPU();
  for (const Case& c : kCases) {
    for (const bool with_bad : {false, true}) {
      check_forward<float, float>(c, with_bad);
      check_forward<float, bf16>(c, with_bad);
      check_forward<bf16, bf16>(c, with_bad);
    }
  }
}

template <class T>
void check_backward(const Case& c, bool with_bad, std::int32_t padding = -1) {
  const std::string what = std::to_string(c.n) + " of " + std::to_string(c.vocabulary);
  const std::vector<std::int32_t> tokens = tokens_of(c, with_bad);
  const std::vector<T> dy = random_values<T>(c.n * c.width, 2, 0.1f);
  std::vector<std::int32_t> offsets(size(c.vocabulary + 1)), positions(size(c.n));
  kernels::embedding_index(tokens.data(), c.n, c.vocabulary, padding, offsets.data(), positions.data());
  std::vector<float> dtable(size(c.vocabulary * c.width));
  kernels::embedding_backward(offsets.data(), positions.data(), dy.data(), dtable.data(), c.vocabulary, c.width, 0,
                              kernels::embedding_backward_units(c.vocabulary, c.width));

  DeviceArray<std::int32_t> gpu_tokens(tokens), gpu_offsets(offsets.size()), gpu_positions(positions.size());
  DeviceArray<T> gpu_dy(dy);
  DeviceArray<std::byte> index_scratch(cuda::embedding_index_scratch_bytes(c.n, c.vocabulary));
  DeviceArray<std::byte> scratch(cuda::embedding_backward_scratch_bytes(c.n, c.width));
  DeviceArray<float> out(dtable.size()), again(dtable.size());
  cuda::embedding_index(nullptr, gpu_tokens.data(), c.n, c.vocabulary, padding, gpu_offsets.data(),
                        gpu_positions.data(), index_scratch.data());
  expect_same_bytes(gpu_offsets.download(), offsets, what + " offsets");
  const auto good = static_cast<std::ptrdiff_t>(offsets.back());
  const std::vector<std::int32_t> got = gpu_positions.download();
  EXPECT_TRUE(std::equal(positions.begin(), positions.begin() + good, got.begin())) << what << " positions";
  for (DeviceArray<float>* to : {&out, &again}) {
    cuda::embedding_backward(nullptr, gpu_offsets.data(), gpu_positions.data(), gpu_dy.data(), to->data(), c.vocabulary,
                             c.width, c.n, scratch.data());
  }
  expect_close(out.download(), dtable, 1e-5f, what);
  expect_same_bytes(out.download(), again.download(), what);
}

TEST(CudaEmbedding, BackwardIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case& c : kCases) {
    for (const bool with_bad : {false, true}) {
      check_backward<float>(c, with_bad);
      check_backward<bf16>(c, with_bad);
      check_backward<float>(c, with_bad, /*padding=*/3);
    }
  }
}

}  // namespace
}  // namespace overtake
