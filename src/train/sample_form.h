#pragma once

#include "overtake/graph.h"
#include "train/data.h"

namespace overtake {

// What a model takes, for opening data.
SampleForm sample_form_of(const Graph& graph);

}  // namespace overtake
