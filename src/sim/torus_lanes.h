#pragma once
// Sums and gathers through a torus, as lanes: the bytes in two parts per dimension, which go round it one way and the
// other. Each is summed along its own dimension first, then what a rank has of it along the next, and spread back in
// the other order; so all links are busy all the time where the dimensions are equal.

#include "sim/lane_builder.h"

namespace overtake {

// The group must have a torus.
void add_torus_lanes(LaneBuilder& builder, Operation operation);

}  // namespace overtake
