#pragma once
// Concats without copies: their inputs are written where they belong in the result, and the gradients of the inputs
// are read where they lie in the gradient of the result. A chain of concats, as of DenseNet, becomes one wide image.

#include "overtake/target.h"

namespace overtake {

// Gives buffers a place inside others; no task changes. What a task cannot write or read there stays where it is, and
// the concat copies that part alone. After everything that changes who reads an image.
Graph share_concats(Graph graph, const Target& target);

}  // namespace overtake
