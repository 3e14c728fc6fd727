#pragma once
// Finds groups of small ops that are one larger op, and replaces them: what models from files are made of.

#include "overtake/graph.h"

namespace overtake {

// In this order, over and over until nothing changes:
// - reshapes, transposes and slices that undo each other, or do nothing; linear layers between two such;
// - linear + bias;
// - gelu, gelu_tanh, silu, hard_sigmoid, hard_swish and mish from their formulas;
// - layer norm and group norm from their parts;
// - attention from two products and a softmax, with a causal mask or none.
// Only where nobody else reads what is between. What nobody needs goes: tasks, weights, constants, buffers (ids
// change). The new task has the layer of the last one of its group. Numbers stay the same but for rounding.
//
// Batch norm is not put together from parts: evaluation would normalise by running statistics, which the parts do not
// have, and so compute something else than the model says.
Graph recognise(Graph graph);

}  // namespace overtake
