#include "kernels/cuda/dropout.h"

#include "cuda/against_cpu.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/dropout.h"

namespace overtake {
namespace {

template <class T>
class CudaDropout : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaDropout, Types);

TYPED_TEST(CudaDropout, HasTheCpusBits) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  const std::uint64_t seed = 0x9abcdef012345678u;
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{6}, std::int64_t{4096}, std::int64_t{100003}}) {
    for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{1} << 33 | 5}) {
      for (const std::uint32_t salt : {0u, 1u, 12345u}) {
        for (const float p : {0.0f, 0.1f, 0.5f}) {
          const PhiloxKey key{0x12345678u, 0x9abcdef0u ^ (salt * 0x9E3779B9u)};
          const std::vector<T> x = random_values<T>(count, 1, 0.2f);
          std::vector<T> y(x.size());
          kernels::dropout(key, step, p, x.data(), y.data(), count, 0, kernels::blocks_of(count));
          DeviceArray<T> in(x), out(x.size());
          DeviceArray<cuda::StepValues> values(std::vector<cuda::StepValues>{{.step = step, .seed = seed}});
          cuda::dropout(nullptr, values.data(), salt, p, in.data(), out.data(), count);
          cuda::dropout(nullptr, values.data(), salt, p, in.data(), in.data(), count);
          expect_same_bytes(out.download(), y, "dropout of " + std::to_string(count));
          expect_same_bytes(in.download(), y, "dropout in place of " + std::to_string(count));
        }
      }
    }
  }
}

}  // namespace
}  // namespace overtake
