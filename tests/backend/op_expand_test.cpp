// Expand and reduce, each the other's gradient.

#include "op_case.h"

namespace overtake::reference {
namespace {

// numpy's broadcast_to, times a scale.
Tensor expanded(const Tensor& x, const Dims& dims, double scale = 1) {
  Tensor y(dims);
  const std::size_t missing = dims.size() - x.dims.size();
  for_each_index(dims, [&](const Dims& i) {
    Dims from(x.dims.size());
    for (std::size_t d = 0; d < from.size(); ++d) from[d] = x.dims[d] == 1 ? 0 : i[missing + d];
    y.v[y.offset(i)] = scale * x.v[x.offset(from)];
  });
  return y;
}

Tensor reduced(const Tensor& x, const Dims& axes, double scale) {
  Dims kept, dims;
  for (std::size_t d = 0; d < x.dims.size(); ++d)
    if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(d)) == axes.end()) {
      kept.push_back(static_cast<std::int64_t>(d));
      dims.push_back(x.dims[d]);
    }
  if (dims.empty()) dims = {1};
  Tensor y(dims);
  for_each_index(x.dims, [&](const Dims& i) {
    Dims to;
    for (const std::int64_t d : kept) to.push_back(i[at(d)]);
    if (to.empty()) to = {0};
    y.v[y.offset(to)] += scale * x.v[x.offset(i)];
  });
  return y;
}

double count_of(const Dims& x, const Dims& axes) {
  double count = 1;
  for (const std::int64_t axis : axes) count *= static_cast<double>(x[at(axis)]);
  return count;
}

struct Stretch {
  Dims from, to;
};

OpCase expand_case(const Stretch& s) {
  return {.batch = s.to[0],
          .build = [=](OpBuilder& b) { return b.m.expand(b.arg("x", s.from), s.to); },
          .predict = [=](const Values& v) { return expanded(v.at("x"), s.to); }};
}

TEST(OpExpand, Shapes) {
  for (const Stretch& s : {Stretch{{3, 1}, {3, 5}},
                           {{5}, {3, 5}},
                           {{1}, {3, 7}},
                           {{1, 1, 17}, {4, 1, 17}},
                           {{1, 6, 1}, {2, 6, 7}},
                           {{3, 5}, {3, 5}},
                           {{5}, {1, 5}},
                           {{2, 3, 1, 1}, {2, 3, 5, 4}},
                           {{1, 3, 5, 4}, {2, 3, 5, 4}},
                           {{2, 1, 5, 4}, {2, 6, 5, 4}},
                           {{3, 1, 4}, {2, 3, 5, 4}},
                           {{2, 1, 3, 4}, {5, 2, 6, 3, 4}},
                           {{1, 2, 1, 3, 1, 2}, {2, 2, 3, 3, 2, 2}},
                           {{1, 700}, {400, 700}},
                           {{300, 1}, {300, 700}}}) {
    SCOPED_TRACE(::testing::PrintToString(s.from) + " to " + ::testing::PrintToString(s.to));
    check_op(expand_case(s));
  }
}

TEST(OpExpand, Bf16) {
  check_op_bf16(expand_case({{3, 1}, {3, 5}}));
  check_op_bf16(expand_case({{2, 3, 1, 1}, {2, 3, 5, 4}}));
}

// In a channels-last image, from a layer whose result is one.
TEST(OpExpand, Images) {
  const Conv2d o{.out = 5, .kernel = 3};
  check_op({.batch = 3,
            .build =
                [=](OpBuilder& b) {
                  const Value y = b.m.conv2d(b.arg("x", {3, 2, 3, 3}), o, "conv");  // [3, 5, 1, 1]
                  return b.m.mul(b.m.expand(y, {3, 5, 4, 2}), b.arg("z", {3, 5, 4, 2}));
                },
            .predict =
                [=](const Values& v) {
                  const Tensor y = conv2d(v.at("x"), v.at("conv.weight"), &v.at("conv.bias"), o);
                  return mul(expanded(y, {3, 5, 4, 2}), v.at("z"));
                },
            .tolerance = 2e-5});
}

// The axes that an input lacks can be any of the output's.
TEST(OpExpand, AxesAndScale) {
  struct Case {
    Dims from, to, axes;
  };
  for (const Case& c : {Case{{3, 4}, {3, 5, 4}, {1}},
                        {{3, 4}, {3, 4, 6}, {2}},
                        {{4}, {3, 4, 2, 5}, {0, 2, 3}},
                        {{3, 4}, {3, 4, 2, 5}, {2, 3}},
                        {{1}, {3, 4}, {0, 1}},
                        {{3, 2, 4, 2}, {3, 2, 5, 4, 2}, {2}}}) {
    SCOPED_TRACE(::testing::PrintToString(c.from) + " to " + ::testing::PrintToString(c.to));
    Dims with_ones = c.to;
    for (const std::int64_t axis : c.axes) with_ones[at(axis)] = 1;
    check_op({.batch = c.to[0],
              .build =
                  [=](OpBuilder& b) {
                    return b.m.layer(Op::expand, {b.arg("x", c.from)},
                                     {{"shape", c.to}, {"axes", c.axes}, {"scale", -1.0 / 3}});
                  },
              .predict = [=](const Values& v) { return expanded(reshape(v.at("x"), with_ones), c.to, -1.0 / 3); }});
  }
}

struct Sum {
  Dims x, axes;
};
const std::vector<Sum> kSums = {{{3, 5}, {1}},
                                {{3, 5}, {0}},
                                {{3, 5}, {0, 1}},
                                {{3, 5}, {}},
                                {{7}, {0}},
                                {{2, 3, 4}, {1}},
                                {{2, 3, 4}, {0, 2}},
                                {{2, 1, 4}, {1}},
                                {{2, 300, 33}, {1}},
                                {{300, 700}, {0}},
                                {{3, 5000}, {1}},
                                {{2, 3, 2, 3, 2}, {1, 3}},
                                {{2, 3, 2, 3, 2}, {0}},
                                {{2, 3, 2, 2, 3, 2}, {0, 2, 5}}};
// Of images: pixels, channels, one of two dimensions of the pixels, all.
const std::vector<Sum> kImageSums = {{{2, 5, 4, 3}, {2, 3}}, {{2, 5, 4, 3}, {1}},    {{2, 5, 4, 3}, {2}},
                                     {{2, 5, 4, 3}, {3}},    {{2, 5, 4, 3}, {0}},    {{2, 5, 4, 3}, {0, 2, 3}},
                                     {{2, 5, 4, 3}, {1, 3}}, {{2, 5, 4, 3}, {0, 1}}, {{2, 5, 4, 3}, {0, 1, 2, 3}},
                                     {{2, 5, 4, 3}, {}},     {{3, 33, 9, 9}, {2, 3}}};

OpCase reduce_case(const Sum& s, bool is_mean) {
  return {
      .batch = s.x[0],
      .build =
          [=](OpBuilder& b) {
            const Value x = b.arg("x", s.x);
            return is_mean ? b.m.reduce_mean(x, s.axes) : b.m.reduce_sum(x, s.axes);
          },
      .predict = [=](const Values& v) { return reduced(v.at("x"), s.axes, is_mean ? 1 / count_of(s.x, s.axes) : 1); }};
}

TEST(OpReduce, SumsAndMeans) {
  for (const auto& list : {kSums, kImageSums})
    for (const Sum& s : list) {
      SCOPED_TRACE(::testing::PrintToString(s.x) + " over " + ::testing::PrintToString(s.axes));
      for (const bool is_mean : {false, true}) check_op(reduce_case(s, is_mean));
    }
}

TEST(OpReduce, Bf16) {
  check_op_bf16(reduce_case({{3, 5}, {1}}, false));
  check_op_bf16(reduce_case({{3, 7, 5}, {1}}, true));
  check_op_bf16(reduce_case({{2, 5, 4, 3}, {2, 3}}, true));
}

// Behind a convolution the image is channels-last.
TEST(OpReduce, Images) {
  const Conv2d o{.out = 6, .kernel = 3, .padding = 1};
  for (const Sum& s : kImageSums) {
    SCOPED_TRACE(::testing::PrintToString(s.axes));
    check_op({.batch = 3,
              .build =
                  [=](OpBuilder& b) {
                    return b.m.reduce_mean(b.m.conv2d(b.arg("x", {3, 2, 4, 5}), o, "conv"), s.axes);
                  },
              .predict =
                  [=](const Values& v) {
                    const Tensor y = conv2d(v.at("x"), v.at("conv.weight"), &v.at("conv.bias"), o);
                    return reduced(y, s.axes, 1 / count_of(y.dims, s.axes));
                  },
              .tolerance = 2e-5});
  }
}

// A norm written with them: the gradients of both meet.
TEST(OpReduce, CentredRows) {
  check_op({.batch = 4,
            .build =
                [](OpBuilder& b) {
                  const Value x = b.arg("x", {4, 9});
                  const Value mean = b.m.expand(b.m.reshape(b.m.reduce_mean(x, {1}), {4, 1}), {4, 9});
                  return b.m.mul(mean, x);
                },
            .predict =
                [](const Values& v) {
                  const Tensor mean = reshape(reduced(v.at("x"), {1}, 1.0 / 9), {4, 1});
                  return mul(expanded(mean, {4, 9}), v.at("x"));
                }});
}

void expect_refused(Op op, const Dims& x, const Attrs& attrs, const std::vector<std::string>& words) {
  Model m("op", 2);
  try {
    m.layer(op, {m.input(x, "x")}, attrs, "it");
    FAIL() << "not refused";
  } catch (const UserError& e) {
    for (const std::string& word : words)
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << "no '" << word << "' in: " << e.what();
  }
}

TEST(OpExpand, Errors) {
  expect_refused(Op::expand, {3}, {{"shape", Dims{2, 4}}}, {"it", "[2, 3]", "[2, 4]"});
  expect_refused(Op::expand, {3}, {{"shape", Dims{3}}}, {"[2, 3]", "[3]"});
  expect_refused(Op::expand, {1}, {{"shape", Dims{1, 5}}}, {"[2, 1]", "[1, 5]"});
  expect_refused(Op::expand, {1}, {{"shape", Dims{2, 0}}}, {"2, 0"});
  expect_refused(Op::expand, {1}, {{"shape", Dims{1, 1, 1, 1, 1, 2, 1}}}, {"6"});
  expect_refused(Op::expand, {3}, {{"shape", Dims{2, 5, 3}}, {"axes", Dims{2}}}, {"[2, 5, 3]", "2"});
  expect_refused(Op::expand, {3}, {{"shape", Dims{2, 5, 3}}, {"axes", Dims{3}}}, {"axes", "3"});
  Model m("op", 2);
  EXPECT_THROW(m.expand(m.tokens({1}, "ids"), {2, 4}), UserError);
}

TEST(OpReduce, Errors) {
  expect_refused(Op::reduce, {3}, {{"axes", Dims{2}}}, {"it", "axes", "[2, 3]"});
  expect_refused(Op::reduce, {3}, {{"axes", Dims{-1}}}, {"-1"});
  expect_refused(Op::reduce, {3}, {{"axes", Dims{1, 0}}}, {"1, 0"});
  expect_refused(Op::reduce, {3}, {{"axes", Dims{1, 1}}}, {"1, 1"});
  expect_refused(Op::reduce, {3}, {{"axes", Dims{1}}, {"scale", std::nan("")}}, {"scale"});
}

}  // namespace
}  // namespace overtake::reference
