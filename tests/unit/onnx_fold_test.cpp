#include "onnx_fold_case.h"

namespace overtake::onnx {
namespace {

// ---- reading

Constant read_back(const Message& tensor) {
  const File file = write::parsed(write::model({.initializers = {tensor}}));
  Budget budget(0);
  return read_constant(file.initializers.at(0), budget, "tensor");
}

TEST(OnnxConstant, ReadsEveryType) {
  EXPECT_TRUE(same(read_back(write::tensor<float>("t", {2}, {0.1f, -2})), reals({static_cast<double>(0.1f), -2})));
  EXPECT_TRUE(same(read_back(write::tensor<double>("t", {}, {0.1})), real(0.1)));
  EXPECT_TRUE(same(read_back(write::tensor<std::int64_t>("t", {1, 2}, {kSmallest, kLargest})),
                   integers({1, 2}, {kSmallest, kLargest})));
  EXPECT_TRUE(same(read_back(write::tensor<std::int32_t>("t", {2}, {-7, 7})), integers({-7, 7})));
  EXPECT_TRUE(same(read_back(write::tensor<std::int16_t>("t", {1}, {-300})), integers({-300})));
  EXPECT_TRUE(same(read_back(write::tensor<std::int8_t>("t", {1}, {-3})), integers({-3})));
  EXPECT_TRUE(same(read_back(write::tensor<std::uint8_t>("t", {1}, {250})), integers({250})));
  EXPECT_TRUE(same(read_back(write::tensor<std::uint16_t>("t", {1}, {65000})), integers({65000})));
  EXPECT_TRUE(same(read_back(write::tensor<std::uint32_t>("t", {1}, {4000000000})), integers({4000000000})));
  EXPECT_TRUE(same(read_back(write::tensor<std::uint64_t>("t", {1}, {5})), integers({5})));
  EXPECT_TRUE(
      same(read_back(write::tensor<std::uint8_t>("t", {3}, {0, 1, 2}, ElementType::boolean)), booleans({0, 1, 1})));
  // 1, -2, the largest, the smallest, infinity, NaN
  EXPECT_TRUE(same(read_back(write::tensor<std::uint16_t>("t", {6}, {0x3c00, 0xc000, 0x7bff, 0x0001, 0xfc00, 0x7e00},
                                                          ElementType::f16)),
                   reals({1, -2, 65504, 0x1p-24, -kInf, NAN})));
  EXPECT_TRUE(same(read_back(write::tensor<std::uint16_t>("t", {2}, {0x3fc0, 0xff80}, ElementType::bf16)),
                   reals({1.5, -kInf})));
  EXPECT_TRUE(same(read_back(write::tensor<float>("t", {0, 3}, {})), reals({0, 3}, {})));
}

TEST(OnnxConstant, RefusesTextAndWhatDoesNotFit) {
  EXPECT_TRUE(says(user_error([] { read_back(write::bare_tensor("t", ElementType::text, {1})); }), {"tensor", "text"}));
  EXPECT_TRUE(says(user_error([] { read_back(write::tensor<std::uint64_t>("t", {1}, {~std::uint64_t{0}})); }),
                   {"tensor", "18446744073709551615", "too large"}));
}

TEST(OnnxConstant, TheBudgetGrowsWithTheFileAndEnds) {
  Budget budget(100, 1000);
  budget.take(1390, "first");
  budget.take(10, "second");
  EXPECT_TRUE(says(user_error([&] { budget.take(1, "third"); }), {"third", "1 elements where 0 are left"}));
  EXPECT_TRUE(says(error_of("ConstantOfShape", {integers({1 << 20, 1 << 20})}),
                   {"1099511627776 elements", "much more than the file"}));
}

TEST(OnnxFold, KnowsItsOps) {
  Node node = node_of("Softmax", 1, {}, 1);
  EXPECT_FALSE(is_foldable(node));
  node.op = "Add";
  EXPECT_TRUE(is_foldable(node));
  node.domain = "other";
  EXPECT_FALSE(is_foldable(node));
}

// ---- making

TEST(OnnxFold, Constant) {
  EXPECT_TRUE(same(folded("Constant", {}, {write::attribute("value", write::tensor<std::int64_t>("", {2}, {1, 2}))}),
                   integers({1, 2})));
  EXPECT_TRUE(same(folded("Constant", {}, {write::attribute("value_int", 7)}), integer(7)));
  EXPECT_TRUE(same(folded("Constant", {}, {write::attribute("value_float", 0.5f)}), real(0.5)));
  EXPECT_TRUE(same(folded("Constant", {}, {ints("value_ints", {3, 4})}), integers({3, 4})));
  EXPECT_TRUE(
      same(folded("Constant", {}, {write::attribute("value_floats", std::vector<float>{3, 4})}), reals({3, 4})));
  EXPECT_TRUE(says(error_of("Constant", {}, {write::attribute("value_string", "a")}), {"no value"}));
}

TEST(OnnxFold, ConstantOfShape) {
  EXPECT_TRUE(same(folded("ConstantOfShape", {integers({2, 1})}), reals({2, 1}, {0, 0})));
  EXPECT_TRUE(same(folded("ConstantOfShape", {integers({})}), real(0)));
  EXPECT_TRUE(same(folded("ConstantOfShape", {integers({0, 2})}), reals({0, 2}, {})));
  EXPECT_TRUE(same(folded("ConstantOfShape", {integers({2})},
                          {write::attribute("value", write::tensor<std::uint8_t>("", {1}, {1}, ElementType::boolean))}),
                   booleans({1, 1})));
  EXPECT_TRUE(says(error_of("ConstantOfShape", {integers({-1, 2})}), {"[-1, 2]"}));
  EXPECT_TRUE(says(error_of("ConstantOfShape", {integers({kLargest, kLargest})}), {"no tensor"}));
  EXPECT_TRUE(says(error_of("ConstantOfShape", {integers({33}, std::vector<std::int64_t>(33, 1))}), {"no tensor"}));
  EXPECT_TRUE(says(error_of("ConstantOfShape", {reals({2, 1})}), {"input 0", "whole numbers"}));
  EXPECT_TRUE(says(error_of("ConstantOfShape", {integers({2, 1})},
                            {write::attribute("value", write::tensor<float>("", {2}, {1, 2}))}),
                   {"2 elements instead of one"}));
}

TEST(OnnxFold, Range) {
  EXPECT_TRUE(same(folded("Range", {integer(1), integer(8), integer(3)}), integers({1, 4, 7})));
  EXPECT_TRUE(same(folded("Range", {integer(5), integer(0), integer(-2)}), integers({5, 3, 1})));
  EXPECT_TRUE(same(folded("Range", {integer(5), integer(0), integer(2)}), integers({})));
  EXPECT_TRUE(same(folded("Range", {real(0), real(1), real(0.25)}), reals({0, 0.25, 0.5, 0.75})));
  const std::int64_t half = std::int64_t{1} << 62;
  EXPECT_TRUE(same(folded("Range", {integer(kSmallest), integer(kLargest), integer(half)}),
                   integers({kSmallest, -half, 0, half})));
  EXPECT_TRUE(says(error_of("Range", {integer(0), integer(8), integer(0)}), {"delta is 0"}));
  EXPECT_TRUE(says(error_of("Range", {integer(kSmallest), integer(kLargest), integer(1)}), {"no tensor"}));
  EXPECT_TRUE(says(error_of("Range", {real(0), real(kInf), real(1)}), {"inf", "no range"}));
  EXPECT_TRUE(says(error_of("Range", {real(0), real(1e300), real(1)}), {"no tensor"}));
  EXPECT_TRUE(says(error_of("Range", {integer(0), real(8), integer(1)}), {"one kind"}));
}

TEST(OnnxFold, EyeLike) {
  EXPECT_TRUE(same(folded("EyeLike", {reals({2, 3}, {9, 9, 9, 9, 9, 9})}), reals({2, 3}, {1, 0, 0, 0, 1, 0})));
  EXPECT_TRUE(
      same(folded("EyeLike", {reals({2, 2}, {9, 9, 9, 9})}, {write::attribute("k", -1), write::attribute("dtype", 7)}),
           integers({2, 2}, {0, 0, 1, 0})));
  EXPECT_TRUE(same(folded("EyeLike", {integers({2, 2}, {9, 9, 9, 9})}, {write::attribute("k", kSmallest)}),
                   integers({2, 2}, {0, 0, 0, 0})));
  EXPECT_TRUE(says(error_of("EyeLike", {reals({1, 2})}), {"1 dimensions instead of 2"}));
  EXPECT_TRUE(says(error_of("EyeLike", {reals({1, 1}, {1})}, {write::attribute("dtype", 8)}), {"element type 8"}));
}

TEST(OnnxFold, OneHot) {
  EXPECT_TRUE(same(folded("OneHot", {integers({1, -1, 5}), integer(3), reals({0, 9})}),
                   reals({3, 3}, {0, 9, 0, 0, 0, 9, 0, 0, 0})));
  EXPECT_TRUE(same(folded("OneHot", {integers({1, 0}), integers({3}), integers({2, 4})}, {write::attribute("axis", 0)}),
                   integers({3, 2}, {2, 4, 4, 2, 2, 2})));
  EXPECT_TRUE(says(error_of("OneHot", {integers({1, 0}), integer(-3), reals({0, 1})}), {"[2, -3]"}));
  EXPECT_TRUE(says(error_of("OneHot", {integers({1, 0}), integer(3), reals({0, 1, 2})}), {"off and on"}));
}

TEST(OnnxFold, NonZero) {
  EXPECT_TRUE(same(folded("NonZero", {reals({2, 3}, {0, 1, 0, NAN, 0, -1})}), integers({2, 3}, {0, 1, 1, 1, 0, 2})));
  EXPECT_TRUE(same(folded("NonZero", {integer(4)}), integers({0, 1}, {})));
  EXPECT_TRUE(same(folded("NonZero", {booleans({0, 0})}), integers({1, 0}, {})));
}

// ---- casting

TEST(OnnxFold, Cast) {
  const auto cast = [](const Constant& input, int to) { return folded("Cast", {input}, {write::attribute("to", to)}); };
  EXPECT_TRUE(same(cast(reals({1.9, -1.9, NAN, 1e300, -1e300}), 7), integers({1, -1, 0, kLargest, kSmallest})));
  EXPECT_TRUE(same(cast(integers({300, -1, 128}), 2), integers({44, 255, 128})));
  EXPECT_TRUE(same(cast(integers({300, -1, 128}), 3), integers({44, -1, -128})));
  EXPECT_TRUE(same(cast(integers({std::int64_t{1} << 32, kLargest}), 6), integers({0, -1})));
  EXPECT_TRUE(same(cast(reals({0, -0.5, NAN}), 9), booleans({0, 1, 1})));
  EXPECT_TRUE(same(cast(booleans({0, 1}), 1), reals({0, 1})));
  EXPECT_TRUE(same(cast(reals({0.1, 0.1}), 11), reals({0.1, 0.1})));
  EXPECT_TRUE(same(cast(reals({0.1, 1e300}), 1), reals({static_cast<double>(0.1f), kInf})));
  // Half precision: ties to even, the largest, beyond it, the smallest and half of it.
  EXPECT_TRUE(same(cast(reals({2049, 2051, 65519, 65520, 0x1p-24, 0x1p-25, -kInf}), 10),
                   reals({2048, 2052, 65504, kInf, 0x1p-24, 0, -kInf})));
  EXPECT_TRUE(same(cast(reals({257, 259, 0.1}), 16), reals({256, 260, 0.10009765625})));
  EXPECT_TRUE(same(folded("CastLike", {reals({1.5, 2}), integers({0, 1})}), integers({1, 2})));
  EXPECT_TRUE(says(error_of("Cast", {reals({1, 2})}, {write::attribute("to", 8)}), {"attribute to", "element type 8"}));
  EXPECT_TRUE(says(error_of("Cast", {integers({1, -2})}, {write::attribute("to", 13)}), {"-2 does not fit uint64"}));
}

// ---- arithmetic

TEST(OnnxFold, Unary) {
  EXPECT_TRUE(same(folded("Neg", {integers({1, kSmallest})}), integers({-1, kSmallest})));
  EXPECT_TRUE(same(folded("Neg", {reals({1, -kInf})}), reals({-1, kInf})));
  EXPECT_TRUE(same(folded("Abs", {integers({-3, 3})}), integers({3, 3})));
  EXPECT_TRUE(same(folded("Sign", {reals({-3, 0, NAN})}), reals({-1, 0, NAN})));
  EXPECT_TRUE(same(folded("Sign", {integers({-3, 0, 9})}), integers({-1, 0, 1})));
  EXPECT_TRUE(same(folded("Floor", {reals({-1.5, 1.5})}), reals({-2, 1})));
  EXPECT_TRUE(same(folded("Ceil", {reals({-1.5, 1.5})}), reals({-1, 2})));
  EXPECT_TRUE(same(folded("Round", {reals({0.5, 1.5, -2.5})}), reals({0, 2, -2})));
  EXPECT_TRUE(same(folded("Sqrt", {reals({64, 2})}), reals({8, static_cast<double>(std::sqrt(2.0f))})));
  EXPECT_TRUE(same(folded("Reciprocal", {reals({4, 0})}), reals({0.25, kInf})));
  EXPECT_TRUE(same(folded("Exp", {reals({0, -kInf})}), reals({1, 0})));
  EXPECT_TRUE(same(folded("Log", {reals({1, 0})}), reals({0, -kInf})));
  EXPECT_TRUE(same(folded("Sin", {reals({0, 1})}), reals({0, static_cast<double>(0.841470985f)})));
  EXPECT_TRUE(same(folded("Cos", {reals({0, 1})}), reals({1, static_cast<double>(0.540302306f)})));
  EXPECT_TRUE(same(folded("Tanh", {reals({0, 1})}), reals({0, static_cast<double>(0.761594156f)})));
  EXPECT_TRUE(same(folded("Erf", {reals({0, 1})}), reals({0, static_cast<double>(0.842700793f)})));
  EXPECT_TRUE(same(folded("Sigmoid", {reals({0, 1})}), reals({0.5, static_cast<double>(0.731058579f)})));
  EXPECT_TRUE(same(folded("Not", {booleans({0, 1})}), booleans({1, 0})));
  EXPECT_TRUE(same(folded("IsNaN", {reals({NAN, kInf})}), booleans({1, 0})));
  EXPECT_TRUE(same(folded("IsInf", {reals({NAN, kInf, -kInf})}), booleans({0, 1, 1})));
  EXPECT_TRUE(
      same(folded("IsInf", {reals({kInf, -kInf})}, {write::attribute("detect_positive", 0)}), booleans({0, 1})));
  EXPECT_TRUE(says(error_of("Sqrt", {integers({1, 2})}), {"whole numbers instead of real numbers"}));
  EXPECT_TRUE(says(error_of("Neg", {booleans({1, 0})}), {"booleans"}));
  EXPECT_TRUE(says(error_of("Not", {integers({1, 0})}), {"whole numbers instead of booleans"}));
  EXPECT_TRUE(says(error_of("Neg", {}), {"input 0 is missing"}));
}

// The model computes in float32: 0.7f * 10 is 7 there, but less in float64.
TEST(OnnxFold, ComputesInSinglePrecision) {
  const Constant product = folded("Mul", {real(static_cast<double>(0.7f)), real(10)});
  EXPECT_TRUE(same(folded("Floor", {product}), real(7)));
}

TEST(OnnxFold, ArithmeticBroadcasts) {
  EXPECT_TRUE(same(folded("Add", {integers({2, 1}, {10, 20}), integers({1, 2, 3})}),
                   integers({2, 3}, {11, 12, 13, 21, 22, 23})));
  EXPECT_TRUE(same(folded("Sub", {integer(1), integers({1, 2, 3})}), integers({0, -1, -2})));
  EXPECT_TRUE(same(folded("Mul", {reals({2, 1, 2}, {1, 2, 3, 4}), reals({1, 2, 1}, {10, 100})}),
                   reals({2, 2, 2}, {10, 20, 100, 200, 30, 40, 300, 400})));
  EXPECT_TRUE(same(folded("Add", {integers({2, 0}, {}), integers({2, 1}, {1, 2})}), integers({2, 0}, {})));
  EXPECT_TRUE(same(folded("Add", {integer(kLargest), integer(1)}), integer(kSmallest)));
  EXPECT_TRUE(same(folded("Mul", {integer(kLargest), integer(2)}), integer(-2)));
  EXPECT_TRUE(says(error_of("Add", {integers({1, 2}), integers({1, 2, 3})}), {"[2] and [3] do not fit"}));
  EXPECT_TRUE(says(error_of("Add", {integers({1, 2}), reals({1, 2})}), {"whole numbers and real numbers"}));
  EXPECT_TRUE(says(error_of("Add", {booleans({1, 0}), booleans({1, 0})}), {"booleans"}));
  EXPECT_TRUE(says(error_of("Add", {integers({1, 2}), kAbsent}), {"input 1 is missing"}));
}

TEST(OnnxFold, DivisionsAndPowers) {
  EXPECT_TRUE(same(folded("Div", {integers({7, -7, 7, kSmallest}), integers({2, 2, -2, -1})}),
                   integers({3, -3, -3, kSmallest})));
  EXPECT_TRUE(same(folded("Div", {reals({1, -1}), real(0)}), reals({kInf, -kInf})));
  EXPECT_TRUE(same(folded("Mod", {integers({7, -7, 7, -7, kSmallest}), integers({3, 3, -3, -3, -1})}),
                   integers({1, 2, -2, -1, 0})));
  EXPECT_TRUE(same(folded("Mod", {integers({7, -7, 7}), integers({3, 3, -3})}, {write::attribute("fmod", 1)}),
                   integers({1, -1, 1})));
  EXPECT_TRUE(same(folded("Mod", {reals({7.5, -7.5}), real(2)}, {write::attribute("fmod", 1)}), reals({1.5, -1.5})));
  EXPECT_TRUE(same(folded("Pow", {integers({2, -3, 5, -1, 7}), integers({10, 3, 0, -3, -1})}),
                   integers({1024, -27, 1, -1, 0})));
  EXPECT_TRUE(same(folded("Pow", {reals({2, 4}), integers({-1, 2})}), reals({0.5, 16})));
  EXPECT_TRUE(same(folded("Pow", {integers({9, 2}), reals({0.5, 3})}), integers({3, 8})));
  EXPECT_TRUE(says(error_of("Div", {integers({7, 8}), integer(0)}), {"7 is divided by 0"}));
  EXPECT_TRUE(says(error_of("Mod", {integers({7, 8}), integer(0)}), {"7 is divided by 0"}));
  EXPECT_TRUE(says(error_of("Mod", {reals({7, 8}), real(2)}), {"fmod = 1"}));
  EXPECT_TRUE(says(error_of("Pow", {integer(0), integer(-1)}), {"0 to the power of -1"}));
}

TEST(OnnxFold, MinMaxClip) {
  EXPECT_TRUE(same(folded("Min", {reals({1, 5, NAN}), real(3), reals({2, 9, 9})}), reals({1, 3, NAN})));
  EXPECT_TRUE(same(folded("Max", {integers({1, 5}), integers({2, 1}, {3, 4})}), integers({2, 2}, {3, 5, 4, 5})));
  EXPECT_TRUE(same(folded("Max", {reals({1, 5})}), reals({1, 5})));
  EXPECT_TRUE(same(folded("Clip", {reals({-5, 0.5, 9, NAN}), real(-1), real(1)}), reals({-1, 0.5, 1, NAN})));
  EXPECT_TRUE(same(folded("Clip", {integers({-5, 9}), kAbsent, integer(3)}), integers({-5, 3})));
  EXPECT_TRUE(says(error_of("Clip", {integers({-5, 9}), real(0)}), {"input 1"}));
}

TEST(OnnxFold, ComparisonsAndLogic) {
  const Constant a = integers({1, 2, 3}), b = integer(2);
  EXPECT_TRUE(same(folded("Equal", {a, b}), booleans({0, 1, 0})));
  EXPECT_TRUE(same(folded("Less", {a, b}), booleans({1, 0, 0})));
  EXPECT_TRUE(same(folded("LessOrEqual", {a, b}), booleans({1, 1, 0})));
  EXPECT_TRUE(same(folded("Greater", {a, b}), booleans({0, 0, 1})));
  EXPECT_TRUE(same(folded("GreaterOrEqual", {a, b}), booleans({0, 1, 1})));
  EXPECT_TRUE(same(folded("Equal", {reals({NAN, 1}), reals({NAN, 1})}), booleans({0, 1})));
  EXPECT_TRUE(
      same(folded("Equal", {integers({kLargest, kLargest}), integers({kLargest - 1, kLargest})}), booleans({0, 1})));
  const Constant p = booleans({0, 0, 1, 1}), q = booleans({0, 1, 0, 1});
  EXPECT_TRUE(same(folded("And", {p, q}), booleans({0, 0, 0, 1})));
  EXPECT_TRUE(same(folded("Or", {p, q}), booleans({0, 1, 1, 1})));
  EXPECT_TRUE(same(folded("Xor", {p, q}), booleans({0, 1, 1, 0})));
  EXPECT_TRUE(same(folded("Where", {booleans({2, 1}, {1, 0}), reals({1, 2}), real(9)}), reals({2, 2}, {1, 2, 9, 9})));
  EXPECT_TRUE(says(error_of("Less", {p, q}), {"booleans instead of numbers"}));
  EXPECT_TRUE(says(error_of("And", {a, a}), {"whole numbers"}));
  EXPECT_TRUE(says(error_of("Where", {a, a, a}), {"condition holds whole numbers"}));
  EXPECT_TRUE(says(error_of("Where", {booleans({1, 0}), a, a}), {"[2] and [3] do not fit"}));
}

}  // namespace
}  // namespace overtake::onnx
