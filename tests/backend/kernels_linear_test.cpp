#include "kernels/cpu/linear.h"

#include "kernels_matrix_reference.h"

namespace overtake::kernels {
namespace {

using namespace testing;

struct Layer {
  std::int64_t rows, in, out;
};

const Layer kLayers[] = {{1, 1, 1}, {3, 7, 17}, {70, 33, 20}, {29, 300, 530}, {128, 64, 96}, {140, 17, 3}};

double activate(std::optional<Activation> act, double x) {
  if (!act) return x;
  switch (*act) {
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::tanh:
      return std::tanh(x);
    default:
      ADD_FAILURE() << "no reference for this activation";
      return 0.0;
  }
}

// Values before the activation, by the definition.
std::vector<double> reference(const Layer& l, const std::vector<double>& x, const std::vector<double>& w,
                              const std::vector<double>& bias) {
  std::vector<double> y(size_of(l.rows * l.out));
  for (std::int64_t i = 0; i < l.rows; ++i) {
    for (std::int64_t o = 0; o < l.out; ++o) {
      double sum = bias.empty() ? 0.0 : bias[size_of(o)];
      for (std::int64_t j = 0; j < l.in; ++j) sum += x[size_of(i * l.in + j)] * w[size_of(o * l.in + j)];
      y[size_of(i * l.out + o)] = sum;
    }
  }
  return y;
}

template <class T>
void check_forward(const Layer& l, std::optional<Activation> act, bool with_bias, double tolerance) {
  SCOPED_TRACE(::testing::Message() << l.rows << " rows, " << l.in << " to " << l.out);
  const auto x = random_values<T>(l.rows * l.in, 1), w = random_values<T>(l.out * l.in, 2, 0.3f);
  const auto bias = random_values<float>(with_bias ? l.out : 0, 3);
  const float* bias_data = with_bias ? bias.data() : nullptr;
  std::vector<T> y(size_of(l.rows * l.out)), pre(y.size());
  linear_forward(x.data(), w.data(), bias_data, act, y.data(), pre.data(), l.in, l.out, 0, l.rows);

  std::vector<double> expected = reference(l, to_double(x), to_double(w), to_double(bias));
  expect_close(pre, expected, tolerance, "pre");
  for (double& e : expected) e = activate(act, e);
  expect_close(y, expected, tolerance, "y");

  std::vector<T> pieces(y.size());
  in_odd_pieces(l.rows, [&](std::int64_t begin, std::int64_t end) {
    linear_forward(x.data(), w.data(), bias_data, act, pieces.data(), static_cast<T*>(nullptr), l.in, l.out, begin,
                   end);
  });
  EXPECT_TRUE(same_bytes(y, pieces));
}

TEST(KernelsLinear, ForwardMatchesReferenceAndDoesNotDependOnTheRange) {
  for (const Layer& l : kLayers) {
    for (const std::optional<Activation> act : {std::optional<Activation>(), std::optional(Activation::relu),
                                                std::optional(Activation::gelu), std::optional(Activation::tanh)}) {
      check_forward<float>(l, act, true, 5e-6);
      check_forward<bf16>(l, act, true, 0x1p-8);
    }
    check_forward<float>(l, std::nullopt, false, 5e-6);
    check_forward<bf16>(l, std::nullopt, false, 0x1p-8);
  }
}

template <class T>
void check_gradients(const Layer& l, double tolerance) {
  SCOPED_TRACE(::testing::Message() << l.rows << " rows, " << l.in << " to " << l.out);
  const auto x = random_values<T>(l.rows * l.in, 1), w = random_values<T>(l.out * l.in, 2, 0.3f);
  const auto dy = random_values<T>(l.rows * l.out, 4);
  std::vector<T> dx(x.size()), dx_pieces(x.size());
  std::vector<float> dw(w.size()), dw_pieces(w.size()), dbias(size_of(l.out)), dbias_pieces(size_of(l.out));
  linear_input_grad(dy.data(), w.data(), dx.data(), l.in, l.out, 0, l.rows);
  linear_weight_grad(dy.data(), x.data(), dw.data(), l.rows, l.in, l.out, 0, l.out);
  linear_bias_grad(dy.data(), dbias.data(), l.rows, l.out, 0, l.out);

  // The loss is the sum of y * dy over all of y; y is linear in each argument.
  std::vector<double> x_value = to_double(x), w_value = to_double(w), bias_value(size_of(l.out), 0.5);
  const std::vector<double> dy_value = to_double(dy);
  const auto loss = [&] {
    const std::vector<double> y = reference(l, x_value, w_value, bias_value);
    double sum = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy_value[i];
    return sum;
  };
  expect_gradient(dx, x_value, loss, tolerance, "dx", 7);
  expect_gradient(dw, w_value, loss, 1e-4, "dw", 7);
  expect_gradient(dbias, bias_value, loss, 1e-4, "dbias", 7);

  in_odd_pieces(l.rows, [&](std::int64_t begin, std::int64_t end) {
    linear_input_grad(dy.data(), w.data(), dx_pieces.data(), l.in, l.out, begin, end);
  });
  in_odd_pieces(l.out, [&](std::int64_t begin, std::int64_t end) {
    linear_weight_grad(dy.data(), x.data(), dw_pieces.data(), l.rows, l.in, l.out, begin, end);
    linear_bias_grad(dy.data(), dbias_pieces.data(), l.rows, l.out, begin, end);
  });
  EXPECT_TRUE(same_bytes(dx, dx_pieces));
  EXPECT_TRUE(same_bytes(dw, dw_pieces));
  EXPECT_TRUE(same_bytes(dbias, dbias_pieces));
}

TEST(KernelsLinear, GradientsMatchFiniteDifferencesAndDoNotDependOnTheRange) {
  for (const Layer& l : kLayers) {
    check_gradients<float>(l, 1e-4);
    check_gradients<bf16>(l, 0x1p-7);
  }
}

}  // namespace
}  // namespace overtake::kernels
