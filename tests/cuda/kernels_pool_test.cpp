#include "kernels/cuda/pool.h"

#include "cuda/against_cpu.h"
#include "kernels/cpu/adaptive_pool.h"
#include "kernels/cuda/adaptive_pool.h"

namespace overtake {
namespace {

using kernels::AdaptivePoolShape;
using kernels::PoolShape;

// batch, channels, input, output, kernel, stride, padding: whole packs and odd channels, overlapping windows and gaps,
// windows that reach past the padding (rounding up).
const std::vector<PoolShape> kShapes = {
    {2, 64, 17, 15, 9, 8, 3, 3, 2, 2, 1, 1, 1, 1}, {3, 5, 8, 9, 4, 4, 2, 2, 2, 2, 0, 0, 0, 0},
    {1, 3, 7, 6, 7, 6, 3, 3, 1, 1, 1, 1, 1, 1},    {2, 24, 10, 11, 5, 6, 3, 2, 2, 2, 0, 1, 1, 1},
    {2, 8, 9, 9, 3, 3, 2, 2, 3, 3, 0, 0, 0, 0},    {2, 64, 16, 12, 8, 6, 3, 3, 2, 2, 1, 1, 1, 1},
    {2, 8, 8, 8, 5, 5, 3, 3, 2, 2, 1, 1, 1, 1},    {1, 3, 7, 9, 3, 4, 3, 3, 2, 2, 0, 0, 0, 0},
    {1, 16, 6, 6, 4, 4, 3, 3, 2, 2, 2, 2, 2, 2},   {2, 16, 7, 10, 3, 5, 2, 2, 2, 2, 0, 0, 0, 0},
    {2, 8, 7, 6, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1},    {1, 12, 20, 20, 5, 5, 16, 16, 4, 4, 6, 6, 6, 6}};

template <class T>
class CudaPool : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaPool, Types);

std::int64_t in_count(const PoolShape& s) { return s.batch * s.in_h * s.in_w * s.channels; }
std::int64_t out_count(const PoolShape& s) { return s.batch * s.out_h * s.out_w * s.channels; }

TYPED_TEST(CudaPool, MaxHasTheCpusPlaces) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const PoolShape& s : kShapes) {
    kernels::check_pool(s);
    std::vector<T> x = random_values<T>(in_count(s), 1, 0.2f);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] = from_float<T>(1.5f);  // equals
    if (&s != &kShapes.front()) x[1] = x[size(s.channels) + 1] = x[x.size() / 2] = from_float<T>(std::nanf(""));
    const std::vector<T> dy = random_values<T>(out_count(s), 2);
    std::vector<T> y(dy.size()), dx(x.size());
    std::vector<std::uint8_t> argmax(dy.size());
    kernels::max_pool_forward(s, x.data(), y.data(), argmax.data(), 0, s.batch);
    kernels::max_pool_input_grad(s, dy.data(), argmax.data(), dx.data(), 0, s.batch);
    DeviceArray<T> gpu_x(x), gpu_dy(dy), out(y.size()), grad(x.size()), again(x.size());
    DeviceArray<std::uint8_t> places(y.size());
    cuda::max_pool_forward(nullptr, s, gpu_x.data(), out.data(), places.data());
    expect_same_bytes(places.download(), argmax, "argmax");
    const std::vector<T> got = out.download();
    for (std::size_t i = 0; i < y.size(); ++i) {
      const float want = to_float(y[i]), is = to_float(got[i]);
      ASSERT_TRUE(is == want || (std::isnan(is) && std::isnan(want))) << i;
    }
    cuda::max_pool_input_grad(nullptr, s, gpu_dy.data(), places.data(), grad.data());
    cuda::max_pool_input_grad(nullptr, s, gpu_dy.data(), places.data(), again.data());
    expect_close(grad.download(), dx, kBound<T>, "gradient of max pooling");
    expect_same_bytes(grad.download(), again.download(), "gradient of max pooling");
  }
}

TYPED_TEST(CudaPool, AverageIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const PoolShape& s : kShapes) {
    for (const bool include_pad : {false, true}) {
      const std::vector<T> x = random_values<T>(in_count(s), 1, 0.2f), dy = random_values<T>(out_count(s), 2);
      std::vector<T> y(dy.size()), dx(x.size());
      kernels::average_pool_forward(s, include_pad, x.data(), y.data(), 0, s.batch);
      kernels::average_pool_input_grad(s, include_pad, dy.data(), dx.data(), 0, s.batch);
      DeviceArray<T> gpu_x(x), gpu_dy(dy), out(y.size()), grad(x.size());
      DeviceArray<T> out_again(y.size()), grad_again(x.size());
      cuda::average_pool_forward(nullptr, s, include_pad, gpu_x.data(), out.data());
      cuda::average_pool_forward(nullptr, s, include_pad, gpu_x.data(), out_again.data());
      cuda::average_pool_input_grad(nullptr, s, include_pad, gpu_dy.data(), grad.data());
      cuda::average_pool_input_grad(nullptr, s, include_pad, gpu_dy.data(), grad_again.data());
      expect_close(out.download(), y, kBound<T>, "average pooling");
      expect_close(grad.download(), dx, kBound<T>, "gradient of average pooling");
      expect_same_bytes(out.download(), out_again.download(), "average pooling");
      expect_same_bytes(grad.download(), grad_again.download(), "gradient of average pooling");
    }
  }
}

struct GlobalCase {
  std::int64_t batch, pixels, channels;
};

TYPED_TEST(CudaPool, GlobalIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const GlobalCase c : {GlobalCase{4, 49, 512}, GlobalCase{3, 50, 13}, GlobalCase{2, 3136, 24},
                             GlobalCase{32, 784, 120}, GlobalCase{5, 1, 8}, GlobalCase{2, 7, 1000}}) {
    const std::vector<T> x = random_values<T>(c.batch * c.pixels * c.channels, 1, 0.2f);
    const std::vector<T> dy = random_values<T>(c.batch * c.channels, 2);
    std::vector<T> y(dy.size()), dx(x.size());
    kernels::global_average_pool_forward(x.data(), c.pixels, c.channels, y.data(), 0, c.batch);
    kernels::global_average_pool_input_grad(dy.data(), c.pixels, c.channels, dx.data(), 0, c.batch);
    DeviceArray<T> gpu_x(x), gpu_dy(dy), out(y.size()), again(y.size()), grad(x.size());
    cuda::global_average_pool_forward(nullptr, gpu_x.data(), c.pixels, c.channels, out.data(), c.batch);
    cuda::global_average_pool_forward(nullptr, gpu_x.data(), c.pixels, c.channels, again.data(), c.batch);
    cuda::global_average_pool_input_grad(nullptr, gpu_dy.data(), c.pixels, c.channels, grad.data(), c.batch);
    expect_close(out.download(), y, kBound<T>, "global average pooling");
    expect_same_bytes(out.download(), again.download(), "global average pooling");
    expect_close(grad.download(), dx, kBound<T>, "gradient of global average pooling");
  }
}

TYPED_TEST(CudaPool, AdaptiveIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  const std::int64_t batch = 3;
  for (const AdaptivePoolShape& s : {AdaptivePoolShape{16, 13, 11, 7, 7}, AdaptivePoolShape{5, 7, 7, 7, 7},
                                     AdaptivePoolShape{24, 3, 2, 7, 5}, AdaptivePoolShape{3, 9, 10, 1, 2}}) {
    const std::vector<T> x = random_values<T>(batch * s.in_h * s.in_w * s.channels, 1, 0.2f);
    const std::vector<T> dy = random_values<T>(batch * s.out_h * s.out_w * s.channels, 2);
    std::vector<T> y(dy.size()), dx(x.size());
    kernels::adaptive_pool_forward(s, x.data(), y.data(), 0, batch);
    kernels::adaptive_pool_input_grad(s, dy.data(), dx.data(), 0, batch);
    DeviceArray<T> gpu_x(x), gpu_dy(dy), out(y.size()), again(x.size()), grad(x.size());
    cuda::adaptive_pool_forward(nullptr, s, gpu_x.data(), out.data(), batch);
    cuda::adaptive_pool_input_grad(nullptr, s, gpu_dy.data(), grad.data(), batch);
    cuda::adaptive_pool_input_grad(nullptr, s, gpu_dy.data(), again.data(), batch);
    expect_close(out.download(), y, kBound<T>, "adaptive pooling");
    expect_close(grad.download(), dx, kBound<T>, "gradient of adaptive pooling");
    expect_same_bytes(grad.download(), again.download(), "gradient of adaptive pooling");
  }
}

}  // namespace
}  // namespace overtake
