// Reorders against offset_of, element by element.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/bf16.h"
#include "kernels/cpu/reorder.h"

namespace overtake::kernels {
namespace {

using Dims = std::vector<std::int64_t>;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

// Calls visit(index) for every logical index below `limits`.
template <class Visit>
void for_each_index(const Dims& limits, Visit visit) {
  Dims index(limits.size());
  while (true) {
    visit(index);
    std::size_t d = index.size();
    while (d > 0 && ++index[d - 1] == limits[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

// A value that tells where it belongs, exact in bf16.
float value_at(const Dims& index) {
  std::int64_t code = 1;
  for (const std::int64_t i : index) code = (code * 37 + i * 11 + 5) % 251;
  return static_cast<float>(code - 125);
}

// A tensor in `layout`; the padding holds `padding`.
template <class T>
std::vector<T> tensor(const Layout& layout, const Dims& dims, float padding) {
  std::vector<T> values(size(padded_elements(layout, dims)), from_float<T>(padding));
  for_each_index(
      dims, [&](const Dims& index) { values[size(offset_of(layout, dims, index))] = from_float<T>(value_at(index)); });
  return values;
}

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

struct Case {
  const char *from, *to;
  Dims dims;
};

std::vector<Case> cases() {
  return {
      {"abcd", "acdb", {3, 5, 4, 7}},
      {"acdb", "abcd", {3, 5, 4, 7}},
      {"abcd", "acdb", {2, 67, 9, 5}},
      {"acdb", "abcd", {2, 67, 9, 5}},
      {"abcd", "acdb", {2, 3, 33, 35}},
      {"abcd", "abcd", {2, 3, 4, 5}},
      {"acdb", "acdb", {2, 3, 4, 5}},
      {"abcd", "ABcd16b16a", {20, 17, 3, 3}},
      {"ABcd16b16a", "abcd", {20, 17, 3, 3}},
      {"ABcd16b16a", "Acdb64a", {20, 17, 3, 3}},
      {"ABcd16b16a", "Acdb48a", {100, 32, 1, 1}},
      {"ABcd16b16a", "BAcd16a16b", {33, 47, 1, 1}},
      {"ABcd16b16a", "ABcd8a16b2a", {33, 47, 3, 3}},
      {"ABcd16b16a", "AcdB32a2b", {33, 47, 3, 3}},
      {"Acdb16a", "Acdb64a", {64, 3, 7, 7}},
      {"Abcde16a", "bcdeA16a", {35, 1, 1, 3, 3}},
      {"abcde", "Abcde16a", {35, 1, 1, 5, 5}},
      {"aBCde16c16b", "aBCde4c4b", {4, 6, 5, 3, 3}},
      {"ab", "ba", {7, 9}},
      {"a", "a", {13}},
      {"abcdef", "fBaecd4b", {2, 5, 2, 3, 2, 3}},
  };
}

template <class From, class To>
void check_all() {
  omp_set_num_threads(1);
  for (const Case& c : cases()) {
    SCOPED_TRACE(std::string(c.from) + " to " + c.to);
    const Layout from = layout_from_string(c.from), to = layout_from_string(c.to);
    const std::vector<From> source = tensor<From>(from, c.dims, 0.0f);
    const std::vector<To> want = tensor<To>(to, c.dims, 0.0f);
    const std::int64_t units = reorder_units(to, c.dims);

    std::vector<To> whole(want.size(), from_float<To>(std::nanf("")));
    reorder(source.data(), from, whole.data(), to, c.dims, 0, units);
    EXPECT_TRUE(same_bytes(whole, want));

    std::vector<To> pieces(want.size(), from_float<To>(std::nanf("")));
    for (std::int64_t begin = 0, length = 1; begin < units; begin += length, length = length % 3 + 1) {
      reorder(source.data(), from, pieces.data(), to, c.dims, begin, std::min(begin + length, units));
    }
    EXPECT_TRUE(same_bytes(pieces, want)) << "in pieces";

    const WeightReorder weights(from, sizeof(From) == 2, to, sizeof(To) == 2, c.dims);
    std::vector<std::byte> scratch(weights.scratch_bytes());
    std::vector<To> through_onednn(want.size(), from_float<To>(std::nanf("")));
    weights.run(source.data(), through_onednn.data(), scratch.data());
    EXPECT_TRUE(same_bytes(through_onednn, want)) << "WeightReorder, " << weights.implementation();
  }
}

TEST(Reorder, FloatToFloat) { check_all<float, float>(); }
TEST(Reorder, FloatToBf16) { check_all<float, bf16>(); }
TEST(Reorder, Bf16ToFloat) { check_all<bf16, float>(); }
TEST(Reorder, Bf16ToBf16) { check_all<bf16, bf16>(); }

// To and from an image inside a wider one; what lies between its rows stays as it is.
TEST(Reorder, GapsAreNotTouched) {
  const Dims dims{2, 5, 3, 4};
  for (const char* other : {"abcd", "acdb", "acdb/9", "acdb/6"}) {
    SCOPED_TRACE(other);
    const Layout pitched = layout_from_string("acdb/9"), layout = layout_from_string(other);
    const std::vector<float> source = tensor<float>(pitched, dims, 77.0f);
    std::vector<float> there(size(padded_elements(layout, dims)), 33.0f), back(source.size(), 77.0f);
    reorder(source.data(), pitched, there.data(), layout, dims, 0, reorder_units(layout, dims));
    EXPECT_TRUE(same_bytes(there, tensor<float>(layout, dims, 33.0f)));
    reorder(there.data(), layout, back.data(), pitched, dims, 0, reorder_units(pitched, dims));
    EXPECT_TRUE(same_bytes(back, source));
  }
}

TEST(Reorder, RoundsToNearestEven) {
  const Dims dims{4};
  const std::vector<float> source = {1.0f + 0x1p-8f, 1.0f + 0x3p-8f, -3.1415927f, 0x1p-130f};
  const std::vector<float> want = {1.0f, 1.0f + 0x1p-6f, -3.140625f, 0x1p-130f};
  std::vector<bf16> result(4);
  reorder(source.data(), plain_layout(1), result.data(), plain_layout(1), dims, 0, 4);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(to_float(result[i]), want[i]);
}

TEST(Reorder, ScalarsHaveOneUnit) {
  const float source = 2.5f;
  float result = 0;
  EXPECT_EQ(reorder_units(plain_layout(0), Dims{}), 1);
  reorder(&source, plain_layout(0), &result, plain_layout(0), Dims{}, 0, 1);
  EXPECT_EQ(result, 2.5f);
}

}  // namespace
}  // namespace overtake::kernels
