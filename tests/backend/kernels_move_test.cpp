#include "kernels/cpu/move.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/block.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

using Dims = std::vector<std::int64_t>;

// Distinct values (bf16: distinct enough to catch any misplacement), compared exactly.
template <class T>
std::vector<T> numbered(std::int64_t count, std::int64_t start = 1) {
  std::vector<T> values(index(count));
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (sizeof(T) == 4) {
      values[index(i)] = static_cast<T>(start + i);
    } else {
      values[index(i)] = T{static_cast<std::uint16_t>((start + i) % 0x7000 + 1)};
    }
  }
  return values;
}

template <class T>
void expect_equal(const std::vector<T>& got, const std::vector<T>& want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(T)), 0);
}

struct AxisCase {
  std::int64_t outer, inner;
  Dims extents;
};

const std::vector<AxisCase> kAxisCases = {
    {1, 1, {1}}, {3, 5, {2, 7, 1}}, {17, 1, {3, 4}}, {1, 1, {20000, 3, 40001}}, {2, 7000, {1, 2, 3}}, {40, 64, {1, 1}},
};

template <class T>
void check_concat_and_slice() {
  for (const AxisCase& shape : kAxisCases) {
    const std::int64_t axis = std::accumulate(shape.extents.begin(), shape.extents.end(), std::int64_t{0});
    const std::int64_t row = axis * shape.inner, count = shape.outer * row;
    std::vector<std::vector<T>> in;
    std::vector<const T*> pointers;
    std::vector<T> want(index(count));
    std::int64_t offset = 0;
    for (const std::int64_t extent : shape.extents) {
      in.push_back(numbered<T>(shape.outer * extent * shape.inner, offset * 1000));
      for (std::int64_t o = 0; o < shape.outer; ++o) {
        for (std::int64_t i = 0; i < extent * shape.inner; ++i) {
          want[index(o * row + offset * shape.inner + i)] = in.back()[index(o * extent * shape.inner + i)];
        }
      }
      offset += extent;
    }
    for (const auto& tensor : in) pointers.push_back(tensor.data());
    const auto joined = run_whole_and_split<T>(count, row_move_units(shape.outer, row),
                                               [&](T* out, std::int64_t begin, std::int64_t end) {
                                                 concat<T>(pointers, shape.extents, shape.inner, out, begin, end);
                                               });
    expect_equal(joined, want);
    offset = 0;
    for (std::size_t k = 0; k < in.size(); ++k) {
      const std::int64_t extent = shape.extents[k], part = extent * shape.inner;
      const auto piece = run_whole_and_split<T>(
          shape.outer * part, row_move_units(shape.outer, part), [&](T* out, std::int64_t begin, std::int64_t end) {
            slice(joined.data(), out, axis, offset, extent, shape.inner, begin, end);
          });
      expect_equal(piece, in[k]);
      offset += extent;
    }
  }
}

TEST(MoveKernel, ConcatAndSliceFloat) { check_concat_and_slice<float>(); }
TEST(MoveKernel, ConcatAndSliceBf16) { check_concat_and_slice<bf16>(); }
TEST(MoveKernel, ConcatAndSliceInt) { check_concat_and_slice<std::int32_t>(); }

template <class T>
void check_slice_backward() {
  for (const AxisCase& shape : kAxisCases) {
    const std::int64_t axis = std::accumulate(shape.extents.begin(), shape.extents.end(), std::int64_t{0});
    const std::int64_t row = axis * shape.inner, count = shape.outer * row;
    std::int64_t offset = 0;
    for (const std::int64_t extent : shape.extents) {
      const auto dy = numbered<T>(shape.outer * extent * shape.inner);
      const auto dx = run_whole_and_split<T>(
          count, row_move_units(shape.outer, row), [&](T* out, std::int64_t begin, std::int64_t end) {
            slice_backward(dy.data(), out, axis, offset, extent, shape.inner, begin, end);
          });
      std::vector<T> want(index(count), T{});
      for (std::int64_t o = 0; o < shape.outer; ++o) {
        for (std::int64_t i = 0; i < extent * shape.inner; ++i) {
          want[index(o * row + offset * shape.inner + i)] = dy[index(o * extent * shape.inner + i)];
        }
      }
      expect_equal(dx, want);
      offset += extent;
    }
  }
}

TEST(MoveKernel, SliceBackwardFloat) { check_slice_backward<float>(); }
TEST(MoveKernel, SliceBackwardBf16) { check_slice_backward<bf16>(); }

struct PermuteCase {
  Dims dims;
  std::vector<int> permutation;
};

const std::vector<PermuteCase> kPermuteCases = {
    {{5}, {0}},
    {{1, 1}, {1, 0}},
    {{3, 7}, {1, 0}},
    {{65, 130}, {1, 0}},
    {{200, 97}, {1, 0}},
    {{2, 3, 4}, {0, 1, 2}},
    {{5, 40, 33}, {0, 2, 1}},
    {{5, 40, 33}, {2, 1, 0}},
    {{2, 17, 3, 16}, {0, 2, 1, 3}},
    {{2, 9, 10, 3}, {0, 3, 1, 2}},
    {{2, 3, 9, 10}, {0, 2, 3, 1}},
    {{2, 1, 3, 4, 5, 6}, {5, 1, 3, 0, 4, 2}},
    {{2, 3, 4, 5, 3, 2}, {4, 5, 0, 1, 3, 2}},
    {{2, 3, 2, 40000}, {1, 0, 2, 3}},
};

template <class T>
void check_permute() {
  for (const PermuteCase& shape : kPermuteCases) {
    const std::size_t rank = shape.dims.size();
    Dims x_strides(rank), y_dims(rank);
    std::int64_t count = 1;
    for (std::size_t d = rank; d-- > 0;) {
      x_strides[d] = count;
      count *= shape.dims[d];
    }
    for (std::size_t d = 0; d < rank; ++d) y_dims[d] = shape.dims[static_cast<std::size_t>(shape.permutation[d])];
    const auto x = numbered<T>(count);
    const PermutePlan plan = make_permute_plan(shape.dims, shape.permutation);
    const auto y = run_whole_and_split<T>(count, plan.units, [&](T* out, std::int64_t begin, std::int64_t end) {
      permute(plan, x.data(), out, begin, end);
    });
    std::vector<T> want(index(count));
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, at = 0;
      for (std::size_t d = rank; d-- > 0;) {
        at += rest % y_dims[d] * x_strides[static_cast<std::size_t>(shape.permutation[d])];
        rest /= y_dims[d];
      }
      want[index(i)] = x[index(at)];
    }
    expect_equal(y, want);
  }
}

TEST(MoveKernel, PermuteFloat) { check_permute<float>(); }
TEST(MoveKernel, PermuteBf16) { check_permute<bf16>(); }
TEST(MoveKernel, PermuteInt) { check_permute<std::int32_t>(); }

TEST(MoveKernel, Fill) {
  for (const std::int64_t count : {1, 1024, 5000}) {
    const auto ones = run_whole_and_split<float>(
        count, blocks_of(count), [&](float* out, std::int64_t b, std::int64_t e) { fill(out, 1.5f, count, b, e); });
    const auto halves = run_whole_and_split<bf16>(
        count, blocks_of(count), [&](bf16* out, std::int64_t b, std::int64_t e) { fill(out, 1.5f, count, b, e); });
    EXPECT_EQ(to_doubles(ones), std::vector<double>(index(count), 1.5));
    EXPECT_EQ(to_doubles(halves), std::vector<double>(index(count), 1.5));
  }
}

TEST(MoveKernel, CastRoundsToNearestEven) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {1.0f,
                                1.0f + 0x1p-8f,
                                1.0f + 0x3p-8f,
                                1.0f + 0x1p-8f + 0x1p-20f,
                                -1.0f - 0x1p-8f,
                                3.3895e38f,
                                3.4028234e38f,
                                kInfinity,
                                -kInfinity,
                                0.0f};
  const std::vector<float> want = {1.0f,        1.0f,      1.0f + 0x1p-6f, 1.0f + 0x1p-7f, -1.0f,
                                   0x1.fep127f, kInfinity, kInfinity,      -kInfinity,     0.0f};
  std::vector<bf16> narrow(x.size());
  std::vector<float> wide(x.size());
  const auto count = static_cast<std::int64_t>(x.size());
  cast(x.data(), narrow.data(), count, 0, 1);
  cast(narrow.data(), wide.data(), count, 0, 1);
  EXPECT_EQ(wide, want);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  cast(&nan, narrow.data(), 1, 0, 1);
  EXPECT_TRUE(std::isnan(to_float(narrow[0])));
}

TEST(MoveKernel, CastRandom) {
  for (const std::int64_t count : {1, 17, 1024, 5003}) {
    const auto x = random_tensor<float>(count, 3, -100.0f, 100.0f);
    const auto y = run_whole_and_split<bf16>(
        count, blocks_of(count), [&](bf16* out, std::int64_t b, std::int64_t e) { cast(x.data(), out, count, b, e); });
    expect_close(y, to_doubles(x), 0.0);
    const auto back = run_whole_and_split<float>(
        count, blocks_of(count), [&](float* out, std::int64_t b, std::int64_t e) { cast(y.data(), out, count, b, e); });
    EXPECT_EQ(to_doubles(back), to_doubles(y));
  }
}

}  // namespace
}  // namespace overtake::kernels
