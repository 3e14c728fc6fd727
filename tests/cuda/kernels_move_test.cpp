#include "kernels/cuda/move.h"

#include <memory>

#include "cuda/against_cpu.h"
#include "kernels/cpu/block.h"
#include "kernels/cuda/reorder.h"

namespace overtake {
namespace {

// Any bits will do for numbers that are only moved; 0 and the poison do not occur.
template <class T>
std::vector<T> numbers(std::int64_t count, unsigned seed) {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    std::mt19937 generator(seed);
    std::vector<T> values(size(count));
    for (T& value : values) value = std::uniform_int_distribution<std::int32_t>(1, 1 << 30)(generator);
    return values;
  } else {
    return random_values<T>(count, seed, 0.2f);
  }
}

template <class T>
class CudaMove : public ::testing::Test {};
using Movable = ::testing::Types<float, bf16, std::int32_t>;
TYPED_TEST_SUITE(CudaMove, Movable);

struct ConcatCase {
  std::int64_t outer, inner;
  std::vector<std::int64_t> extents;
};

TYPED_TEST(CudaMove, ConcatAndSliceHaveTheCpusBits) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  std::vector<ConcatCase> cases = {{7, 16, {3, 4, 8}},   {5, 3, {1, 2}},  {1, 1, {5000, 3001}},
                                   {900, 1, {24, 8, 7}}, {33, 2, {6, 2}}, {2, 9, {}}};
  for (std::int64_t i = 0; i < 130; ++i) cases.back().extents.push_back(1 + i % 3);
  for (const ConcatCase& c : cases) {
    std::vector<std::vector<T>> in;
    std::vector<std::unique_ptr<DeviceArray<T>>> gpu;
    std::vector<const T*> pointers, gpu_pointers;
    std::int64_t axis = 0;
    for (const std::int64_t extent : c.extents) {
      in.push_back(numbers<T>(c.outer * extent * c.inner, static_cast<unsigned>(in.size())));
      gpu.push_back(std::make_unique<DeviceArray<T>>(in.back()));
      gpu_pointers.push_back(gpu.back()->data());
      axis += extent;
    }
    for (const std::vector<T>& part : in) pointers.push_back(part.data());
    std::vector<T> whole(size(c.outer * axis * c.inner));
    kernels::concat<T>(pointers, c.extents, c.inner, whole.data(), 0, kernels::row_move_units(c.outer, axis * c.inner));
    DeviceArray<T> out(whole.size());
    cuda::concat<T>(nullptr, gpu_pointers, c.extents, c.inner, out.data(), c.outer);
    expect_same_bytes(out.download(), whole, "concat");

    std::vector<std::unique_ptr<DeviceArray<T>>> parts;
    std::vector<T*> part_pointers;
    for (std::size_t i = 0; i < in.size(); ++i) {
      parts.push_back(std::make_unique<DeviceArray<T>>(in[i].size()));
      part_pointers.push_back(i % 3 == 1 ? nullptr : parts.back()->data());
    }
    cuda::split<T>(nullptr, out.data(), part_pointers, c.extents, c.inner, c.outer);
    for (std::size_t i = 0; i < in.size(); ++i)
      if (part_pointers[i] != nullptr) expect_same_bytes(parts[i]->download(), in[i], "split");

    std::int64_t offset = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      DeviceArray<T> part(in[i].size());
      cuda::slice(nullptr, out.data(), part.data(), axis, offset, c.extents[i], c.inner, c.outer);
      expect_same_bytes(part.download(), in[i], "slice");
      offset += c.extents[i];
    }
  }
}

TYPED_TEST(CudaMove, PermuteHasTheCpusBits) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  struct Case {
    std::vector<std::int64_t> dims;
    std::vector<int> permutation;
  };
  const std::vector<Case> cases = {{{130, 70}, {1, 0}},             // tiles, not whole
                                   {{4, 128, 192}, {0, 2, 1}},      // whole tiles
                                   {{2, 3, 40, 50}, {0, 2, 3, 1}},  // to channels last, few channels
                                   {{2, 40, 50, 3}, {0, 3, 1, 2}},  // and back
                                   {{3, 17, 8, 64}, {0, 2, 1, 3}},  // heads of attention: rows stay
                                   {{3, 17, 5, 7}, {2, 0, 1, 3}},   // odd rows
                                   {{5, 20, 6, 33}, {3, 1, 2, 0}},  // a plane with dims between
                                   {{2, 3, 4, 5, 6, 7}, {5, 3, 1, 4, 2, 0}},
                                   {{33, 24}, {0, 1}},
                                   {{1, 1}, {1, 0}}};
  for (const Case& c : cases) {
    const auto plan = kernels::make_permute_plan(c.dims, c.permutation);
    std::int64_t count = 1;
    for (const std::int64_t d : c.dims) count *= d;
    const std::vector<T> x = numbers<T>(count, 1);
    std::vector<T> y(x.size());
    kernels::permute(plan, x.data(), y.data(), 0, plan.units);
    DeviceArray<T> in(x), out(x.size());
    cuda::permute(nullptr, plan, in.data(), out.data());
    expect_same_bytes(out.download(), y, "permute " + testing::PrintToString(c.dims));
  }
}

template <class T>
class CudaMoveFloats : public ::testing::Test {};
using Floats = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaMoveFloats, Floats);

struct SliceCase {
  std::int64_t outer, axis, offset, extent, inner;
};

TYPED_TEST(CudaMoveFloats, SliceBackwardHasTheCpusBits) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const SliceCase c : {SliceCase{7, 12, 4, 8, 16}, SliceCase{5, 9, 2, 3, 5}, SliceCase{300, 40, 0, 16, 1},
                            SliceCase{2, 6, 5, 1, 2}, SliceCase{1, 5000, 17, 4000, 1}}) {
    const std::vector<T> dy = numbers<T>(c.outer * c.extent * c.inner, 1);
    std::vector<T> dx(size(c.outer * c.axis * c.inner));
    kernels::slice_backward(dy.data(), dx.data(), c.axis, c.offset, c.extent, c.inner, 0,
                            kernels::row_move_units(c.outer, c.axis * c.inner));
    DeviceArray<T> in(dy), out(dx.size());
    cuda::slice_backward(nullptr, in.data(), out.data(), c.axis, c.offset, c.extent, c.inner, c.outer);
    expect_same_bytes(out.download(), dx, "slice_backward");
  }
}

template <class From, class To>
void check_cast(std::int64_t count) {
  const std::vector<From> x = numbers<From>(count, 1);
  std::vector<To> y(x.size());
  kernels::cast(x.data(), y.data(), count, 0, kernels::blocks_of(count));
  DeviceArray<From> in(x);
  DeviceArray<To> out(x.size());
  cuda::cast(nullptr, in.data(), out.data(), count);
  expect_same_bytes(out.download(), y, "cast of " + std::to_string(count));
}

TYPED_TEST(CudaMoveFloats, CastFillAndCopyHaveTheCpusBits) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{4096}, std::int64_t{8192}, std::int64_t{20003}}) {
    check_cast<T, float>(count);
    check_cast<T, bf16>(count);
    const std::vector<T> filled(size(count), from_float<T>(0.37f));
    DeviceArray<T> out(size(count)), copied(size(count));
    cuda::fill(nullptr, out.data(), 0.37f, count);
    cuda::copy(nullptr, out.data(), copied.data(), count * static_cast<std::int64_t>(sizeof(T)));
    expect_same_bytes(out.download(), filled, "fill");
    expect_same_bytes(copied.download(), filled, "copy");
  }
}

// Element by element, through the layouts' own arithmetic.
template <class From, class To>
void check_reorder(const Layout& from_layout, const Layout& to_layout, const std::vector<std::int64_t>& dims) {
  const std::vector<From> from = numbers<From>(padded_elements(from_layout, dims), 1);
  std::vector<To> to(from.size());
  std::vector<std::int64_t> at(dims.size());
  for (std::size_t flat = 0; flat < from.size(); ++flat) {
    auto rest = static_cast<std::int64_t>(flat);
    for (std::size_t d = dims.size(); d-- > 0; rest /= dims[d]) at[d] = rest % dims[d];
    const float value = to_float(from[size(offset_of(from_layout, dims, at))]);
    to[size(offset_of(to_layout, dims, at))] = from_float<To>(value);
  }
  DeviceArray<From> in(from);
  DeviceArray<To> out(to.size());
  cuda::reorder(nullptr, in.data(), from_layout, out.data(), to_layout, dims);
  expect_same_bytes(out.download(), to, to_string(from_layout) + " to " + to_string(to_layout));
}

TYPED_TEST(CudaMoveFloats, ReorderMovesEachElement) {
  OVERTAKE_NEEDS_GPU();
  const Layout plain = plain_layout(4), last = channels_last_layout();
  for (const std::vector<std::int64_t>& dims :
       {std::vector<std::int64_t>{2, 3, 30, 31}, {3, 64, 7, 7}, {2, 33, 9, 10}, {64, 128, 3, 3}, {5, 16, 1, 1}}) {
    for (const auto& [from, to] : {std::pair{plain, last}, std::pair{last, plain}, std::pair{last, last}}) {
      check_reorder<TypeParam, float>(from, to, dims);
      check_reorder<TypeParam, bf16>(from, to, dims);
    }
  }
}

}  // namespace
}  // namespace overtake
