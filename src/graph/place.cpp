#include "graph/place.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {
namespace {

struct Channels {
  std::int64_t begin, end;
};

// Of the image that holds it.
Channels channels_of(const Graph& g, BufferId b) {
  const Buffer& x = g.buffers[b];
  return {x.inside.channel, x.inside.channel + (x.shape.rank == 4 ? x.shape[1] : 0)};
}

bool have_common(const Channels& a, const Channels& b) { return a.begin < b.end && b.begin < a.end; }
bool contains(const Channels& a, const Channels& b) { return a.begin <= b.begin && b.end <= a.end; }

// What `b` shows at the channels, a step nearer to where they were written: a part of the whole that a concat
// made, or the whole that a concat's gradient took apart. kNone where b was computed or copied there.
BufferId shown_by(const Graph& g, const Task& writer, BufferId b, const Channels& channels) {
  if (writer.op != Op::concat) return kNone;
  for (const ConcatPart& part : concat_parts(g, writer)) {
    if (part.buffer == kNone || !lies_in_place(g, writer, part)) continue;
    if (writer.kind != Kind::forward && part.buffer == b) return concat_whole(g, writer);
    if (writer.kind == Kind::forward && contains(channels_of(g, part.buffer), channels)) return part.buffer;
  }
  return kNone;
}

}  // namespace

BufferId holder_of(const Graph& g, BufferId b) {
  const BufferId holder = g.buffers[b].inside.buffer;
  return holder == kNone ? b : holder;
}

std::int64_t offset_inside(const Graph& g, BufferId b) {
  return g.buffers[b].inside.channel * bytes_of(g.buffers[b].dtype);
}

std::vector<char> shared_images(const Graph& g) {
  std::vector<char> is_shared(g.buffers.size(), 0);
  for (BufferId b = 0; b < g.buffers.size(); ++b)
    if (g.buffers[b].inside.buffer != kNone) is_shared[b] = is_shared[g.buffers[b].inside.buffer] = 1;
  return is_shared;
}

BufferId concat_whole(const Graph& g, const Task& t) {
  return t.kind == Kind::forward ? g.writes(t)[0] : g.reads(t)[0];
}

std::vector<ConcatPart> concat_parts(const Graph& g, const Task& t) {
  const bool is_forward = t.kind == Kind::forward;
  const auto axis = static_cast<std::size_t>(g.attrs_of(t).integer("axis"));
  const std::span<const BufferId> ids = is_forward ? g.reads(t) : g.writes(t);
  OVERTAKE_CHECK(t.reads > 0 && t.writes > 0 && concat_whole(g, t) != kNone && axis < Shape::kMaxRank &&
                     (is_forward || g.attrs_of(t).integers("extents").size() >= ids.size()),
                 "layer {}: a concat of {} parts along axis {}", g.layer_name(t.layer), ids.size(), axis);
  std::vector<ConcatPart> parts;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    OVERTAKE_CHECK(!is_forward || ids[i] != kNone, "layer {}: part {} of a concat is absent", g.layer_name(t.layer), i);
    parts.push_back({ids[i], first});
    first += is_forward ? g.buffers[ids[i]].shape[axis] : g.attrs_of(t).integers("extents")[i];
  }
  return parts;
}

bool lies_in_place(const Graph& g, const Task& t, const ConcatPart& part) {
  const BufferId whole = concat_whole(g, t);
  const Place& place = g.buffers[part.buffer].inside;
  return g.attrs_of(t).integer("axis") == 1 && place.buffer == holder_of(g, whole) &&
         place.channel == g.buffers[whole].inside.channel + part.first;
}

bool are_side_by_side(const Graph& g, BufferId a, BufferId b) {
  return holder_of(g, a) == holder_of(g, b) && !have_common(channels_of(g, a), channels_of(g, b));
}

bool show_the_same(const Graph& g, const std::function<TaskId(BufferId)>& writer_of, BufferId a, BufferId b) {
  if (holder_of(g, a) != holder_of(g, b)) return false;
  const Channels of_a = channels_of(g, a), of_b = channels_of(g, b);
  const Channels common{std::max(of_a.begin, of_b.begin), std::min(of_a.end, of_b.end)};
  const auto shown = [&](BufferId x) {
    const TaskId writer = writer_of(x);
    return writer == kNone ? kNone : shown_by(g, g.tasks[writer], x, common);
  };
  std::vector<BufferId> sources;
  for (BufferId x = a; x != kNone; x = shown(x)) sources.push_back(x);
  for (BufferId x = b; x != kNone; x = shown(x))
    if (std::ranges::find(sources, x) != sources.end()) return true;
  return false;
}

void verify_places(const Graph& g) {
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    const Buffer& x = g.buffers[b];
    if (x.inside.buffer == kNone) {
      OVERTAKE_CHECK(x.layout.pitch == 0 && x.inside.channel == 0, "buffer {} has gaps, but lies in no other",
                     g.buffer_name(b));
      continue;
    }
    OVERTAKE_CHECK(x.inside.buffer < g.buffers.size(), "buffer {} lies in unknown buffer {}", g.buffer_name(b),
                   x.inside.buffer);
    const Buffer& holder = g.buffers[x.inside.buffer];
    const auto may_share = [](Role role) { return role == Role::activation || role == Role::gradient; };
    Layout pitched = channels_last_layout();
    pitched.pitch = holder.shape[1];
    Shape widened = x.shape;
    widened[1] = holder.shape[1];
    OVERTAKE_CHECK(may_share(x.role) && may_share(holder.role) && holder.inside.buffer == kNone &&
                       holder.layout == channels_last_layout() && x.layout == pitched && widened == holder.shape &&
                       x.dtype == holder.dtype && x.device == holder.device && x.inside.channel >= 0 &&
                       x.inside.channel + x.shape[1] <= holder.shape[1],
                   "buffer {} {} cannot lie at channel {} of {} {}", g.buffer_name(b), to_string(x.shape),
                   x.inside.channel, g.buffer_name(x.inside.buffer), to_string(holder.shape));
  }
}

}  // namespace overtake
