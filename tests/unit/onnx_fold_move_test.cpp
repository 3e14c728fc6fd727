#include "onnx_fold_case.h"

namespace overtake::onnx {
namespace {

// ---- shapes

const Constant kBlock = integers({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(OnnxFold, ShapeAndSize) {
  EXPECT_TRUE(same(folded("Identity", {kBlock}), kBlock));
  EXPECT_TRUE(same(folded("Shape", {kBlock}), integers({2, 3})));
  EXPECT_TRUE(same(folded("Shape", {kBlock}, {write::attribute("start", -1)}), integers({3})));
  EXPECT_TRUE(
      same(folded("Shape", {kBlock}, {write::attribute("start", -9), write::attribute("end", -1)}), integers({2})));
  EXPECT_TRUE(same(folded("Shape", {kBlock}, {write::attribute("start", 2)}), integers({})));
  EXPECT_TRUE(same(folded("Shape", {integer(3)}), integers({})));
  EXPECT_TRUE(same(folded("Size", {kBlock}), integer(6)));
  EXPECT_TRUE(same(folded("Size", {reals({0, 3}, {})}), integer(0)));
}

TEST(OnnxFold, ReshapeAndFlatten) {
  EXPECT_TRUE(same(folded("Reshape", {kBlock, integers({3, -1})}), integers({3, 2}, {1, 2, 3, 4, 5, 6})));
  EXPECT_TRUE(same(folded("Reshape", {kBlock, integers({0, 1, -1})}), integers({2, 1, 3}, {1, 2, 3, 4, 5, 6})));
  EXPECT_TRUE(same(folded("Reshape", {integers({2, 0}, {}), integers({0, 5})}, {write::attribute("allowzero", 1)}),
                   integers({0, 5}, {})));
  EXPECT_TRUE(same(folded("Reshape", {integers({4}), integers({})}), integer(4)));
  EXPECT_TRUE(says(error_of("Reshape", {kBlock, integers({4, -1})}), {"6 elements do not fit", "[4, -1]"}));
  EXPECT_TRUE(says(error_of("Reshape", {kBlock, integers({-1, -1})}), {"two dimensions open"}));
  EXPECT_TRUE(says(error_of("Reshape", {kBlock, integers({7, 1})}), {"6 elements do not fit shape [7, 1]"}));
  EXPECT_TRUE(says(error_of("Reshape", {kBlock, integers({2, 3, 0})}), {"keeps a dimension"}));
  EXPECT_TRUE(says(error_of("Reshape", {kBlock, integers({-2, -3})}), {"do not fit shape [-2, -3]"}));
  EXPECT_TRUE(says(error_of("Reshape", {integers({2, 0}, {}), integers({0, -1})}, {write::attribute("allowzero", 1)}),
                   {"do not fit"}));
  EXPECT_TRUE(same(folded("Flatten", {integers({1, 2, 3}, {1, 2, 3, 4, 5, 6})}), integers({1, 6}, {1, 2, 3, 4, 5, 6})));
  EXPECT_TRUE(same(folded("Flatten", {kBlock}, {write::attribute("axis", 0)}), integers({1, 6}, {1, 2, 3, 4, 5, 6})));
  EXPECT_TRUE(same(folded("Flatten", {kBlock}, {write::attribute("axis", 2)}), integers({6, 1}, {1, 2, 3, 4, 5, 6})));
  EXPECT_TRUE(says(error_of("Flatten", {kBlock}, {write::attribute("axis", 3)}), {"axis 3", "2 dimensions"}));
}

TEST(OnnxFold, SqueezeAndUnsqueeze) {
  const Constant ones = integers({1, 2, 1}, {4, 5});
  EXPECT_TRUE(same(folded("Squeeze", {ones}), integers({4, 5})));
  EXPECT_TRUE(same(folded("Squeeze", {ones, integers({-1})}), integers({1, 2}, {4, 5})));
  EXPECT_TRUE(same(folded("Squeeze", {ones}, {ints("axes", {0})}), integers({2, 1}, {4, 5})));
  EXPECT_TRUE(same(folded("Unsqueeze", {integers({4, 5}), integers({0, -1})}), ones));
  EXPECT_TRUE(same(folded("Unsqueeze", {integer(4)}, {ints("axes", {0})}), integers({4})));
  EXPECT_TRUE(says(error_of("Squeeze", {ones, integers({1})}), {"dimension 1 of [1, 2, 1] is not 1"}));
  EXPECT_TRUE(says(error_of("Unsqueeze", {ones, integers({0, 0})}), {"axis 0 is there twice"}));
  EXPECT_TRUE(says(error_of("Unsqueeze", {ones, integers({5})}), {"axis 5"}));
  EXPECT_TRUE(says(error_of("Unsqueeze", {ones}), {"no axes"}));
  EXPECT_TRUE(says(error_of("Unsqueeze", {ones, integers({40}, std::vector<std::int64_t>(40, 0))}), {"43 dimensions"}));
}

// ---- moving

TEST(OnnxFold, TransposeExpandTile) {
  EXPECT_TRUE(same(folded("Transpose", {kBlock}), integers({3, 2}, {1, 4, 2, 5, 3, 6})));
  EXPECT_TRUE(same(folded("Transpose", {integers({1, 2, 3}, {1, 2, 3, 4, 5, 6})}, {ints("perm", {2, 0, 1})}),
                   integers({3, 1, 2}, {1, 4, 2, 5, 3, 6})));
  EXPECT_TRUE(says(error_of("Transpose", {kBlock}, {ints("perm", {0, 0})}), {"axis 0 is there twice"}));
  EXPECT_TRUE(says(error_of("Transpose", {kBlock}, {ints("perm", {1})}), {"1 of 2 dimensions"}));
  EXPECT_TRUE(same(folded("Expand", {integers({2, 1}, {7, 8}), integers({3, 1, 2})}),
                   integers({3, 2, 2}, {7, 7, 8, 8, 7, 7, 8, 8, 7, 7, 8, 8})));
  EXPECT_TRUE(same(folded("Expand", {kBlock, integers({1, 1})}), kBlock));
  EXPECT_TRUE(says(error_of("Expand", {kBlock, integers({2, 2})}), {"[2, 3] does not fit [2, 2]"}));
  EXPECT_TRUE(says(error_of("Expand", {integer(1), integers({1 << 30, 1 << 20})}), {"no tensor"}));
  EXPECT_TRUE(
      same(folded("Tile", {integers({1, 2}, {1, 2}), integers({2, 2})}), integers({2, 4}, {1, 2, 1, 2, 1, 2, 1, 2})));
  EXPECT_TRUE(same(folded("Tile", {kBlock, integers({0, 2})}), integers({0, 6}, {})));
  EXPECT_TRUE(says(error_of("Tile", {kBlock, integers({2, -1})}), {"-1 repeats"}));
  EXPECT_TRUE(says(error_of("Tile", {kBlock, integers({2, kLargest})}), {"repeats"}));
  EXPECT_TRUE(says(error_of("Tile", {kBlock, integers({1, 2, 3})}), {"3 repeats for 2 dimensions"}));
}

TEST(OnnxFold, Slice) {
  const Constant line = integers({0, 1, 2, 3, 4});
  const auto slice = [&](std::int64_t start, std::int64_t end, std::int64_t step) {
    const auto one = [](std::int64_t value) { return integers({value}); };
    return folded("Slice", {line, one(start), one(end), one(0), one(step)});
  };
  EXPECT_TRUE(same(slice(1, 4, 1), integers({1, 2, 3})));
  EXPECT_TRUE(same(slice(-2, kLargest, 1), integers({3, 4})));
  EXPECT_TRUE(same(slice(kSmallest, 2, 1), integers({0, 1})));
  EXPECT_TRUE(same(slice(0, 5, 2), integers({0, 2, 4})));
  EXPECT_TRUE(same(slice(0, 5, kLargest), integers({0})));
  EXPECT_TRUE(same(slice(4, 0, -1), integers({4, 3, 2, 1})));
  EXPECT_TRUE(same(slice(kLargest, kSmallest, -1), integers({4, 3, 2, 1, 0})));
  EXPECT_TRUE(same(slice(-1, kSmallest, -3), integers({4, 1})));
  EXPECT_TRUE(same(slice(2, kSmallest, kSmallest), integers({2})));
  EXPECT_TRUE(same(slice(3, 3, 1), integers({})));
  EXPECT_TRUE(same(slice(-9, kSmallest, -1), integers({0})));
  EXPECT_TRUE(same(slice(9, 12, 1), integers({})));
  EXPECT_TRUE(same(folded("Slice", {kBlock, integers({0, 1}), integers({2, 3})}), integers({2, 2}, {2, 3, 5, 6})));
  EXPECT_TRUE(
      same(folded("Slice", {kBlock, integers({0, -1}), integers({1, kSmallest}), integers({0, -1}), integers({1, -2})}),
           integers({1, 2}, {3, 1})));
  EXPECT_TRUE(same(folded("Slice", {integers({0, 3}, {}), integers({0, 1}), integers({2, 3})}), integers({0, 2}, {})));
  EXPECT_TRUE(same(folded("Slice", {integers({0}, {}), integers({0}), integers({1}), integers({0}), integers({-1})}),
                   integers({})));
  EXPECT_TRUE(says(error_of("Slice", {kBlock, integers({0, 1}), integers({2, 3}), integers({0, 1}), integers({1, 0})}),
                   {"a step is 0"}));
  EXPECT_TRUE(says(error_of("Slice", {kBlock, integers({0, 1}), integers({2, 3}), integers({0, -2})}),
                   {"axis 0 is there twice"}));
  EXPECT_TRUE(says(error_of("Slice", {kBlock, integers({0, 1}), integers({2, 3, 4})}), {"2 starts, 3 ends"}));
  EXPECT_TRUE(
      says(error_of("Slice", {kBlock, integers({0, 1, 2}), integers({2, 3, 4})}), {"3 starts for 2 dimensions"}));
}

TEST(OnnxFold, SplitAndConcat) {
  const std::vector<Constant> parts = fold_all("Split", {kBlock, integers({2, 1})}, {write::attribute("axis", -1)}, 2);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_TRUE(same(parts[0], integers({2, 2}, {1, 2, 4, 5})));
  EXPECT_TRUE(same(parts[1], integers({2, 1}, {3, 6})));
  EXPECT_TRUE(same(fold_all("Split", {kBlock}, {}, 2).at(1), integers({1, 3}, {4, 5, 6})));
  const std::vector<Constant> uneven =
      fold_all("Split", {kBlock}, {write::attribute("axis", 1), write::attribute("num_outputs", 2)}, 2);
  EXPECT_TRUE(same(uneven.at(1), integers({2, 1}, {3, 6})));
  EXPECT_TRUE(
      says(error_of("Split", {kBlock}, {write::attribute("axis", 1)}, 2), {"3 elements do not split into 2 parts"}));
  EXPECT_TRUE(says(error_of("Split", {kBlock, integers({2, 2})}, {write::attribute("axis", 1)}, 2), {"do not split"}));
  EXPECT_TRUE(says(error_of("Split", {kBlock, integers({-1, 4})}, {write::attribute("axis", 1)}, 2), {"do not split"}));
  EXPECT_TRUE(says(error_of("Split", {kBlock, integers({1, 2})}, {write::attribute("axis", 1)}, 3), {"do not split"}));

  EXPECT_TRUE(
      same(folded("Concat", {parts[0], integers({2, 0}, {}), parts[1]}, {write::attribute("axis", 1)}), kBlock));
  EXPECT_TRUE(
      same(folded("Concat", {integers({1, 2}), integers({3})}, {write::attribute("axis", -1)}), integers({1, 2, 3})));
  EXPECT_TRUE(
      says(error_of("Concat", {kBlock, integers({1, 2})}, {write::attribute("axis", 0)}), {"[2, 3]", "[2]", "axis 0"}));
  EXPECT_TRUE(
      says(error_of("Concat", {kBlock, parts[0]}, {write::attribute("axis", 0)}), {"do not join along axis 0"}));
  EXPECT_TRUE(says(error_of("Concat", {integers({1, 2}), reals({1, 2})}, {write::attribute("axis", 0)}),
                   {"whole numbers", "real numbers"}));
  EXPECT_TRUE(says(error_of("Concat", {kBlock}), {"no axis"}));
}

TEST(OnnxFold, PadAndTrilu) {
  const Constant line = integers({1, 2});
  EXPECT_TRUE(same(folded("Pad", {line, integers({1, 2})}), integers({0, 1, 2, 0, 0})));
  EXPECT_TRUE(same(folded("Pad", {line, integers({-1, 1}), integer(7)}), integers({2, 7})));
  EXPECT_TRUE(same(folded("Pad", {kBlock, integers({1, 0}), integer(9), integers({0})}),
                   integers({3, 3}, {9, 9, 9, 1, 2, 3, 4, 5, 6})));
  EXPECT_TRUE(same(folded("Pad", {kBlock, integers({0, 1, 0, -1})}), integers({2, 3}, {0, 1, 2, 0, 4, 5})));
  EXPECT_TRUE(same(folded("Pad", {integers({0}, {}), integers({1, 1})}), integers({0, 0})));
  EXPECT_TRUE(says(error_of("Pad", {line, integers({-2, -1})}), {"[-1]"}));
  EXPECT_TRUE(says(error_of("Pad", {line, integers({kLargest, kSmallest})}), {"elements of padding"}));
  EXPECT_TRUE(says(error_of("Pad", {line, integers({1, 1, 1})}), {"3 pads for 1 dimensions"}));
  EXPECT_TRUE(
      says(error_of("Pad", {line, integers({1, 1})}, {write::attribute("mode", "reflect")}), {"mode constant"}));
  EXPECT_TRUE(says(error_of("Pad", {line, integers({1, 1}), real(0)}), {"not one of the kind"}));
  EXPECT_TRUE(same(folded("Trilu", {kBlock}), integers({2, 3}, {1, 2, 3, 0, 5, 6})));
  EXPECT_TRUE(same(folded("Trilu", {kBlock, integer(1)}), integers({2, 3}, {0, 2, 3, 0, 0, 6})));
  EXPECT_TRUE(same(folded("Trilu", {kBlock}, {write::attribute("upper", 0)}), integers({2, 3}, {1, 0, 0, 4, 5, 0})));
  EXPECT_TRUE(says(error_of("Trilu", {line}), {"needs a matrix"}));
}

// ---- indices

TEST(OnnxFold, Gather) {
  EXPECT_TRUE(same(folded("Gather", {integers({10, 20, 30}), integer(-1)}), integer(30)));
  EXPECT_TRUE(same(folded("Gather", {kBlock, integers({1, 2}, {2, 0})}, {write::attribute("axis", 1)}),
                   integers({2, 1, 2}, {3, 1, 6, 4})));
  EXPECT_TRUE(same(folded("Gather", {kBlock, integers({})}), integers({0, 3}, {})));
  EXPECT_TRUE(says(error_of("Gather", {kBlock, integer(2)}), {"index 2 of 2 elements"}));
  EXPECT_TRUE(says(error_of("Gather", {kBlock, integer(kSmallest)}), {"index -9223372036854775808"}));
  EXPECT_TRUE(says(error_of("Gather", {integer(3), integer(0)}), {"axis 0 of a tensor of 0 dimensions"}));
  EXPECT_TRUE(says(error_of("Gather", {kBlock, real(0)}), {"indices are real numbers"}));
  EXPECT_TRUE(same(folded("GatherElements", {kBlock, integers({2, 1}, {2, -3})}, {write::attribute("axis", 1)}),
                   integers({2, 1}, {3, 4})));
  EXPECT_TRUE(says(error_of("GatherElements", {kBlock, integers({2, 1}, {3, 0})}, {write::attribute("axis", 1)}),
                   {"index 3 of 3"}));
  EXPECT_TRUE(says(error_of("GatherElements", {kBlock, integers({3, 1}, {0, 0, 0})}, {write::attribute("axis", 1)}),
                   {"[3, 1]", "[2, 3]"}));
  EXPECT_TRUE(says(error_of("GatherElements", {kBlock, integers({0, 0})}), {"[2]", "[2, 3]"}));
  EXPECT_TRUE(same(folded("GatherND", {kBlock, integers({2, 2}, {0, 1, -1, -1})}), integers({2, 6})));
  EXPECT_TRUE(same(folded("GatherND", {kBlock, integers({1, 1}, {1})}), integers({1, 3}, {4, 5, 6})));
  EXPECT_TRUE(same(folded("GatherND", {kBlock, integers({2, 1}, {2, 0})}, {write::attribute("batch_dims", 1)}),
                   integers({3, 4})));
  EXPECT_TRUE(says(error_of("GatherND", {kBlock, integers({1, 2}, {0, 3})}), {"index 3 of 3"}));
  EXPECT_TRUE(says(error_of("GatherND", {kBlock, integers({1, 3}, {0, 0, 0})}), {"[1, 3]", "[2, 3]"}));
  EXPECT_TRUE(says(error_of("GatherND", {kBlock, integer(0)}), {"indices of shape []"}));
  EXPECT_TRUE(says(error_of("GatherND", {kBlock, integers({3, 1}, {0, 0, 0})}, {write::attribute("batch_dims", 1)}),
                   {"[3, 1]"}));
  EXPECT_TRUE(says(error_of("GatherND", {kBlock, integers({1, 1}, {0})}, {write::attribute("batch_dims", -1)}),
                   {"batch_dims is -1"}));
}

TEST(OnnxFold, Scatter) {
  EXPECT_TRUE(same(folded("ScatterElements", {kBlock, integers({1, 2}, {2, -3}), integers({1, 2}, {70, 80})},
                          {write::attribute("axis", 1)}),
                   integers({2, 3}, {80, 2, 70, 4, 5, 6})));
  EXPECT_TRUE(says(error_of("ScatterElements", {kBlock, integers({1, 1}, {0}), integers({1, 1}, {7})},
                            {write::attribute("reduction", "add")}),
                   {"reduction"}));
  EXPECT_TRUE(says(error_of("ScatterElements", {kBlock, integers({1, 1}, {0}), integers({1, 2}, {7, 8})}),
                   {"updates of shape [1, 2]"}));
  EXPECT_TRUE(
      says(error_of("ScatterElements", {kBlock, integers({1, 1}, {9}), integers({1, 1}, {7})}), {"index 9 of 2"}));
  EXPECT_TRUE(same(folded("ScatterND", {kBlock, integers({1, 1}, {1}), integers({1, 3}, {7, 8, 9})}),
                   integers({2, 3}, {1, 2, 3, 7, 8, 9})));
  EXPECT_TRUE(same(folded("ScatterND", {kBlock, integers({2, 2}, {0, 0, 1, 2}), integers({70, 80})}),
                   integers({2, 3}, {70, 2, 3, 4, 5, 80})));
  EXPECT_TRUE(
      says(error_of("ScatterND", {kBlock, integers({1, 1}, {2}), integers({1, 3}, {7, 8, 9})}), {"index 2 of 2"}));
  EXPECT_TRUE(
      says(error_of("ScatterND", {kBlock, integers({1, 1}, {1}), integers({7, 8, 9})}), {"updates of shape [3]"}));
}

// ---- reductions

TEST(OnnxFold, Reductions) {
  const auto one = [](std::int64_t value) { return integers({value}); };
  EXPECT_TRUE(same(folded("ReduceSum", {kBlock}), integers({1, 1}, {21})));
  EXPECT_TRUE(same(folded("ReduceSum", {kBlock, one(-1)}, {write::attribute("keepdims", 0)}), integers({6, 15})));
  EXPECT_TRUE(same(folded("ReduceSum", {kBlock}, {ints("axes", {0})}), integers({1, 3}, {5, 7, 9})));
  EXPECT_TRUE(same(folded("ReduceSum", {kBlock}, {write::attribute("noop_with_empty_axes", 1)}), kBlock));
  EXPECT_TRUE(same(folded("ReduceProd", {kBlock, one(0)}, {write::attribute("keepdims", 0)}), integers({4, 10, 18})));
  EXPECT_TRUE(same(folded("ReduceMax", {reals({2, 2}, {1, NAN, 3, 2}), one(1)}), reals({2, 1}, {NAN, 3})));
  EXPECT_TRUE(same(folded("ReduceMin", {kBlock, one(1)}), integers({2, 1}, {1, 4})));
  EXPECT_TRUE(same(folded("ReduceMax", {booleans({0, 1})}), booleans({1}, {1})));
  EXPECT_TRUE(same(folded("ReduceMean", {reals({1, 2, 4.5})}, {write::attribute("keepdims", 0)}), real(2.5)));
  EXPECT_TRUE(same(folded("ReduceMean", {integers({-3, -4})}), one(-3)));
  EXPECT_TRUE(same(folded("ReduceSum", {integer(5)}), integer(5)));
  EXPECT_TRUE(same(folded("ReduceSum", {reals({0, 2}, {}), one(0)}), reals({1, 2}, {0, 0})));
  EXPECT_TRUE(same(folded("ReduceProd", {reals({0, 2}, {}), one(0)}), reals({1, 2}, {1, 1})));
  EXPECT_TRUE(same(folded("ReduceMax", {reals({0, 1}, {}), one(0)}), reals({1, 1}, {-kInf})));
  EXPECT_TRUE(says(error_of("ReduceMax", {integers({0, 1}, {}), one(0)}), {"nothing to compare"}));
  EXPECT_TRUE(says(error_of("ReduceMean", {integers({0, 1}, {}), one(0)}), {"nothing to take the mean of"}));
  EXPECT_TRUE(says(error_of("ReduceSum", {kBlock, one(2)}), {"axis 2"}));
  EXPECT_TRUE(says(error_of("ReduceSum", {kBlock, integers({0, -2})}), {"axis 0 is there twice"}));
  EXPECT_TRUE(says(error_of("ReduceSum", {booleans({1, 0})}), {"booleans"}));
}

TEST(OnnxFold, ArgMaxAndCumSum) {
  EXPECT_TRUE(same(folded("ArgMax", {reals({2, 3}, {1, 3, 3, 9, 2, 1})}, {write::attribute("axis", 1)}),
                   integers({2, 1}, {1, 0})));
  EXPECT_TRUE(same(folded("ArgMax", {integers({1, 3, 3})},
                          {write::attribute("select_last_index", 1), write::attribute("keepdims", 0)}),
                   integer(2)));
  EXPECT_TRUE(same(folded("ArgMax", {reals({1, NAN, 9})}, {write::attribute("keepdims", 0)}), integer(1)));
  EXPECT_TRUE(says(error_of("ArgMax", {reals({0, 2}, {})}), {"nothing to compare"}));
  EXPECT_TRUE(same(folded("CumSum", {kBlock, integer(1)}), integers({2, 3}, {1, 3, 6, 4, 9, 15})));
  EXPECT_TRUE(same(folded("CumSum", {kBlock, integer(-2)}), integers({2, 3}, {1, 2, 3, 5, 7, 9})));
  EXPECT_TRUE(
      same(folded("CumSum", {reals({1, 2, 3}), integer(0)}, {write::attribute("exclusive", 1)}), reals({0, 1, 3})));
  EXPECT_TRUE(
      same(folded("CumSum", {reals({1, 2, 3}), integer(0)}, {write::attribute("reverse", 1)}), reals({6, 5, 3})));
  EXPECT_TRUE(says(error_of("CumSum", {kBlock, integer(2)}), {"axis 2"}));
  EXPECT_TRUE(says(error_of("CumSum", {kBlock, integers({0, 1})}), {"input 1 is not a single number"}));
}

}  // namespace
}  // namespace overtake::onnx
