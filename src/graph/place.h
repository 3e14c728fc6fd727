#pragma once
// Images that lie inside wider ones: what that means for concats, and who is on whose bytes.

#include <functional>
#include <vector>

#include "overtake/graph.h"

namespace overtake {

// The image whose memory a buffer lies in: another one, or itself.
BufferId holder_of(const Graph& graph, BufferId b);
// Bytes from the start of that one.
std::int64_t offset_inside(const Graph& graph, BufferId b);

// Per buffer: whether it lies inside another, or others lie inside it.
std::vector<char> shared_images(const Graph& graph);

// A concat or its gradient: the parts lie side by side along an axis of the whole. The forward task writes the whole,
// the gradient reads it.
struct ConcatPart {
  BufferId buffer = kNone;  // kNone: nobody wants this part
  std::int64_t first = 0;   // where it begins along the axis
};
BufferId concat_whole(const Graph& graph, const Task& task);
std::vector<ConcatPart> concat_parts(const Graph& graph, const Task& task);
// Whether the part is where it belongs in the whole already: there is nothing to move.
bool lies_in_place(const Graph& graph, const Task& task, const ConcatPart& part);

// Two buffers in the memory of one image that have no channel in common: though they seem to overlap, no byte is
// both's.
bool are_side_by_side(const Graph& graph, BufferId a, BufferId b);
// Whether two buffers in the memory of one image show the same values where both lie: by concats and their gradients in
// place, one comes from the other, or both from a third. writer_of: of a buffer in this step, or kNone.
bool show_the_same(const Graph& graph, const std::function<TaskId(BufferId)>& writer_of, BufferId a, BufferId b);

// Part of verify(): every place is one that an image fits in.
void verify_places(const Graph& graph);

}  // namespace overtake
