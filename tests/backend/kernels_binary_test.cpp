#include "kernels/cpu/binary.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/cpu/block.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

using Dims = std::vector<std::int64_t>;

std::int64_t elements_of(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

// Strides of a contiguous tensor of shape `dims`, 0 where it is broadcast to `out`.
Dims broadcast_strides(const Dims& dims, const Dims& out) {
  Dims strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {
    strides[d] = dims[d] == 1 && out[d] != 1 ? 0 : stride;
    stride *= dims[d];
  }
  return strides;
}

// Index in an operand of flat element i of the output.
std::int64_t operand_index(std::int64_t i, const Dims& out, const Dims& strides) {
  std::int64_t at = 0;
  for (std::size_t d = out.size(); d-- > 0;) {
    at += i % out[d] * strides[d];
    i /= out[d];
  }
  return at;
}

struct Case {
  Dims a, b;
};

const std::vector<Case> kCases = {
    {{7}, {7}},
    {{1}, {1}},
    {{5, 1030}, {5, 1030}},
    {{33, 17}, {1, 17}},
    {{1, 3}, {50, 3}},
    {{4, 5, 6, 7}, {4, 1, 1, 7}},
    {{2, 1, 1, 1030}, {2, 9, 3, 1030}},
    {{10007}, {1}},
    {{1, 1}, {9, 555}},
    {{40, 300}, {40, 1}},
    {{6, 1}, {1, 9}},
    {{3, 1, 4, 1, 5, 1}, {1, 2, 1, 3, 1, 2}},
    {{2, 3, 4, 5, 2, 3}, {2, 1, 4, 1, 2, 3}},
    {{1, 3, 1, 5, 1, 3}, {2, 3, 4, 5, 2, 3}},
    {{3000, 64}, {1, 64}},
    {{200000}, {1}},
    {{2, 100000}, {2, 1}},
    {{90, 30, 70}, {1, 30, 1}},
};

Dims output_dims(const Case& shapes) {
  Dims out(shapes.a.size());
  for (std::size_t d = 0; d < out.size(); ++d) out[d] = std::max(shapes.a[d], shapes.b[d]);
  return out;
}

template <class T>
void check_forward(BinaryOp op) {
  for (const Case& shapes : kCases) {
    const Dims out = output_dims(shapes);
    const Dims a_strides = broadcast_strides(shapes.a, out), b_strides = broadcast_strides(shapes.b, out);
    const std::int64_t count = elements_of(out);
    const auto a = random_tensor<T>(elements_of(shapes.a), 1), b = random_tensor<T>(elements_of(shapes.b), 2);
    const BinaryPlan plan = make_binary_plan(out, a_strides, b_strides);
    const auto y = run_whole_and_split<T>(count, plan.units, [&](T* result, std::int64_t begin, std::int64_t end) {
      binary_forward(op, plan, a.data(), b.data(), result, begin, end);
    });
    std::vector<double> want;
    for (std::int64_t i = 0; i < count; ++i) {
      const double left = static_cast<double>(to_float(a[index(operand_index(i, out, a_strides))]));
      const double right = static_cast<double>(to_float(b[index(operand_index(i, out, b_strides))]));
      want.push_back(op == BinaryOp::add ? left + right : left * right);
    }
    expect_close(y, want, 1e-9);
    if (shapes.a == out) {
      const auto in_place = run_whole_and_split<T>(
          count, plan.units,
          [&](T* result, std::int64_t begin, std::int64_t end) {
            binary_forward(op, plan, result, b.data(), result, begin, end);
          },
          &a);
      EXPECT_EQ(to_doubles(y), to_doubles(in_place));
    }
  }
}

TEST(BinaryKernel, AddFloat) { check_forward<float>(BinaryOp::add); }
TEST(BinaryKernel, AddBf16) { check_forward<bf16>(BinaryOp::add); }
TEST(BinaryKernel, MulFloat) { check_forward<float>(BinaryOp::mul); }
TEST(BinaryKernel, MulBf16) { check_forward<bf16>(BinaryOp::mul); }

// Both phases, each whole and split.
template <class T>
std::vector<T> run_backward(const BinaryGradPlan& plan, const std::vector<T>& dy, const T* other) {
  if (plan.chunks == 1) {
    return run_whole_and_split<T>(plan.elements, plan.units, [&](T* grad, std::int64_t begin, std::int64_t end) {
      binary_backward<T>(plan, dy.data(), other, grad, nullptr, begin, end);
    });
  }
  const auto partials =
      run_whole_and_split<float>(plan.partials, plan.units, [&](float* sums, std::int64_t begin, std::int64_t end) {
        binary_backward<T>(plan, dy.data(), other, nullptr, sums, begin, end);
      });
  return run_whole_and_split<T>(plan.elements, plan.combine_units, [&](T* grad, std::int64_t begin, std::int64_t end) {
    binary_backward_combine(plan, partials.data(), grad, begin, end);
  });
}

// add and mul are linear in each operand, so the sum over outputs is the derivative exactly.
template <class T>
void check_backward(BinaryOp op, const Dims& operand_dims, const Dims& other_dims, const Dims& out) {
  const Dims strides = broadcast_strides(operand_dims, out), other_strides = broadcast_strides(other_dims, out);
  const bool is_mul = op == BinaryOp::mul;
  const BinaryGradPlan plan = make_binary_grad_plan(op, out, strides, is_mul ? other_strides : Dims{});
  ASSERT_EQ(plan.elements, elements_of(operand_dims));
  const auto dy = random_tensor<T>(elements_of(out), 3), other = random_tensor<T>(elements_of(other_dims), 4);
  const auto grad = run_backward<T>(plan, dy, is_mul ? other.data() : nullptr);
  std::vector<double> want(grad.size(), 0.0), scale(grad.size(), 0.0);
  for (std::int64_t i = 0; i < elements_of(out); ++i) {
    double term = static_cast<double>(to_float(dy[index(i)]));
    if (is_mul) term *= static_cast<double>(to_float(other[index(operand_index(i, out, other_strides))]));
    want[index(operand_index(i, out, strides))] += term;
    scale[index(operand_index(i, out, strides))] += std::fabs(term);
  }
  for (std::size_t i = 0; i < grad.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(to_float(grad[i])), want[i],
                3e-7 * scale[i] + 1.01 * kRounding<T> * std::fabs(want[i]))
        << i;
  }
}

template <class T>
void check_backward_cases(BinaryOp op) {
  for (const Case& shapes : kCases) {
    const Dims out = output_dims(shapes);
    check_backward<T>(op, shapes.a, shapes.b, out);
    check_backward<T>(op, shapes.b, shapes.a, out);
  }
}

TEST(BinaryKernel, AddBackwardFloat) { check_backward_cases<float>(BinaryOp::add); }
TEST(BinaryKernel, AddBackwardBf16) { check_backward_cases<bf16>(BinaryOp::add); }
TEST(BinaryKernel, MulBackwardFloat) { check_backward_cases<float>(BinaryOp::mul); }
TEST(BinaryKernel, MulBackwardBf16) { check_backward_cases<bf16>(BinaryOp::mul); }

template <class T>
void check_expand() {
  for (const Case& shapes : kCases) {
    for (const float scale : {1.0f, -1.0f / 7}) {
      const Dims out = output_dims(shapes), strides = broadcast_strides(shapes.b, out);
      const auto x = random_tensor<T>(elements_of(shapes.b), 5);
      const BinaryPlan plan = make_binary_plan(out, strides, strides);
      const auto y = run_whole_and_split<T>(
          elements_of(out), plan.units,
          [&](T* result, std::int64_t begin, std::int64_t end) { expand(plan, scale, x.data(), result, begin, end); });
      std::vector<double> want;
      for (std::int64_t i = 0; i < elements_of(out); ++i) {
        want.push_back(static_cast<double>(scale) *
                       static_cast<double>(to_float(x[index(operand_index(i, out, strides))])));
      }
      expect_close(y, want, 1e-9);
    }
  }
}

TEST(BinaryKernel, ExpandFloat) { check_expand<float>(); }
TEST(BinaryKernel, ExpandBf16) { check_expand<bf16>(); }

// An operand whose dims are in another order than those of the output, as an image in another layout.
TEST(BinaryKernel, ExpandOfATransposedOperand) {
  const Dims out = {3, 5, 7}, strides = {1, 3, 0};
  const auto x = random_tensor<float>(15, 6);
  const BinaryPlan plan = make_binary_plan(out, strides, strides);
  std::vector<float> y(105);
  expand(plan, 2.0f, x.data(), y.data(), 0, plan.units);
  for (std::int64_t i = 0; i < 105; ++i) EXPECT_EQ(y[index(i)], 2.0f * x[index(operand_index(i, out, strides))]);
}

// The sum of a tensor over the dims in which another is smaller, times a factor.
template <class T>
void check_scaled_sum() {
  for (const Case& shapes : kCases) {
    const Dims whole = output_dims(shapes), strides = broadcast_strides(shapes.b, whole);
    BinaryGradPlan plan = make_binary_grad_plan(BinaryOp::add, whole, strides, {});
    plan.scale = 1.0f / 3;
    const auto x = random_tensor<T>(elements_of(whole), 7);
    const auto sum = run_backward<T>(plan, x, nullptr);
    std::vector<double> want(sum.size(), 0.0), most(sum.size(), 0.0);
    for (std::int64_t i = 0; i < elements_of(whole); ++i) {
      const double term = static_cast<double>(plan.scale) * static_cast<double>(to_float(x[index(i)]));
      want[index(operand_index(i, whole, strides))] += term;
      most[index(operand_index(i, whole, strides))] += std::fabs(term);
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(to_float(sum[i])), want[i],
                  3e-7 * most[i] + 1.01 * kRounding<T> * std::fabs(want[i]))
          << i;
    }
  }
}

TEST(BinaryKernel, ScaledSumFloat) { check_scaled_sum<float>(); }
TEST(BinaryKernel, ScaledSumBf16) { check_scaled_sum<bf16>(); }

template <class T>
void check_sum_n() {
  for (const std::int64_t count : {1, 17, 1024, 5003}) {
    for (const std::size_t terms : {1u, 2u, 3u, 7u}) {
      std::vector<std::vector<T>> in;
      std::vector<const T*> pointers;
      for (std::size_t k = 0; k < terms; ++k) in.push_back(random_tensor<T>(count, 10 + static_cast<std::uint32_t>(k)));
      for (const auto& tensor : in) pointers.push_back(tensor.data());
      const auto sum = run_whole_and_split<T>(
          count, blocks_of(count),
          [&](T* out, std::int64_t begin, std::int64_t end) { sum_n<T>(pointers, out, count, begin, end); });
      // Left to right in float, so equal to the last bit.
      std::vector<double> want(index(count));
      for (std::size_t i = 0; i < want.size(); ++i) {
        float s = to_float(in[0][i]);
        for (std::size_t k = 1; k < terms; ++k) s += to_float(in[k][i]);
        want[i] = static_cast<double>(to_float(from_float<T>(s)));
      }
      EXPECT_EQ(to_doubles(sum), want);
      // In place over the last input.
      std::vector<T> last = in.back();
      pointers.back() = last.data();
      sum_n<T>(pointers, last.data(), count, 0, blocks_of(count));
      EXPECT_EQ(to_doubles(last), want);
    }
  }
}

template <class A, class Out>
void check_add_bf16() {
  for (const std::int64_t count : {1, 17, 1024, 5003}) {
    const auto a = random_tensor<A>(count, 1);
    const auto b = random_tensor<bf16>(count, 2);
    const auto sum = run_whole_and_split<Out>(
        count, blocks_of(count),
        [&](Out* out, std::int64_t begin, std::int64_t end) { add_bf16(a.data(), b.data(), out, count, begin, end); });
    for (std::size_t i = 0; i < sum.size(); ++i)
      EXPECT_EQ(to_float(sum[i]), to_float(from_float<Out>(to_float(a[i]) + to_float(b[i])))) << i;
  }
}

TEST(BinaryKernel, AddBf16ToSums) {
  check_add_bf16<float, float>();
  check_add_bf16<float, bf16>();
  check_add_bf16<bf16, float>();
}

TEST(BinaryKernel, SumNFloat) { check_sum_n<float>(); }
TEST(BinaryKernel, SumNBf16) { check_sum_n<bf16>(); }

}  // namespace
}  // namespace overtake::kernels
