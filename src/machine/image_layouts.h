#pragma once

#include "overtake/target.h"

namespace overtake {

// What each op wants of images on a backend whose kernels work on channels-last ones.
ImageLayout channels_last_where_possible(const Graph& graph, const Task& task);

}  // namespace overtake
