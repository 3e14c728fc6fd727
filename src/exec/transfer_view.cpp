#include "exec/transfer_view.h"

#include <algorithm>

#include "comm/group.h"

namespace overtake {
namespace {

// What is moved is moved as it lies in memory, from the first byte to the last.
std::int64_t solid_bytes(const Graph& g, BufferId b) {
  OVERTAKE_CHECK(g.buffers[b].layout.pitch == 0, "buffer {} has gaps and cannot be moved", g.buffer_name(b));
  return g.bytes(b);
}

std::int64_t elements(const Graph& g, BufferId b) { return solid_bytes(g, b) / bytes_of(g.buffers[b].dtype); }

struct Part {
  std::int64_t first, count;
};
Part part(std::int64_t count, std::int64_t members, std::int64_t index) {
  const PartRange range = part_of(static_cast<std::size_t>(count), static_cast<int>(members), static_cast<int>(index));
  return {static_cast<std::int64_t>(range.begin), static_cast<std::int64_t>(range.end - range.begin)};
}

}  // namespace

std::int64_t members_of(const Task& task) {
  OVERTAKE_CHECK(task.writes > 0 && task.reads > 0 && task.reads % task.writes == 0,
                 "a collective that reads {} buffers and writes {}", task.reads, task.writes);
  return task.reads / task.writes;
}

std::vector<CopiedPiece> copied_pieces(const TaskView& v) {
  const Graph& g = v.graph();
  const auto reads = g.reads(v.task()), writes = g.writes(v.task());
  std::vector<CopiedPiece> pieces;
  if (v.kind() == Kind::recv) {
    OVERTAKE_CHECK(reads.size() == writes.size() + 1, "a recv of {} buffers into {}", reads.size() - 1, writes.size());
    for (std::size_t i = 0; i < writes.size(); ++i) {
      const std::int64_t bytes = solid_bytes(g, writes[i]);
      OVERTAKE_CHECK(solid_bytes(g, reads[i + 1]) == bytes, "{} is received as {}, which has another size",
                     g.buffer_name(reads[i + 1]), g.buffer_name(writes[i]));
      pieces.push_back({.read = i + 1, .write = i, .from_byte = 0, .to_byte = 0, .bytes = bytes});
    }
    return pieces;
  }
  OVERTAKE_CHECK(v.kind() == Kind::all_gather, "a {} copies nothing", to_string(v.kind()));
  const std::int64_t members = members_of(v.task());
  for (std::size_t i = 0; i < writes.size(); ++i) {
    for (std::int64_t m = 0; m < members; ++m) {
      const std::size_t read = static_cast<std::size_t>(m) * writes.size() + i;
      const Part mine = part(elements(g, writes[i]), members, m);
      const std::int64_t size = bytes_of(g.buffers[writes[i]].dtype);
      OVERTAKE_CHECK(solid_bytes(g, reads[read]) == mine.count * size, "{} is not part {} of {}",
                     g.buffer_name(reads[read]), m, g.buffer_name(writes[i]));
      pieces.push_back(
          {.read = read, .write = i, .from_byte = 0, .to_byte = mine.first * size, .bytes = mine.count * size});
    }
  }
  return pieces;
}

std::vector<SummedPiece> summed_pieces(const TaskView& v) {
  const Graph& g = v.graph();
  const auto reads = g.reads(v.task()), writes = g.writes(v.task());
  const std::int64_t members = members_of(v.task());
  std::vector<SummedPiece> pieces;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    SummedPiece piece{.reads = {}, .write = i, .first = 0, .count = elements(g, writes[i])};
    for (std::int64_t m = 0; m < members; ++m) {
      piece.reads.push_back(static_cast<std::size_t>(m) * writes.size() + i);
      const BufferId b = reads[piece.reads.back()];
      OVERTAKE_CHECK(g.buffers[b].dtype == g.buffers[writes[i]].dtype && elements(g, b) == elements(g, reads[i]),
                     "{} and {} cannot be added", g.buffer_name(b), g.buffer_name(writes[i]));
    }
    if (v.kind() == Kind::reduce_scatter) {
      const std::int64_t index = v.attrs().integer("index");
      OVERTAKE_CHECK(index >= 0 && index < members, "member {} of a group of {} buffers each", index, members);
      const Part mine = part(elements(g, reads[i]), members, index);
      piece.first = mine.first;
      OVERTAKE_CHECK(mine.count == piece.count, "{} is not part {} of {}", g.buffer_name(writes[i]), index,
                     g.buffer_name(reads[i]));
    } else {
      OVERTAKE_CHECK(piece.count == elements(g, reads[i]), "{} and its sum {} have different sizes",
                     g.buffer_name(reads[i]), g.buffer_name(writes[i]));
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::int64_t transferred_bytes(const TaskView& v) {
  const Graph& g = v.graph();
  const auto reads = g.reads(v.task()), writes = g.writes(v.task());
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const bool is_whole_read = v.kind() == Kind::reduce_scatter || v.kind() == Kind::all_reduce;
    bytes += solid_bytes(g, is_whole_read ? reads[i] : writes[i]);
  }
  return bytes;
}

std::uint16_t sender_of(const Graph& g, const Task& task) {
  OVERTAKE_CHECK(task.kind == Kind::recv && task.reads > 0, "no recv");
  return g.buffers[g.reads(task).back()].device;
}

std::uint16_t neighbour_of(const Graph& g, const Task& task) {
  const auto members = static_cast<std::size_t>(members_of(task));
  const auto device_of = [&](std::size_t m) { return g.buffers[g.reads(task)[m * task.writes]].device; };
  std::size_t own = 0;
  while (own < members && device_of(own) != task.device) ++own;
  OVERTAKE_CHECK(own < members, "device {} is no member of its own collective", task.device);
  return device_of((own + members - 1) % members);
}

}  // namespace overtake
