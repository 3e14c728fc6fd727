#pragma once
// Classifiers whose number of classes does not suit matrix units (50257, 30522) get a few more that take no part.

#include "overtake/graph.h"

namespace overtake {

// Where a linear layer feeds a cross entropy alone and its rows of bfloat16 would not be multiples of 16 bytes: its
// weight, its bias and the logits are widened to a multiple of 64. The new rows of the weight are zero and stay so: the
// loss knows how many classes count, and gives the others no gradient. Files do not see them.
Graph pad_classes(Graph graph);

}  // namespace overtake
