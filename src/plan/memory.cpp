#include "plan/memory.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "graph/place.h"
#include "ops/op.h"

namespace overtake {
namespace {

std::uint64_t aligned(std::int64_t bytes) {
  return (static_cast<std::uint64_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
}

// Buffers on the same bytes, one computed from the other or side by side in one image: the unit of placement.
struct Slot {
  std::vector<BufferId> buffers;  // the first has the whole of it
  std::uint64_t bytes = 0;
  bool is_whole_step = false;
  bool is_carried = false;          // into the next step, for delayed readers
  std::vector<std::uint32_t> seen;  // per lane: how many tasks have ended whenever one of the buffers is written
  struct LastUse {
    std::uint32_t lane, end;  // one more than the place of the last task that touches it
  };
  std::vector<LastUse> last_use;      // of lanes that do
  std::vector<LastUse> last_carried;  // the same of delayed readers, which come before the first write
  std::uint32_t born = 0, dies = 0;   // in the topological order
  std::uint32_t carried_until = 0;    // one more than the place there of the last delayed reader
};

// Of a slot that only one lane touches last, and that is not carried.
struct Life {
  std::uint32_t born, dies;
  std::uint32_t lane, end;  // as LastUse; of other slots kNone
};

class MemoryPlanner {
 public:
  MemoryPlanner(Plan& plan, bool is_apart)
      : plan_(plan),
        is_apart_(is_apart),
        graph_(plan.graph),
        order_(happens_before(plan, dependencies(plan))),
        uses_(buffer_uses(plan)) {
    slot_of_.assign(graph_.buffers.size(), kNone);
    holds_others_.assign(graph_.buffers.size(), 0);
    for (const Buffer& b : graph_.buffers)
      if (b.inside.buffer != kNone) holds_others_[b.inside.buffer] = 1;
  }

  void run() {
    make_slots();
    describe_slots();
    shorten_lives();
    plan_.offsets.assign(graph_.buffers.size(), 0);
    std::uint64_t base = 0;
    const auto place_fixed = [&](bool persistent) {
      for (BufferId b = 0; b < graph_.buffers.size(); ++b) {
        if (!uses_[b].is_whole_step || is_persistent(graph_.buffers[b].role) != persistent) continue;
        plan_.offsets[b] = base;
        base += aligned(graph_.bytes(b));
      }
      return base;
    };
    plan_.persistent_bytes = place_fixed(true);
    place_fixed(false);

    const std::vector<std::uint64_t> placed = best_packing();
    std::uint64_t top = 0;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      if (slots_[s].is_whole_step) {
        for (const BufferId b : slots_[s].buffers) plan_.offsets[b] = plan_.offsets[slots_[s].buffers[0]];
        continue;
      }
      for (const BufferId b : slots_[s].buffers)
        plan_.offsets[b] = base + placed[s] + static_cast<std::uint64_t>(offset_inside(graph_, b));
      top = std::max(top, placed[s] + slots_[s].bytes);
    }
    plan_.arena_bytes = base + top;
    plan_.live_bytes = base + largest_live_sum();
    std::sort(plan_.shares.begin(), plan_.shares.end());
  }

 private:
  bool is_before_or_same(TaskId a, TaskId b) const { return a == b || order_.is_before(a, b); }

  // Nobody but task t, as the reader of `from`, touches this slot at the time of t or later.
  bool dies_in(const Slot& slot, BufferId from, TaskId t) const {
    return std::ranges::all_of(slot.buffers, [&](BufferId b) {
      if (uses_[b].is_carried) return false;
      const auto has_ended = [&](TaskId u) { return order_.is_before(u, t) || (u == t && b == from); };
      return (uses_[b].writer == kNone || has_ended(uses_[b].writer)) &&
             std::ranges::all_of(uses_[b].readers, has_ended);
    });
  }

  // What the last step carried over in b has been read when the slot is first written.
  bool is_read_before(const Slot& slot, BufferId b) const {
    const TaskId first = uses_[slot.buffers[0]].writer;
    return first != kNone && std::ranges::all_of(uses_[b].readers, [&](TaskId t) {
             return !graph_.tasks[t].is_delayed || order_.is_before(t, first);
           });
  }

  void make_slots() {
    for (BufferId b = 0; b < graph_.buffers.size(); ++b)
      if (uses_[b].is_used && uses_[b].is_whole_step) new_slot(b);
    for (const TaskId t : order_.topological) {
      const Task& task = graph_.tasks[t];
      const auto in_place = traits(task.op).in_place;
      if (in_place != nullptr)
        for (const InPlace pair : in_place(task))
          try_share(t, graph_.reads(t)[pair.read], graph_.writes(t)[pair.write]);
      for (const BufferId b : graph_.writes(t))
        if (b != kNone && slot_of_[b] == kNone) add_to_slot(b);
    }
  }

  // Of the image that holds it, where there is one.
  void add_to_slot(BufferId b) {
    const BufferId holder = holder_of(graph_, b);
    if (slot_of_[holder] == kNone) new_slot(holder);
    if (holder == b) return;
    slot_of_[b] = slot_of_[holder];
    slots_[slot_of_[b]].buffers.push_back(b);
  }

  void new_slot(BufferId b) {
    slot_of_[b] = static_cast<std::uint32_t>(slots_.size());
    Slot slot;
    slot.buffers = {b};
    slot.bytes = aligned(graph_.bytes(b));
    slot.is_whole_step = uses_[b].is_whole_step;
    slots_.push_back(slot);
  }

  void try_share(TaskId t, BufferId from, BufferId to) {
    if (from == kNone || to == kNone || slot_of_[to] != kNone || uses_[to].is_whole_step) return;
    // What lies inside another has its place; the pass that gave it has seen to it that the operand dies there.
    const Place &of_from = graph_.buffers[from].inside, &of_to = graph_.buffers[to].inside;
    if (of_from.buffer != kNone || of_to.buffer != kNone) {
      if (of_from == of_to && graph_.bytes(from) == graph_.bytes(to)) plan_.shares.push_back({from, to});
      return;
    }
    if (slot_of_[from] == kNone) return;  // carried over from the last step to the delayed task t
    Slot& slot = slots_[slot_of_[from]];
    const bool is_view = graph_.tasks[t].op == Op::reshape;
    if (is_view && (holds_others_[from] || holds_others_[to])) return;  // parts of it may be written while it is read
    const bool fits = graph_.bytes(from) == graph_.bytes(to);
    OVERTAKE_CHECK(!is_view || fits, "a view of another size: task {}", graph_.task_name(t));
    // Nothing holds back the update of a weight until the last use of a view of it.
    if (is_view && slot.is_whole_step && is_persistent(graph_.buffers[slot.buffers[0]].role) &&
        uses_[slot.buffers[0]].writer != kNone)
      return;
    if (!is_view && (is_apart_ || !fits || slot.is_whole_step || !dies_in(slot, from, t))) return;
    if (uses_[to].is_carried && (slot.is_whole_step || !is_read_before(slot, to))) return;
    slot_of_[to] = slot_of_[from];
    // A view shows the same values as every buffer it lies on that is still alive; those inside another are not.
    for (const BufferId member : slot.buffers)
      if (is_view && member != from && graph_.buffers[member].inside.buffer == kNone)
        plan_.shares.push_back({member, to});
    slot.buffers.push_back(to);
    plan_.shares.push_back({from, to});
  }

  void describe_slots() {
    std::vector<std::uint32_t> position(graph_.tasks.size(), 0);
    for (std::uint32_t i = 0; i < order_.topological.size(); ++i) position[order_.topological[i]] = i;
    const auto extend = [&](std::vector<Slot::LastUse>& uses, TaskId t) {
      const std::uint32_t lane = order_.lane_of[t], end = order_.place_of[t] + 1;
      const auto known = std::ranges::find(uses, lane, &Slot::LastUse::lane);
      if (known == uses.end())
        uses.push_back({lane, end});
      else
        known->end = std::max(known->end, end);
    };
    for (Slot& slot : slots_) {
      slot.seen.assign(order_.lanes, kNone);
      if (slot.is_whole_step) continue;
      slot.born = static_cast<std::uint32_t>(position.size());
      const auto touch = [&](TaskId t) {
        extend(slot.last_use, t);
        slot.dies = std::max(slot.dies, position[t]);
      };
      const auto touch_carried = [&](TaskId t) {
        extend(slot.last_carried, t);
        slot.carried_until = std::max(slot.carried_until, position[t] + 1);
      };
      for (const BufferId b : slot.buffers) {
        const TaskId writer = uses_[b].writer;
        if (writer == kNone) continue;  // an image of which only parts are used
        slot.is_carried = slot.is_carried || uses_[b].is_carried;
        touch(writer);
        for (const TaskId t : uses_[b].readers)
          uses_[b].is_carried&& graph_.tasks[t].is_delayed ? touch_carried(t) : touch(t);
        slot.born = std::min(slot.born, position[writer]);
        for (std::size_t l = 0; l < order_.lanes; ++l)
          slot.seen[l] = std::min(slot.seen[l], order_.seen[std::size_t{writer} * order_.lanes + l]);
      }
      if (slot.is_carried) slot.dies = static_cast<std::uint32_t>(order_.topological.size()) - 1;
    }
  }

  static bool is_over(const std::vector<Slot::LastUse>& uses, const Slot& before) {
    return std::ranges::all_of(uses, [&](const Slot::LastUse& u) { return u.end <= before.seen[u.lane]; });
  }
  bool ends_before(const Slot& a, const Slot& b) const {
    return !a.is_carried && is_over(a.last_use, b) && is_over(b.last_carried, a);
  }
  // What overlaps in one order of the tasks does in all that matter; the rest must be ordered by the lanes.
  bool conflicts(const Slot& a, const Slot& b) const {
    if (a.is_carried || b.is_carried) return !ends_before(a, b) && !ends_before(b, a);
    if (a.dies < b.born) return !is_over(a.last_use, b);
    return b.dies >= a.born || !is_over(b.last_use, a);
  }

  // What conflicts() asks of most slots, close together: all pairs of slots are looked at.
  void shorten_lives() {
    lives_.resize(slots_.size());
    seen_.assign(order_.lanes * slots_.size(), kNone);
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      const Slot& slot = slots_[s];
      lives_[s] = {slot.born, slot.dies, kNone, 0};
      if (!slot.is_carried && slot.last_use.size() == 1) {
        lives_[s].lane = slot.last_use[0].lane;
        lives_[s].end = slot.last_use[0].end;
      }
      for (std::size_t l = 0; l < order_.lanes; ++l) seen_[l * slots_.size() + s] = slot.seen[l];
    }
  }
  bool conflicts(std::uint32_t a, std::uint32_t b) const {
    const Life &x = lives_[a], &y = lives_[b];
    if (x.lane == kNone || y.lane == kNone) return conflicts(slots_[a], slots_[b]);
    if (x.dies < y.born) return x.end > seen_[x.lane * slots_.size() + b];
    return y.dies >= x.born || y.end > seen_[y.lane * slots_.size() + a];
  }

  // Puts the slots down one by one in the given order, each into the smallest gap that holds it. Nothing if that takes
  // `limit` bytes or more.
  std::vector<std::uint64_t> pack(const std::vector<std::uint32_t>& sequence, std::uint64_t limit) const {
    struct Placed {
      std::uint64_t begin, end;
      std::uint32_t slot;
    };
    std::vector<std::uint64_t> offset(slots_.size(), 0);
    std::vector<Placed> placed;  // by offset
    for (const std::uint32_t s : sequence) {
      const Slot& slot = slots_[s];
      std::uint64_t end_of_last = 0, best = 0, best_gap = ~std::uint64_t{0};
      for (const Placed& other : placed) {
        // Neither ends a gap nor moves the border where the next begins.
        const bool is_behind = other.end <= end_of_last;
        if (is_behind || !conflicts(s, other.slot)) continue;
        if (other.begin > end_of_last) {
          const std::uint64_t gap = other.begin - end_of_last;
          if (gap >= slot.bytes && gap < best_gap) {
            best_gap = gap;
            best = end_of_last;
            if (gap == slot.bytes) break;
          }
        }
        end_of_last = other.end;
      }
      offset[s] = best_gap == ~std::uint64_t{0} ? end_of_last : best;
      if (offset[s] + slot.bytes >= limit) return {};
      const auto at = std::ranges::lower_bound(placed, offset[s], {}, &Placed::begin);
      placed.insert(at, {offset[s], offset[s] + slot.bytes, s});
    }
    return offset;
  }

  std::vector<std::uint64_t> one_after_the_other(const std::vector<std::uint32_t>& sequence) const {
    std::vector<std::uint64_t> offset(slots_.size(), 0);
    std::uint64_t top = 0;
    for (const std::uint32_t s : sequence) {
      offset[s] = top;
      top += slots_[s].bytes;
    }
    return offset;
  }

  // Several orders of putting down; the lowest top wins.
  std::vector<std::uint64_t> best_packing() const {
    std::vector<std::uint32_t> sequence;
    for (std::uint32_t s = 0; s < slots_.size(); ++s)
      if (!slots_[s].is_whole_step) sequence.push_back(s);
    const auto length = [&](std::uint32_t s) { return slots_[s].dies - slots_[s].born + slots_[s].carried_until; };
    const auto area = [&](std::uint32_t s) {
      return static_cast<double>(length(s)) * static_cast<double>(slots_[s].bytes);
    };
    if (is_apart_) return one_after_the_other(sequence);
    const std::uint64_t floor = largest_live_sum();
    std::vector<std::uint64_t> best;
    std::uint64_t best_top = ~std::uint64_t{0};
    const auto attempt = [&](auto&& is_earlier) {
      if (best_top == floor) return;
      std::stable_sort(sequence.begin(), sequence.end(), is_earlier);
      std::vector<std::uint64_t> offsets = pack(sequence, best_top);
      if (offsets.empty()) return;
      best_top = 0;
      for (const std::uint32_t s : sequence) best_top = std::max(best_top, offsets[s] + slots_[s].bytes);
      best = std::move(offsets);
    };
    attempt([&](auto a, auto b) { return slots_[a].bytes > slots_[b].bytes; });
    attempt([&](auto a, auto b) { return area(a) > area(b); });
    attempt([&](auto a, auto b) { return length(a) > length(b); });
    attempt([&](auto a, auto b) { return slots_[a].born < slots_[b].born; });
    attempt([&](auto a, auto b) { return slots_[a].dies > slots_[b].dies; });
    if (best.empty()) best.assign(slots_.size(), 0);
    return best;
  }

  std::uint64_t largest_live_sum() const {
    std::vector<std::int64_t> change(order_.topological.size() + 1, 0);
    for (const Slot& slot : slots_) {
      if (slot.is_whole_step) continue;
      change[slot.born] += static_cast<std::int64_t>(slot.bytes);
      change[slot.dies + 1] -= static_cast<std::int64_t>(slot.bytes);
      change[0] += slot.carried_until > 0 ? static_cast<std::int64_t>(slot.bytes) : 0;
      change[slot.carried_until] -= slot.carried_until > 0 ? static_cast<std::int64_t>(slot.bytes) : 0;
    }
    std::int64_t live = 0, largest = 0;
    for (const std::int64_t c : change) largest = std::max(largest, live += c);
    return static_cast<std::uint64_t>(largest);
  }

  Plan& plan_;
  bool is_apart_;
  const Graph& graph_;
  HappensBefore order_;
  std::vector<BufferUse> uses_;
  std::vector<Slot> slots_;
  std::vector<Life> lives_;          // per slot
  std::vector<std::uint32_t> seen_;  // [lane][slot], of the slots
  std::vector<std::uint32_t> slot_of_;
  std::vector<char> holds_others_;  // per buffer: others lie inside it
};

}  // namespace

Plan place_memory(Plan plan, std::optional<std::uint64_t> cap) {
  plan.shares.clear();
  MemoryPlanner(plan, false).run();
  if (cap && plan.arena_bytes > *cap)
    fail_user("`memory_cap`: {} is below what {} needs with schedule {}: {} ({} bytes); raise the cap or lower `batch`",
              format_bytes(static_cast<std::int64_t>(*cap)), plan.graph.model, plan.schedule,
              format_bytes(static_cast<std::int64_t>(plan.arena_bytes)), plan.arena_bytes);
  return plan;
}

Plan place_memory_apart(Plan plan) {
  plan.shares.clear();
  MemoryPlanner(plan, true).run();
  return plan;
}

bool has_memory(const Plan& plan) { return plan.offsets.size() == plan.graph.buffers.size(); }

}  // namespace overtake
