// Views and the moves that make them, against moving numbers about one by one.

#include "rewrite/strided_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace overtake {
namespace {

using Dims = std::vector<std::int64_t>;

// A tensor whose elements say where they were in the beginning.
struct Places {
  Shape shape;
  std::vector<std::int64_t> at;

  explicit Places(const Shape& s) : shape(s), at(static_cast<std::size_t>(s.elements())) {
    std::iota(at.begin(), at.end(), std::int64_t{0});
  }

  // Calls f with the index of every element, in row-major order.
  template <class F>
  static void for_each(const Shape& s, F f) {
    Dims index(s.rank, 0);
    for (std::int64_t i = 0; i < s.elements(); ++i) {
      std::int64_t rest = i;
      for (std::size_t d = s.rank; d-- > 0; rest /= s[d]) index[d] = rest % s[d];
      f(index);
    }
  }

  std::int64_t get(const Dims& index) const {
    std::int64_t i = 0;
    for (std::size_t d = 0; d < index.size(); ++d) i = i * shape[d] + index[d];
    return at[static_cast<std::size_t>(i)];
  }

  Places transposed(const Dims& order) const {
    Shape to = shape;
    for (std::size_t i = 0; i < order.size(); ++i) to[i] = shape[static_cast<std::size_t>(order[i])];
    Places y(to);
    std::size_t n = 0;
    for_each(to, [&](const Dims& index) {
      Dims from(index.size());
      for (std::size_t i = 0; i < order.size(); ++i) from[static_cast<std::size_t>(order[i])] = index[i];
      y.at[n++] = get(from);
    });
    return y;
  }

  Places sliced(std::size_t axis, std::int64_t begin, std::int64_t end) const {
    Shape to = shape;
    to[axis] = end - begin;
    Places y(to);
    std::size_t n = 0;
    for_each(to, [&](Dims index) {
      index[axis] += begin;
      y.at[n++] = get(index);
    });
    return y;
  }

  Places reshaped(const Shape& to) const {
    Places y = *this;
    y.shape = to;
    return y;
  }
};

// Where a view says its elements were.
std::vector<std::int64_t> places_of(const StridedView& view) {
  std::vector<std::int64_t> all{view.offset};
  for (const auto& dim : view.dims)
    for (const auto& axis : dim) {
      std::vector<std::int64_t> next;
      for (const std::int64_t place : all)
        for (std::int64_t i = 0; i < axis.extent; ++i) next.push_back(place + i * axis.stride);
      all = std::move(next);
    }
  return all;
}

// Some shape with as many elements, of up to four dimensions.
Shape random_shape(std::int64_t elements, std::mt19937& random) {
  Dims dims(1 + random() % 4, 1);
  for (const std::int64_t p : {2, 3, 5})
    for (; elements % p == 0; elements /= p) dims[random() % dims.size()] *= p;
  return Shape(dims);
}

Dims random_order(std::size_t rank, std::mt19937& random) {
  Dims order(rank);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

TEST(StridedView, ShortestMovesDoTheSame) {
  std::mt19937 random(7);
  std::size_t tried = 0, none = 0;
  for (int round = 0; round < 5000; ++round) {
    const Shape from = random_shape(round % 3 == 0 ? 24 : 60, random);
    StridedView view(from);
    Places moved(from);
    std::size_t steps = 0;
    for (std::size_t i = 0; i < 1 + random() % 4; ++i) {
      if (random() % 2 == 0) {
        const Dims order = random_order(moved.shape.rank, random);
        view.transpose(order);
        moved = moved.transposed(order);
      } else {
        const Shape to = random_shape(from.elements(), random);
        if (!view.reshape(to)) continue;
        moved = moved.reshaped(to);
      }
      ++steps;
    }
    ASSERT_EQ(places_of(view), moved.at) << "round " << round;
    const auto moves = shortest_moves(view, from, moved.shape);
    ASSERT_TRUE(moves.has_value());
    Places again(from);
    for (const Move& m : *moves)
      again = m.op == Op::reshape ? again.reshaped(Shape(m.numbers)) : again.transposed(m.numbers);
    ASSERT_EQ(again.shape, moved.shape) << "round " << round;
    ASSERT_EQ(again.at, moved.at) << "round " << round;
    EXPECT_LE(moves->size(), std::max<std::size_t>(steps, 3));
    ++tried;
    none += moves->empty();
  }
  EXPECT_EQ(tried, 5000u);
  EXPECT_GT(none, 100u);
}

TEST(StridedView, SlicesShiftAndShorten) {
  std::mt19937 random(11);
  int sliced = 0;
  for (int round = 0; round < 2000; ++round) {
    StridedView view(random_shape(120, random));
    Places moved = [&] {
      Shape s;
      for (const auto& dim : view.dims) s.dims[s.rank++] = dim.empty() ? 1 : dim[0].extent;
      return Places(s);
    }();
    for (int i = 0; i < 4; ++i) {
      const std::size_t axis = random() % moved.shape.rank;
      const auto extent = static_cast<std::size_t>(moved.shape[axis]), first = random() % extent;
      const auto begin = static_cast<std::int64_t>(first);
      const auto end = static_cast<std::int64_t>(first + 1 + random() % (extent - first));
      if (random() % 3 == 0 && view.slice(axis, begin, end)) {
        moved = moved.sliced(axis, begin, end);
        ++sliced;
      }
      const Dims order = random_order(moved.shape.rank, random);
      view.transpose(order);
      moved = moved.transposed(order);
      const Shape to = random_shape(moved.shape.elements(), random);
      if (to.elements() == moved.shape.elements() && view.reshape(to)) moved = moved.reshaped(to);
      ASSERT_EQ(places_of(view), moved.at) << "round " << round;
    }
  }
  EXPECT_GT(sliced, 500);
}

TEST(StridedView, WhatIsNoViewIsLeftAsItWas) {
  StridedView view(Shape{2, 3});
  view.transpose(Dims{1, 0});
  const auto before = view.dims;
  EXPECT_FALSE(view.reshape(Shape{2, 3}));  // would cut through an axis
  EXPECT_EQ(view.dims, before);
  EXPECT_TRUE(view.reshape(Shape{6}));  // two axes in one dimension
  EXPECT_FALSE(view.slice(0, 1, 3));
  EXPECT_TRUE(view.slice(0, 2, 4));
  EXPECT_EQ(places_of(view), (Dims{1, 4}));
}

}  // namespace
}  // namespace overtake
