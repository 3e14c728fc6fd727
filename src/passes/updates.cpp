#include "passes/updates.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {
namespace {

// p is a copy: the list it comes from grows.
BufferId add_state(Graph& g, Parameter p, const char* suffix) {
  const BufferId weight = p.buffer;
  const BufferId b = g.add_buffer(fmt::format("{}.{}", g.buffer_name(weight), suffix), g.buffers[weight].shape,
                                  DType::f32, Role::optimizer_state);
  g.buffers[b].layout = g.buffers[weight].layout;
  Parameter state{.buffer = b, .init = {}, .stored_rows = p.stored_rows};
  for (const StoredPart& part : p.parts)
    state.parts.push_back({g.intern(fmt::format("{}.{}", g.string(part.name), suffix)), part.rows, {}});
  g.parameters.push_back(std::move(state));
  return b;
}

BufferId add_clipping(Graph& g, const std::vector<Parameter>& trained, double max_norm) {
  std::vector<BufferId> gradients;
  for (const Parameter& p : trained) gradients.push_back(p.gradient);
  const LayerId layer = g.add_layer("clip");
  const BufferId sums =
      g.add_buffer("clip.sums", {std::ssize(gradients) * std::int64_t{sizeof(double)}}, DType::u8, Role::gradient);
  const BufferId factor = g.add_buffer("clip.factor", {2}, DType::f32, Role::gradient);
  g.add_task(Kind::update, Op::squared_norm, layer, 0, gradients, {&sums, 1});
  g.add_task(Kind::update, Op::clip_norm, layer, g.add_attrs({{"max_norm", max_norm}}), {sums}, {factor});
  return factor;
}

}  // namespace

Graph add_updates(Graph g, const OptimizerSettings& s) {
  std::vector<Parameter> trained;
  for (const Parameter& p : g.parameters)
    if (p.gradient != kNone) trained.push_back(p);
  const BufferId factor = s.clip_norm > 0 ? add_clipping(g, trained, s.clip_norm) : kNone;
  const AttrsId sgd =
      g.add_attrs({{"momentum", s.momentum}, {"nesterov", std::int64_t{s.nesterov}}, {"weight_decay", s.weight_decay}});
  const AttrsId adamw =
      g.add_attrs({{"beta1", s.beta1}, {"beta2", s.beta2}, {"eps", s.eps}, {"weight_decay", s.weight_decay}});
  for (const Parameter& p : trained) {
    const LayerId layer = g.add_layer(std::string(g.buffer_name(p.buffer)));
    if (s.kind == OptimizerSettings::Kind::sgd) {
      const BufferId momentum = s.momentum != 0 ? add_state(g, p, "momentum") : kNone;
      g.add_task(Kind::update, Op::sgd, layer, sgd, {p.buffer, p.gradient, factor, momentum, kNone},
                 {p.buffer, momentum, kNone});
    } else {
      const BufferId m = add_state(g, p, "exp_avg"), v = add_state(g, p, "exp_avg_sq");
      g.add_task(Kind::update, Op::adamw, layer, adamw, {p.buffer, p.gradient, factor, m, v, kNone},
                 {p.buffer, m, v, kNone});
    }
  }
  return g;
}

bool has_updates(const Graph& graph) {
  return std::ranges::any_of(graph.tasks, [](const Task& t) { return t.kind == Kind::update; });
}

}  // namespace overtake
