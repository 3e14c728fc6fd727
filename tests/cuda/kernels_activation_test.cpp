#include "kernels/cuda/activation.h"

#include "cuda/against_cpu.h"
#include "kernels/cpu/block.h"

namespace overtake {
namespace {

using kernels::Activation;

const std::vector<std::int64_t> kCounts = {1, 7, 1023, 4096, 8192, 100003};

// Every activation, the last four with parameters.
std::vector<kernels::ActivationFunction> all_functions() {
  std::vector<kernels::ActivationFunction> functions;
  for (int kind = 0; kind <= static_cast<int>(Activation::clip); ++kind) {
    functions.push_back(
        {static_cast<Activation>(kind), kind == static_cast<int>(Activation::clip) ? -0.7f : 0.3f, 1.1f});
  }
  return functions;
}

// Log and square root want positive numbers, the reciprocal none near 0.
template <class T>
std::vector<T> arguments(Activation kind, std::int64_t count) {
  const bool positive = kind == Activation::log || kind == Activation::sqrt || kind == Activation::reciprocal;
  std::vector<T> x = random_values<T>(count, 1, 0.1f, 2.0f);
  if (!positive) return x;
  for (T& value : x) value = from_float<T>(0.25f + std::fabs(to_float(value)));
  return x;
}

template <class T>
class CudaActivation : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaActivation, Types);

TYPED_TEST(CudaActivation, IsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const kernels::ActivationFunction& f : all_functions()) {
    for (const std::int64_t count : kCounts) {
      const std::string what = "kind " + std::to_string(static_cast<int>(f.kind)) + ", " + std::to_string(count);
      const std::vector<T> x = arguments<T>(f.kind, count), dy = random_values<T>(count, 2);
      std::vector<T> y(x.size()), dx(x.size());
      kernels::activation_forward(f, x.data(), y.data(), count, 0, kernels::blocks_of(count));
      kernels::activation_backward(f, x.data(), y.data(), dy.data(), dx.data(), count, 0, kernels::blocks_of(count));
      const bool from_input = kernels::backward_needs_input(f.kind);

      DeviceArray<T> gpu_x(x), gpu_y(y), gpu_dy(dy), out(x.size()), again(x), grad(x.size()), grad_again(dy);
      cuda::activation_forward(nullptr, f, gpu_x.data(), out.data(), count);
      cuda::activation_forward(nullptr, f, again.data(), again.data(), count);
      const T* saved_x = from_input ? gpu_x.data() : nullptr;
      const T* saved_y = from_input ? nullptr : gpu_y.data();
      cuda::activation_backward(nullptr, f, saved_x, saved_y, gpu_dy.data(), grad.data(), count);
      cuda::activation_backward(nullptr, f, saved_x, saved_y, grad_again.data(), grad_again.data(), count);
      expect_close(out.download(), y, kBound<T>, what + " forward");
      expect_close(grad.download(), dx, kBound<T>, what + " backward");
      expect_same_bytes(out.download(), again.download(), what + " forward in place");
      expect_same_bytes(grad.download(), grad_again.download(), what + " backward in place");
    }
  }
}

// Where functions have no derivative.
TYPED_TEST(CudaActivation, SlopesAtKinksAreTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  std::vector<T> x;
  for (const float kink : {-3.0f, -0.5f, 0.0f, 0.25f, 1.0f, 3.0f}) x.push_back(from_float<T>(kink));
  const auto count = static_cast<std::int64_t>(x.size());
  const std::vector<T> dy(x.size(), from_float<T>(1.0f));
  for (const kernels::ActivationFunction& f : {kernels::ActivationFunction{Activation::clip, -0.5f, 1.0f},
                                               {Activation::maximum, 0.25f},
                                               {Activation::relu},
                                               {Activation::abs},
                                               {Activation::hard_swish},
                                               {Activation::hard_sigmoid},
                                               {Activation::leaky_relu, 0.25f}}) {
    std::vector<T> y(x.size()), dx(x.size());
    kernels::activation_forward(f, x.data(), y.data(), count, 0, 1);
    kernels::activation_backward(f, x.data(), y.data(), dy.data(), dx.data(), count, 0, 1);
    DeviceArray<T> gpu_x(x), gpu_y(y), gpu_dy(dy), grad(x.size());
    const bool from_input = kernels::backward_needs_input(f.kind);
    cuda::activation_backward(nullptr, f, from_input ? gpu_x.data() : nullptr, from_input ? nullptr : gpu_y.data(),
                              gpu_dy.data(), grad.data(), count);
    expect_close(grad.download(), dx, kBound<T>, "kind " + std::to_string(static_cast<int>(f.kind)));
  }
}

TYPED_TEST(CudaActivation, NanStaysNan) {
  OVERTAKE_NEEDS_GPU();
  const std::vector<TypeParam> x(5000, from_float<TypeParam>(std::nanf("")));
  for (const kernels::ActivationFunction& f : all_functions()) {
    DeviceArray<TypeParam> in(x), out(std::vector<TypeParam>(x.size(), from_float<TypeParam>(1.0f)));
    cuda::activation_forward(nullptr, f, in.data(), out.data(), 5000);
    for (const TypeParam& y : out.download()) {
      ASSERT_TRUE(std::isnan(to_float(y))) << "kind " << static_cast<int>(f.kind);
    }
  }
}

}  // namespace
}  // namespace overtake
