#include "kernels/cuda/binary.h"

#include <memory>

#include "cuda/against_cpu.h"
#include "kernels/cpu/block.h"

namespace overtake {
namespace {

using kernels::BinaryOp;
using Dims = std::vector<std::int64_t>;

// The output's dims and those of the two operands (1 where broadcast).
struct Case {
  Dims y, a, b;
};
const std::vector<Case> kCases = {{{5003}, {5003}, {5003}},                       // equal shapes
                                  {{64, 128}, {64, 128}, {1, 128}},               // a bias
                                  {{70001, 16}, {70001, 16}, {1, 16}},            // many rows: the sum in chunks
                                  {{3001, 3}, {3001, 3}, {1, 3}},                 // few odd columns
                                  {{33, 100}, {33, 100}, {33, 1}},                // a number per row
                                  {{2000, 49}, {2000, 49}, {2000, 1}},            // many short sums
                                  {{4, 50000}, {4, 50000}, {4, 1}},               // few long sums
                                  {{300000}, {300000}, {1}},                      // a scalar
                                  {{8, 49, 64}, {8, 49, 64}, {8, 1, 64}},         // squeeze and excite, channels last
                                  {{5, 7, 6, 13}, {5, 1, 6, 13}, {1, 7, 1, 13}},  // both broadcast, odd
                                  {{5, 8, 6, 24}, {1, 8, 1, 24}, {5, 8, 6, 1}},   // both broadcast, whole packs
                                  {{6, 5, 4, 8}, {6, 1, 4, 1}, {1, 5, 1, 8}},     // an outer product of a kind
                                  {{2, 3, 4, 5, 6, 7}, {2, 1, 4, 1, 6, 1}, {1, 3, 1, 5, 1, 7}},
                                  {{40, 9, 2048}, {40, 9, 2048}, {1, 9, 2048}},
                                  {{32, 300, 72}, {32, 300, 72}, {32, 1, 72}},  // sums in one phase, of many threads
                                  {{33, 500, 13}, {33, 500, 13}, {33, 1, 13}},
                                  {{1000, 776}, {1000, 776}, {1, 776}},
                                  {{1}, {1}, {1}}};

std::int64_t elements(const Dims& dims) {
  std::int64_t count = 1;
  for (const std::int64_t d : dims) count *= d;
  return count;
}

// Of a contiguous tensor, 0 where it is broadcast.
Dims strides(const Dims& dims, const Dims& of) {
  Dims result(dims.size());
  std::int64_t stride = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {
    result[d] = of[d] == dims[d] ? stride : 0;
    stride *= of[d];
  }
  return result;
}

template <class T>
class CudaBinary : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaBinary, Types);

TYPED_TEST(CudaBinary, ForwardIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const Case& c : kCases) {
    for (const BinaryOp op : {BinaryOp::add, BinaryOp::mul}) {
      const std::string what = testing::PrintToString(c.y) + (op == BinaryOp::add ? " add" : " mul");
      const auto plan = kernels::make_binary_plan(c.y, strides(c.y, c.a), strides(c.y, c.b));
      const std::vector<T> a = random_values<T>(elements(c.a), 1, 0.3f), b = random_values<T>(elements(c.b), 2, -0.2f);
      std::vector<T> y(size(elements(c.y)));
      kernels::binary_forward(op, plan, a.data(), b.data(), y.data(), 0, plan.units);
      DeviceArray<T> gpu_a(a), gpu_b(b), out(y.size()), again(y.size());
      cuda::binary_forward(nullptr, op, plan, gpu_a.data(), gpu_b.data(), out.data());
      cuda::binary_forward(nullptr, op, plan, gpu_a.data(), gpu_b.data(), again.data());
      expect_close(out.download(), y, kBound<T>, what);
      expect_same_bytes(out.download(), again.download(), what);
      if (c.a == c.y) {
        cuda::binary_forward(nullptr, op, plan, gpu_a.data(), gpu_b.data(), gpu_a.data());
        expect_same_bytes(out.download(), gpu_a.download(), what + " in place");
      }
    }
  }
}

TYPED_TEST(CudaBinary, ExpandIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const Case& c : kCases) {
    const Dims x_strides = strides(c.y, c.b);
    const auto plan = kernels::make_binary_plan(c.y, x_strides, x_strides);
    const std::vector<T> x = random_values<T>(elements(c.b), 1, 0.3f);
    std::vector<T> y(size(elements(c.y)));
    kernels::expand(plan, 0.37f, x.data(), y.data(), 0, plan.units);
    DeviceArray<T> in(x), out(y.size());
    cuda::expand(nullptr, plan, 0.37f, in.data(), out.data());
    expect_same_bytes(out.download(), y, "expand " + testing::PrintToString(c.y));
  }
}

// The gradients of add (scaled, as a mean would be) and mul with respect to `operand`.
template <class T>
void check_gradient(const Dims& dims, const Dims& operand, const Dims& other, BinaryOp op) {
  const bool is_mul = op == BinaryOp::mul;
  const std::string what = testing::PrintToString(dims) + " to " + testing::PrintToString(operand);
  auto plan = kernels::make_binary_grad_plan(op, dims, strides(dims, operand), is_mul ? strides(dims, other) : Dims{});
  if (!is_mul) plan.scale = 0.37f;
  const std::vector<T> dy = random_values<T>(elements(dims), 3, 0.2f), b = random_values<T>(elements(other), 4, 0.5f);
  std::vector<T> grad(size(plan.elements));
  std::vector<float> partials(size(plan.partials));
  kernels::binary_backward(plan, dy.data(), is_mul ? b.data() : nullptr, grad.data(), partials.data(), 0, plan.units);
  if (plan.chunks > 1) {
    kernels::binary_backward_combine(plan, partials.data(), grad.data(), 0, plan.combine_units);
  }
  DeviceArray<T> gpu_dy(dy), gpu_b(b), out(grad.size()), again(grad.size());
  DeviceArray<std::byte> scratch(cuda::binary_backward_scratch_bytes<T>(plan));
  for (DeviceArray<T>* to : {&out, &again}) {
    cuda::binary_backward(nullptr, plan, gpu_dy.data(), is_mul ? gpu_b.data() : nullptr, to->data(), scratch.data());
  }
  expect_close(out.download(), grad, kBound<T>, what);
  expect_same_bytes(out.download(), again.download(), what);
}

TYPED_TEST(CudaBinary, GradientsAreTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case& c : kCases) {
    for (const BinaryOp op : {BinaryOp::add, BinaryOp::mul}) {
      check_gradient<TypeParam>(c.y, c.a, c.b, op);
      check_gradient<TypeParam>(c.y, c.b, c.a, op);
    }
  }
}

TYPED_TEST(CudaBinary, SumOfManyIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const std::int64_t count : {std::int64_t{5}, std::int64_t{8192}, std::int64_t{30001}}) {
    for (const unsigned terms : {1u, 2u, 3u, 8u, 9u, 128u}) {
      std::vector<std::vector<T>> in;
      std::vector<const T*> pointers, gpu_pointers;
      std::vector<std::unique_ptr<DeviceArray<T>>> gpu;
      for (unsigned t = 0; t < terms; ++t) {
        in.push_back(random_values<T>(count, t, 0.1f));
        gpu.push_back(std::make_unique<DeviceArray<T>>(in.back()));
        gpu_pointers.push_back(gpu.back()->data());
      }
      for (const std::vector<T>& term : in) pointers.push_back(term.data());
      std::vector<T> sum(size(count));
      kernels::sum_n<T>(pointers, sum.data(), count, 0, kernels::blocks_of(count));
      DeviceArray<T> out(sum.size());
      cuda::sum_n<T>(nullptr, gpu_pointers, out.data(), count);
      expect_same_bytes(out.download(), sum, std::to_string(terms) + " terms");
      cuda::sum_n<T>(nullptr, gpu_pointers, gpu.back()->data(), count);
      expect_same_bytes(gpu.back()->download(), sum, std::to_string(terms) + " terms in place");
    }
  }
}

// A sum so far, and what is added to it.
template <class A, class Out>
void check_add_bf16() {
  for (const std::int64_t count : {std::int64_t{5}, std::int64_t{4096}, std::int64_t{30001}}) {
    const std::vector<A> a = random_values<A>(count, 1);
    const std::vector<bf16> b = random_values<bf16>(count, 2, 0.01f);
    std::vector<Out> want(size(count));
    kernels::add_bf16(a.data(), b.data(), want.data(), count, 0, kernels::blocks_of(count));
    DeviceArray<A> gpu_a(a);
    DeviceArray<bf16> gpu_b(b);
    DeviceArray<Out> out(want.size());
    cuda::add_bf16(nullptr, gpu_a.data(), gpu_b.data(), out.data(), count);
    expect_same_bytes(out.download(), want, "sum");
    if constexpr (std::is_same_v<A, Out>) {
      cuda::add_bf16(nullptr, gpu_a.data(), gpu_b.data(), gpu_a.data(), count);
      expect_same_bytes(gpu_a.download(), want, "on the sum so far");
    } else if constexpr (std::is_same_v<Out, bf16>) {
      cuda::add_bf16(nullptr, gpu_a.data(), gpu_b.data(), gpu_b.data(), count);
      expect_same_bytes(gpu_b.download(), want, "on what is added");
    }
  }
}

TEST(CudaSums, AddBf16ToSumsLikeTheCpu) {
  OVERTAKE_NEEDS_GPU();
  check_add_bf16<float, float>();
  check_add_bf16<float, bf16>();
  check_add_bf16<bf16, float>();
  check_add_bf16<bf16, bf16>();
}

}  // namespace
}  // namespace overtake
