#include "kernels/cuda/softmax.h"

#include <limits>

#include "cuda/against_cpu.h"
#include "kernels/cpu/softmax.h"

namespace overtake {
namespace {

// Rows held by warps and by blocks and rows too long for that, of whole packs and odd ones; and columns.
struct Case {
  std::int64_t outer, axis, inner;
};
const std::vector<Case> kCases = {{1, 1, 1},    {7, 3, 1},     {130, 64, 1},  {33, 100, 1},  {257, 768, 1},
                                  {5, 2048, 1}, {3, 8192, 1},  {2, 40000, 1}, {1000, 10, 1}, {5, 501, 1},
                                  {3, 1001, 1}, {2, 5001, 1},  {2, 20001, 1}, {3, 1, 5},     {2, 7, 3},
                                  {4, 64, 49},  {1, 8, 10000}, {6, 19, 256},  {3, 1000, 2}};

template <class T>
class CudaSoftmax : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaSoftmax, Types);

TYPED_TEST(CudaSoftmax, ForwardIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    SCOPED_TRACE(testing::Message() << c.outer << " x " << c.axis << " x " << c.inner);
    const auto x = random_values<TypeParam>(c.outer * c.axis * c.inner, 1, 50.0f, 2.0f);
    std::vector<TypeParam> want(x.size());
    kernels::softmax_forward(x.data(), want.data(), c.axis, c.inner, 0, kernels::softmax_units(c.outer, c.inner));
    DeviceArray<TypeParam> in(x), y(x.size()), again(x.size());
    cuda::softmax_forward(nullptr, in.data(), y.data(), c.axis, c.inner, c.outer);
    cuda::softmax_forward(nullptr, in.data(), again.data(), c.axis, c.inner, c.outer);
    cuda::softmax_forward(nullptr, in.data(), in.data(), c.axis, c.inner, c.outer);
    expect_close(y.download(), want, kBound<TypeParam>, "y");
    expect_same_bytes(again.download(), y.download(), "y");
    expect_same_bytes(in.download(), y.download(), "y in place");
  }
}

TYPED_TEST(CudaSoftmax, BackwardIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    if (c.axis == 1) continue;  // dx is rounding alone
    SCOPED_TRACE(testing::Message() << c.outer << " x " << c.axis << " x " << c.inner);
    const std::int64_t count = c.outer * c.axis * c.inner, units = kernels::softmax_units(c.outer, c.inner);
    const auto x = random_values<TypeParam>(count, 1), dy = random_values<TypeParam>(count, 2);
    std::vector<TypeParam> y(x.size()), want(x.size());
    kernels::softmax_forward(x.data(), y.data(), c.axis, c.inner, 0, units);
    kernels::softmax_backward(y.data(), dy.data(), want.data(), c.axis, c.inner, 0, units);
    DeviceArray<TypeParam> gpu_y(y), also_y(y), gpu_dy(dy), dx(x.size()), again(x.size());
    const auto run = [&](const DeviceArray<TypeParam>& values, TypeParam* out) {
      cuda::softmax_backward<TypeParam>(nullptr, values.data(), gpu_dy.data(), out, c.axis, c.inner, c.outer);
    };
    run(gpu_y, dx.data());
    run(gpu_y, again.data());
    run(also_y, also_y.data());
    run(gpu_y, gpu_dy.data());
    expect_close(dx.download(), want, kBound<TypeParam>, "dx");
    expect_same_bytes(again.download(), dx.download(), "dx");
    expect_same_bytes(also_y.download(), dx.download(), "dx in place over y");
    expect_same_bytes(gpu_dy.download(), dx.download(), "dx in place over dy");
  }
}

// A mask of -inf: 0 where it is, NaN where it covers a whole row.
TYPED_TEST(CudaSoftmax, MinusInfinityIsLeftOut) {
  OVERTAKE_NEEDS_GPU();
  const TypeParam lowest = from_float<TypeParam>(-std::numeric_limits<float>::infinity());
  for (const Case c : {Case{2, 30, 1}, Case{2, 3000, 1}, Case{2, 30, 20}}) {
    auto x = random_values<TypeParam>(c.outer * c.axis * c.inner, 1);
    std::fill(x.begin(), x.begin() + c.axis * c.inner, lowest);                             // all of the first
    std::fill(x.begin() + c.axis * c.inner, x.begin() + c.axis * c.inner * 3 / 2, lowest);  // half of the second
    std::vector<TypeParam> want(x.size());
    kernels::softmax_forward(x.data(), want.data(), c.axis, c.inner, 0, kernels::softmax_units(c.outer, c.inner));
    DeviceArray<TypeParam> in(x), out(x.size());
    cuda::softmax_forward(nullptr, in.data(), out.data(), c.axis, c.inner, c.outer);
    const std::vector<TypeParam> got = out.download();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float value = to_float(got[i]), wanted = to_float(want[i]);
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(value) : std::fabs(value - wanted) <= kBound<TypeParam>) << i;
    }
  }
}

}  // namespace
}  // namespace overtake
