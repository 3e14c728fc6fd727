#include "kernels/cuda/finite.h"

#include <limits>

#include "cuda/against_cpu.h"

namespace overtake {
namespace {

template <class T>
class CudaFinite : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaFinite, Types);

// The flag after a look at x, if it was `before`.
template <class T>
std::uint32_t marked(const std::vector<T>& x, std::uint32_t before) {
  DeviceArray<T> in(x);
  DeviceArray<std::uint32_t> flag(std::vector<std::uint32_t>{before});
  cuda::mark_non_finite(nullptr, in.data(), static_cast<std::int64_t>(x.size()), flag.data());
  expect_same_bytes(in.download(), x, "x");
  return flag.download()[0];
}

TYPED_TEST(CudaFinite, MarksWhatIsNotFiniteWhereverItIs) {
  OVERTAKE_NEEDS_GPU();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::size_t count : {1u, 7u, 4096u, 8192u, 20003u}) {
    std::vector<TypeParam> x = random_values<TypeParam>(static_cast<std::int64_t>(count), 1);
    x[count / 3] = from_float<TypeParam>(3e38f);
    EXPECT_EQ(marked(x, 0u), 0u) << count;
    EXPECT_EQ(marked(x, 1u), 1u) << count;
    for (const std::size_t place : {std::size_t{0}, count / 2, count - 1}) {
      for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<TypeParam> spoilt = x;
        spoilt[place] = from_float<TypeParam>(bad);
        EXPECT_EQ(marked(spoilt, 0u), 1u) << count << ", " << place << ", " << bad;
      }
    }
  }
  EXPECT_EQ(marked(std::vector<TypeParam>{}, 0u), 0u);
}

}  // namespace
}  // namespace overtake
