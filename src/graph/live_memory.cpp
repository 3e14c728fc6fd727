#include "graph/live_memory.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace overtake {
namespace {

std::size_t group_of(Role role) {
  switch (role) {
    case Role::weight:
    case Role::state:
    case Role::optimizer_state:
    case Role::weight_copy:
    case Role::constant:
      return 0;
    case Role::activation:
      return 1;
    case Role::gradient:
    case Role::weight_gradient:
      return 2;
    case Role::input:
    case Role::scratch:
    case Role::output:
      return 3;
  }
  return 3;
}

// For each buffer, the one that stands for all that lie on common bytes by declared shares.
std::vector<BufferId> holders(const Plan& plan) {
  std::vector<BufferId> holder(plan.graph.buffers.size());
  std::iota(holder.begin(), holder.end(), BufferId{0});
  const auto find = [&](BufferId b) {
    while (holder[b] != b) b = holder[b] = holder[holder[b]];
    return b;
  };
  for (const Share& share : plan.shares) holder[find(share.to)] = find(share.from);
  for (BufferId b = 0; b < holder.size(); ++b)
    if (const BufferId wide = plan.graph.buffers[b].inside.buffer; wide != kNone) holder[find(b)] = find(wide);
  for (BufferId b = 0; b < holder.size(); ++b) holder[b] = find(b);
  return holder;
}

// A piece of memory: the bytes of one holder, and when they are in use.
struct Piece {
  std::int64_t bytes = 0;
  std::int64_t begin_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t end_ns = std::numeric_limits<std::int64_t>::min();
  std::int64_t carried_ns = 0;  // until then it holds what the last step left for delayed tasks
  bool is_carried = false;      // into the next step
  bool is_whole_step = false;
};

std::vector<Piece> pieces_of(const Plan& plan, const Trace& trace, const std::vector<BufferId>& holder) {
  const Graph& g = plan.graph;
  std::vector<Piece> pieces(g.buffers.size());
  const std::vector<BufferUse> uses = buffer_uses(plan);
  for (BufferId b = 0; b < uses.size(); ++b) {
    if (!uses[b].is_used) continue;
    Piece& piece = pieces[holder[b]];
    piece.bytes = std::max(piece.bytes, g.bytes(b));
    piece.is_carried = piece.is_carried || uses[b].is_carried;
    piece.is_whole_step = piece.is_whole_step || uses[b].is_whole_step || g.buffers[b].role == Role::constant;
  }
  for (const Span& span : trace.spans) {
    const auto use = [&](BufferId b) {
      if (b == kNone) return;
      Piece& piece = pieces[holder[b]];
      if (uses[b].is_carried && g.tasks[span.task].is_delayed) {
        piece.carried_ns = std::max(piece.carried_ns, span.end_ns);
        return;
      }
      piece.begin_ns = std::min(piece.begin_ns, span.begin_ns);
      piece.end_ns = std::max(piece.end_ns, span.end_ns);
    };
    std::ranges::for_each(g.reads(span.task), use);
    std::ranges::for_each(g.writes(span.task), use);
  }
  return pieces;
}

}  // namespace

std::vector<std::vector<MemorySample>> live_memory(const Plan& plan, const Trace& trace) {
  const Graph& g = plan.graph;
  std::size_t devices = 1;
  for (const Lane& lane : plan.lanes) devices = std::max(devices, std::size_t{lane.device} + 1);
  using Change = std::array<std::int64_t, kMemoryGroups.size()>;
  std::vector<std::map<std::int64_t, Change>> changes(devices);
  for (auto& of_device : changes) of_device[0] = {};

  const std::vector<BufferId> holder = holders(plan);
  const std::vector<Piece> pieces = pieces_of(plan, trace, holder);
  for (BufferId b = 0; b < pieces.size(); ++b) {
    const Piece& piece = pieces[b];
    const Buffer& buffer = g.buffers[b];
    if (holder[b] != b || buffer.device >= devices) continue;
    const std::size_t group = group_of(buffer.role);
    auto& of_device = changes[buffer.device];
    if (piece.is_whole_step) {
      of_device[0][group] += piece.bytes;
      continue;
    }
    if (piece.carried_ns > 0) {
      of_device[0][group] += piece.bytes;
      of_device[piece.carried_ns][group] -= piece.bytes;
    }
    if (piece.begin_ns >= piece.end_ns) continue;
    of_device[piece.begin_ns][group] += piece.bytes;
    if (!piece.is_carried) of_device[piece.end_ns][group] -= piece.bytes;
  }

  std::vector<std::vector<MemorySample>> samples(devices);
  for (std::size_t d = 0; d < devices; ++d) {
    MemorySample now;
    for (const auto& [at_ns, change] : changes[d]) {
      now.at_ns = at_ns;
      for (std::size_t i = 0; i < change.size(); ++i) now.bytes[i] += change[i];
      if (samples[d].empty() || samples[d].back().bytes != now.bytes) samples[d].push_back(now);
    }
  }
  return samples;
}

std::int64_t total_bytes(const MemorySample& sample) {
  return std::accumulate(sample.bytes.begin(), sample.bytes.end(), std::int64_t{0});
}

}  // namespace overtake
