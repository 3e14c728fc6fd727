#pragma once
// One product instead of three.

#include "overtake/graph.h"

namespace overtake {

// Where query, key and value of an attention are three linear layers of one input, of one width and with nobody else
// reading them: one layer whose weight has the rows of all three, and the attention of what it makes. In files the
// weights stay three (Parameter::parts).
Graph join_projections(Graph graph);

}  // namespace overtake
