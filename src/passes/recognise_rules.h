#pragma once
// The rules of the pass recognise. Each takes `t` as the last task of its group: it replaces the group and returns
// true, or it changes nothing and returns false.

#include "rewrite/rewriter.h"

namespace overtake {

// recognise_moves.cpp
bool simplify_moves(Rewriter& g, TaskId t);  // reshape, transpose, slice
// recognise_linear.cpp
bool add_bias_to_linear(Rewriter& g, TaskId t);
bool move_linear(Rewriter& g, TaskId t);  // move, linear, move -> linear
// recognise_activations.cpp
bool recognise_activation(Rewriter& g, TaskId t);
// recognise_norms.cpp
bool recognise_layer_norm(Rewriter& g, TaskId t);
bool recognise_group_norm(Rewriter& g, TaskId t);
bool scale_norm(Rewriter& g, TaskId t);  // norm * gamma, norm + beta -> norm
// recognise_attention.cpp
bool recognise_attention(Rewriter& g, TaskId t);

}  // namespace overtake
