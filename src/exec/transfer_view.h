#pragma once
// Transfers of plans that have all devices in one, as executors do them: on the memory of all, without a network.
//   send:            reads what is sent            writes an empty token; does nothing
//   recv:            reads (token, sources ...)    writes copies, one of each source
//   all_reduce:      reads k buffers of member 0, k of member 1, ..., its own among them    writes k sums
//   reduce_scatter:  the same                      writes its own part of each sum (attribute: index)
//   all_gather:      reads k parts of member 0, k of member 1, ...    writes k whole buffers

#include <cstdint>
#include <vector>

#include "exec/task_view.h"

namespace overtake {

// Elements (bytes where nothing is added) [begin, end) of one operand.
struct CopiedPiece {
  std::size_t read = 0, write = 0;  // which operands
  std::int64_t from_byte = 0, to_byte = 0, bytes = 0;
};
// The copies that a recv or an all_gather makes.
std::vector<CopiedPiece> copied_pieces(const TaskView& view);

// What becomes one of the results of an all_reduce or a reduce_scatter: the sum over members, in their order.
struct SummedPiece {
  std::vector<std::size_t> reads;  // by member
  std::size_t write = 0;
  std::int64_t first = 0, count = 0;  // elements of each of the reads
};
std::vector<SummedPiece> summed_pieces(const TaskView& view);

// Of a collective.
std::int64_t members_of(const Task& task);
// Bytes of what each member has in the end, or had in the beginning, whichever is more; of a recv, of what is received.
std::int64_t transferred_bytes(const TaskView& view);

// The device that a recv gets its data from.
std::uint16_t sender_of(const Graph& graph, const Task& task);
// The device of the member before this one, in a ring of them.
std::uint16_t neighbour_of(const Graph& graph, const Task& task);

}  // namespace overtake
