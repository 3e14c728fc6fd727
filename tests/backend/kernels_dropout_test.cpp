#include "kernels/cpu/dropout.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/block.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

constexpr PhiloxKey kKey{0x12345678u, 0x9abcdef0u};

// Known answers of Philox 4x32-10 (Random123's kat_vectors).
TEST(DropoutKernel, PhiloxKnownAnswers) {
  const auto zeros = philox({0, 0}, 0, 0);
  EXPECT_EQ(zeros, (std::array<std::uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  const auto ones = philox({~0u, ~0u}, ~0ull, ~0ull);
  EXPECT_EQ(ones, (std::array<std::uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
}

template <class T>
void check_mask() {
  for (const std::int64_t count : {1, 3, 1023, 1025, 10007}) {
    for (const float p : {0.0f, 0.1f, 0.5f, 0.9f}) {
      const std::uint64_t step = (7ull << 32) + 5;
      const auto x = random_tensor<T>(count, 1);
      const auto y = run_whole_and_split<T>(count, blocks_of(count), [&](T* out, std::int64_t begin, std::int64_t end) {
        dropout(kKey, step, p, x.data(), out, count, begin, end);
      });
      std::vector<double> want;
      for (std::int64_t i = 0; i < count; ++i) {
        const bool keeps = dropout_keeps(kKey, step, static_cast<std::uint64_t>(i), p);
        want.push_back(keeps ? static_cast<double>(to_float(x[index(i)])) / (1 - static_cast<double>(p)) : 0.0);
      }
      expect_close(y, want, 2e-7);
      const auto in_place = run_whole_and_split<T>(
          count, blocks_of(count),
          [&](T* out, std::int64_t begin, std::int64_t end) { dropout(kKey, step, p, out, out, count, begin, end); },
          &x);
      EXPECT_EQ(to_doubles(y), to_doubles(in_place));
    }
  }
}

TEST(DropoutKernel, MaskFloat) { check_mask<float>(); }
TEST(DropoutKernel, MaskBf16) { check_mask<bf16>(); }

TEST(DropoutKernel, DropsTheAskedShareAndSeparatesSteps) {
  constexpr std::int64_t kCount = 1 << 20;
  const std::vector<float> ones(kCount, 1.0f);
  std::vector<float> first(kCount), second(kCount);
  dropout(kKey, 1, 0.3f, ones.data(), first.data(), kCount, 0, blocks_of(kCount));
  dropout(kKey, 2, 0.3f, ones.data(), second.data(), kCount, 0, blocks_of(kCount));
  double kept = 0, kept_in_both = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    kept += first[i] != 0.0f ? 1 : 0;
    kept_in_both += first[i] != 0.0f && second[i] != 0.0f ? 1 : 0;
  }
  EXPECT_NEAR(kept / kCount, 0.7, 0.002);  // 4.5 standard deviations
  EXPECT_NEAR(kept_in_both / kCount, 0.49, 0.0025);
}

}  // namespace
}  // namespace overtake::kernels
