// Concat, slice, reshape, transpose.

#include <numeric>

#include "op_case.h"

namespace overtake::reference {
namespace {

OpCase concat_case(const std::vector<Dims>& xs, std::int64_t axis) {
  const auto name = [](std::size_t i) { return "x" + std::to_string(i); };
  return {.batch = xs[0][0],
          .build =
              [=](OpBuilder& b) {
                std::vector<Value> all;
                for (std::size_t i = 0; i < xs.size(); ++i) all.push_back(b.arg(name(i), xs[i]));
                return b.m.concat(all, axis);
              },
          .predict =
              [=](const Values& v) {
                std::vector<Tensor> all;
                for (std::size_t i = 0; i < xs.size(); ++i) all.push_back(v.at(name(i)));
                return concat(all, axis);
              }};
}

TEST(OpConcat, Axes) {
  check_op(concat_case({{2, 5}, {3, 5}}, 0));
  check_op(concat_case({{3, 5}, {3, 1}, {3, 7}}, 1));
  check_op(concat_case({{2, 3, 4}, {2, 2, 4}}, 1));
  check_op(concat_case({{2, 3, 4}, {2, 3, 1}}, 2));
  check_op(concat_case({{2, 3, 4}}, 1));
}

TEST(OpConcat, Images) {
  for (std::int64_t axis = 0; axis < 4; ++axis) {
    Dims second = {2, 3, 4, 5};
    second[at(axis)] += axis == 0 ? 0 : 2;
    check_op(concat_case({{2, 3, 4, 5}, second, {2, 3, 4, 5}}, axis));
  }
}

// Channels of convolutions, channels-last, as in an inception block; one input has no gradient.
TEST(OpConcat, BranchesOfConvolutions) {
  const Conv2d narrow{.out = 3, .kernel = 1}, wide{.out = 5, .kernel = 3, .padding = 1};
  check_op(
      {.batch = 2,
       .build =
           [=](OpBuilder& b) {
             const Value x = b.arg("x", {2, 4, 5, 6});
             return b.m.concat({b.m.conv2d(x, narrow, "a"), b.m.input({2, 5, 6}, "host"), b.m.conv2d(x, wide, "b")}, 1);
           },
       .predict =
           [=](const Values& v) {
             return concat({conv2d(v.at("x"), v.at("a.weight"), &v.at("a.bias"), narrow), v.at("host"),
                            conv2d(v.at("x"), v.at("b.weight"), &v.at("b.bias"), wide)},
                           1);
           },
       .tolerance = 2e-5});
}

TEST(OpConcat, Bf16) { check_op_bf16(concat_case({{2, 3, 4, 5}, {2, 2, 4, 5}}, 1)); }

OpCase slice_case(const Dims& x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return b.m.slice(b.arg("x", x), axis, begin, end); },
          .predict = [=](const Values& v) { return slice(v.at("x"), axis, begin, end); }};
}

TEST(OpSlice, Axes) {
  check_op(slice_case({5, 7}, 0, 1, 4));
  check_op(slice_case({5, 7}, 1, 0, 3));
  check_op(slice_case({5, 7}, 1, 6, 7));
  check_op(slice_case({2, 5, 3}, 1, 2, 5));
  check_op(slice_case({2, 5, 3}, 2, 0, 3));
}

TEST(OpSlice, Images) {
  for (std::int64_t axis = 0; axis < 4; ++axis) check_op(slice_case({3, 6, 5, 4}, axis, 1, 3));
}

TEST(OpSlice, Bf16) { check_op_bf16(slice_case({3, 6, 5, 4}, 1, 1, 4)); }

// Slices that overlap: their gradients meet.
TEST(OpSlice, Overlapping) {
  check_op({.batch = 3,
            .build =
                [](OpBuilder& b) {
                  const Value x = b.arg("x", {3, 8});
                  return b.m.mul(b.m.slice(x, 1, 0, 5), b.m.slice(x, 1, 3, 8));
                },
            .predict = [](const Values& v) { return mul(slice(v.at("x"), 1, 0, 5), slice(v.at("x"), 1, 3, 8)); }});
}

TEST(OpReshape, Shapes) {
  for (const auto& [from, to] : std::vector<std::pair<Dims, Dims>>{
           {{2, 12}, {2, 3, 4}}, {{2, 3, 4, 5}, {2, 60}}, {{3, 8}, {24}}, {{2, 3, 4}, {6, 2, 2}}, {{4, 6}, {4, 6}}})
    check_op({.batch = from[0],
              .build = [=](OpBuilder& b) { return b.m.reshape(b.arg("x", from), to); },
              .predict = [=](const Values& v) { return reshape(v.at("x"), to); }});
}

TEST(OpReshape, OneOpenDimension) {
  check_op({.batch = 2,
            .build =
                [](OpBuilder& b) {
                  return b.m.reshape(b.arg("x", {2, 3, 4}), {4, -1});
                },
            .predict =
                [](const Values& v) {
                  return reshape(v.at("x"), {4, 6});
                }});
}

// Views of views, used beside what they are views of, with neighbours that are computed in place.
TEST(OpReshape, ViewsInTheMiddle) {
  check_op({.batch = 2,
            .build =
                [](OpBuilder& b) {
                  const Value x = b.m.activation(b.arg("x", {2, 12}), "tanh");
                  const Value flat = b.m.reshape(b.m.reshape(x, {2, 3, 4}), {24});
                  const Value y = b.m.activation(b.m.reshape(flat, {2, 12}), "sigmoid");
                  return b.m.mul(b.m.add(y, x), b.m.reshape(flat, {2, 12}));
                },
            .predict =
                [](const Values& v) {
                  const Tensor x = activation("tanh", v.at("x"));
                  return mul(add(activation("sigmoid", x), x), x);
                }});
}

TEST(OpReshape, FlattenedImages) {
  const Conv2d o{.out = 3, .kernel = 3};
  check_op({.batch = 3,
            .build =
                [=](OpBuilder& b) {
                  const Value x = b.m.relu(b.m.conv2d(b.arg("x", {3, 2, 6, 5}), o, "conv"));
                  return b.m.linear(b.m.flatten(x), {.out = 4}, "fc");
                },
            .predict =
                [=](const Values& v) {
                  const Tensor y = activation("relu", conv2d(v.at("x"), v.at("conv.weight"), &v.at("conv.bias"), o));
                  return linear(reshape(y, {3, 36}), v.at("fc.weight"), &v.at("fc.bias"));
                },
            .tolerance = 2e-5});
}

TEST(OpReshape, Bf16) {
  check_op_bf16({.batch = 2,
                 .build =
                     [](OpBuilder& b) {
                       return b.m.gelu(b.m.reshape(b.arg("x", {2, 12}), {2, 3, 4}));
                     },
                 .predict =
                     [](const Values& v) {
                       return activation("gelu", reshape(v.at("x"), {2, 3, 4}));
                     }});
}

OpCase transpose_case(const Dims& x, const Dims& order) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return b.m.transpose(b.arg("x", x), order); },
          .predict = [=](const Values& v) { return transpose(v.at("x"), order); }};
}

TEST(OpTranspose, AllOrders) {
  for (const Dims& x : {Dims{3, 7}, Dims{2, 3, 5}, Dims{2, 3, 4, 5}}) {
    Dims order(x.size());
    std::iota(order.begin(), order.end(), 0);
    do check_op(transpose_case(x, order));
    while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(OpTranspose, Large) {
  check_op(transpose_case({70, 130}, {1, 0}));
  check_op(transpose_case({2, 3, 1, 2, 3}, {4, 1, 3, 0, 2}));
}

TEST(OpTranspose, Bf16) { check_op_bf16(transpose_case({3, 4, 5}, {2, 0, 1})); }

}  // namespace
}  // namespace overtake::reference
