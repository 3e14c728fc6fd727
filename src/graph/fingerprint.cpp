#include "graph/fingerprint.h"

#include <bit>
#include <concepts>
#include <functional>
#include <type_traits>

namespace overtake {
namespace {

class Mixer {
 public:
  template <class T>
  requires std::integral<T> || std::is_enum_v<T>
  void add(T x) {
    hash_ = (hash_ ^ static_cast<std::uint64_t>(x)) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 29;
  }
  void add(double x) { add(std::bit_cast<std::uint64_t>(x)); }
  void add(std::string_view text) { add(std::hash<std::string_view>()(text)); }
  // Ranges say how long they are, so that what ends one is never taken for what begins the next.
  template <class T>
  void add_all(std::span<const T> values) {
    add(values.size());
    for (const T& x : values) add(x);
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

void add(Mixer& m, const Layout& x) {
  m.add(x.rank);
  m.add_all(std::span<const std::uint8_t>(x.order));
  m.add(x.blocks);
  m.add_all(std::span<const std::uint8_t>(x.block_dim));
  m.add_all(std::span<const std::uint16_t>(x.block_size));
  m.add(x.pitch);
}

void add(Mixer& m, const Graph& g, const Buffer& x) {
  m.add(g.string(x.name));
  m.add_all(x.shape.span());
  add(m, x.layout);
  m.add(x.dtype);
  m.add(x.role);
  m.add(x.device);
  m.add(x.inside.buffer);
  m.add(x.inside.channel);
}

void add(Mixer& m, const Init& x) {
  m.add(x.kind);
  m.add(x.scale);
}

void add(Mixer& m, const Graph& g, const Parameter& x) {
  m.add(x.buffer);
  m.add(x.gradient);
  m.add(x.copy);
  add(m, x.init);
  m.add(x.stored_transposed);
  m.add(x.is_frozen);
  m.add(x.stored_rows);
  m.add(x.stored_shape.has_value());
  if (x.stored_shape) m.add_all(x.stored_shape->span());
  m.add(x.parts.size());
  for (const StoredPart& part : x.parts) {
    m.add(g.string(part.name));
    m.add(part.rows);
    add(m, part.init);
  }
}

std::uint64_t hash_of(const Attrs& attrs) {
  Mixer m;
  for (const auto& [name, value] : attrs.values()) {
    m.add(std::string_view(name));
    m.add(value.index());
    std::visit(
        [&](const auto& x) {
          if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::vector<std::int64_t>>)
            m.add_all(std::span<const std::int64_t>(x));
          else
            m.add(x);
        },
        value);
  }
  return m.value();
}

void add(Mixer& m, const Graph& g) {
  m.add(g.model);
  m.add(g.parts);
  m.add(g.buffers.size());
  for (const Buffer& x : g.buffers) add(m, g, x);
  std::vector<std::uint64_t> attrs;
  attrs.reserve(g.attrs.size());
  for (const Attrs& x : g.attrs) attrs.push_back(hash_of(x));
  m.add(g.tasks.size());
  for (const Task& t : g.tasks) {
    m.add(t.kind);
    m.add(t.op);
    m.add(t.device);
    m.add(t.is_delayed);
    m.add(t.micro_batch);
    m.add(g.layer_name(t.layer));
    m.add(attrs[t.attrs]);
    m.add_all(g.reads(t));
    m.add_all(g.writes(t));
  }
  m.add(g.parameters.size());
  for (const Parameter& x : g.parameters) add(m, g, x);
  m.add(g.constants.size());
  for (const Constant& x : g.constants) m.add(x.buffer);
  m.add_all(std::span<const BufferId>(g.losses));
}

std::vector<std::shared_ptr<const std::vector<std::byte>>> constants_of(const Graph& g) {
  std::vector<std::shared_ptr<const std::vector<std::byte>>> all;
  for (const Constant& x : g.constants) all.push_back(x.bytes);
  return all;
}

template <class Pair>
void add_pairs(Mixer& m, const std::vector<Pair>& pairs) {
  m.add(pairs.size());
  for (const auto& [a, b] : pairs) {
    m.add(a);
    m.add(b);
  }
}

}  // namespace

Fingerprint fingerprint(const Graph& graph) {
  Mixer m;
  add(m, graph);
  return {m.value(), constants_of(graph)};
}

Fingerprint fingerprint(const Plan& plan) {
  Mixer m;
  add(m, plan.graph);
  m.add(plan.schedule);
  m.add(plan.lanes.size());
  for (const Lane& lane : plan.lanes) {
    m.add(lane.device);
    m.add(lane.is_asynchronous);
    m.add_all(std::span<const TaskId>(lane.tasks));
  }
  add_pairs(m, plan.waits);
  add_pairs(m, plan.joins);
  add_pairs(m, plan.shares);
  m.add_all(std::span<const std::uint64_t>(plan.offsets));
  m.add_all(std::span<const char>(plan.skipped));
  for (const std::uint64_t bytes : {plan.persistent_bytes, plan.arena_bytes, plan.live_bytes}) m.add(bytes);
  return {m.value(), constants_of(plan.graph)};
}

}  // namespace overtake
