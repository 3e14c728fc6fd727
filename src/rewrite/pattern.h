#pragma once
// What the rules of recognise look for: products, scalar factors and addends, and groups that nobody else looks into.

#include <optional>
#include <string_view>
#include <vector>

#include "rewrite/rewriter.h"

namespace overtake {

// The tasks of a pattern while it is being matched.
using MatchedTasks = std::vector<TaskId>;

// Whether nobody outside the group reads anything its tasks make, except what `last` makes.
bool is_closed(const Rewriter& g, const MatchedTasks& group, TaskId last);

// Constants in files are rounded in many ways.
bool is_close(double value, double expected, double relative = 1e-3);

// scale * the product of the factors: a tree of multiplications of which nobody else reads an inner result.
struct Product {
  double scale = 1;
  std::vector<BufferId> factors;
};
Product product_of(const Rewriter& g, BufferId b, MatchedTasks& group);

// scale * source, reshaped.
struct Scaled {
  BufferId source = kNone;
  double scale = 1;
};
Scaled without_scale_and_reshape(const Rewriter& g, BufferId b, MatchedTasks& group);

// What b is, reshaped.
BufferId without_reshape(const Rewriter& g, BufferId b, MatchedTasks& group);

// x where b = x + value.
struct Shifted {
  BufferId x = kNone;
  double value = 0;
};
std::optional<Shifted> plus_scalar(const Rewriter& g, BufferId b, MatchedTasks& group);

// x where b = function(x), else kNone.
BufferId argument_of(const Rewriter& g, BufferId b, std::string_view function, MatchedTasks& group);

// Of an operation on two operands (add, mul): the other operand.
BufferId other_operand(const Rewriter& g, TaskId t, BufferId one);

}  // namespace overtake
