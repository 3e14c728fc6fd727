#include "kernels/cpu/nan.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/cpu/block.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

template <class T>
void check() {
  const float infinity = std::numeric_limits<float>::infinity();
  const float broken[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
  for (const std::int64_t count : {1, 17, 1024, 5003}) {
    std::vector<T> x = random_tensor<T>(count, 2);
    x[0] = from_float<T>(3.38e38f);  // large, but finite in both types
    const std::int64_t blocks = blocks_of(count);
    EXPECT_EQ(first_non_finite(x.data(), count, 0, blocks), -1);
    for (const float value : broken) {
      for (const std::int64_t at : {std::int64_t{0}, count / 3, count / 2, count - 1}) {
        std::vector<T> bad = x;
        bad[index(at)] = from_float<T>(value);
        bad[index(count - 1)] = from_float<T>(value);
        EXPECT_EQ(first_non_finite(bad.data(), count, 0, blocks), at);
        // Block by block: only the blocks that hold one report it.
        for (std::int64_t block = 0; block < blocks; ++block) {
          const std::int64_t found = first_non_finite(bad.data(), count, block, block + 1);
          const std::int64_t want = at / kBlock == block ? at : (count - 1) / kBlock == block ? count - 1 : -1;
          EXPECT_EQ(found, want);
        }
      }
    }
  }
}

TEST(NanKernel, Float) { check<float>(); }
TEST(NanKernel, Bf16) { check<bf16>(); }

}  // namespace
}  // namespace overtake::kernels
