#pragma once
// Transposes before and behind matrix products become part of the product, which reads and writes matrices where they
// lie.

#include "overtake/target.h"

namespace overtake {

// On the forward graph, after attention has been recognised. A transpose goes where a matmul is the only reader of its
// result, or the only writer of its operand that nobody else reads: swapped rows and columns become trans_a or trans_b,
// other orders (heads split from a width) order_a, order_b or order_c, where the target takes what comes out, and the
// last dimension stays the one whose elements are neighbours. Results keep their bits.
Graph fold_transposes(Graph graph, const Target& target);

}  // namespace overtake
