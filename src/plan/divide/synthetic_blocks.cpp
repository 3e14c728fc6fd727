// Pipelines from nothing.

#include "base/error.h"
#include "plan/divide/blocks.h"

namespace overtake {

BlockGraph synthetic_blocks(const std::vector<SyntheticStage>& stages) {
  const std::size_t n = stages.size();
  BlockGraph out;
  Graph& g = out.graph;
  g.model = "synthetic";
  out.blocks.resize(n);
  // What is handed on, its gradient, the weights' gradient, the weights, and what is kept: kNone where that is what is
  // handed on.
  std::vector<BufferId> x(n), dx(n), dw(n), w(n), kept(n, kNone);
  const auto add = [&](std::size_t s, Kind kind, std::vector<BufferId> reads, std::vector<BufferId> writes,
                       std::int64_t ns) {
    std::erase(reads, BufferId{kNone});
    std::erase(writes, BufferId{kNone});
    out.work.push_back({.ns = ns});
    out.block_of.push_back(static_cast<std::uint32_t>(s));
    return g.add_task(kind, Op::block, g.add_layer(out.blocks[s].name), 0, reads, writes);
  };
  for (std::size_t s = 0; s < n; ++s) {
    const SyntheticStage& stage = stages[s];
    out.blocks[s].name = fmt::format("stage{}", s);
    const auto buffer = [&](const char* what, std::int64_t bytes, Role role) {
      return g.add_buffer(out.blocks[s].name + what, {bytes}, DType::u8, role);
    };
    w[s] = buffer(".weight", stage.weight_bytes, Role::weight);
    g.parameters.push_back({.buffer = w[s], .init = {}});
    const std::int64_t nothing_said = stage.kept_bytes ? 0 : 1;
    x[s] = buffer("", stage.sent_bytes.value_or(nothing_said), Role::activation);
    dx[s] = buffer(".grad", s == 0 ? 0 : stages[s - 1].sent_bytes.value_or(0), Role::gradient);
    dw[s] = buffer(".weight.grad", stage.weight_bytes, Role::weight_gradient);
    if (stage.kept_bytes) kept[s] = buffer(".kept", *stage.kept_bytes, Role::activation);
    out.blocks[s].gradients = out.blocks[s].reduced = {dw[s]};
  }
  const auto kept_of = [&](std::size_t s) { return kept[s] == kNone ? x[s] : kept[s]; };
  const auto gradient_from_above = [&](std::size_t s) { return s + 1 == n ? BufferId{kNone} : dx[s + 1]; };
  for (std::size_t s = 0; s < n; ++s)
    out.blocks[s].forward =
        add(s, Kind::forward, {s == 0 ? BufferId{kNone} : x[s - 1], w[s]}, {x[s], kept[s]}, stages[s].forward_ns);
  for (std::size_t s = n; s-- > 0;)
    out.blocks[s].input_grad =
        add(s, Kind::input_grad, {gradient_from_above(s), kept_of(s)}, {dx[s]}, stages[s].input_grad_ns);
  for (std::size_t s = n; s-- > 0;)
    out.blocks[s].weight_grad =
        add(s, Kind::weight_grad, {gradient_from_above(s), kept_of(s)}, {dw[s]}, stages[s].weight_grad_ns);
  for (std::size_t s = 0; s < n; ++s) out.blocks[s].update = add(s, Kind::update, {w[s], dw[s]}, {w[s]}, 0);
  return out;
}

BlockGraph synthetic_blocks(std::uint32_t stages, std::int64_t forward_ns, std::int64_t input_grad_ns,
                            std::int64_t weight_grad_ns) {
  return synthetic_blocks(std::vector<SyntheticStage>(
      stages, {.forward_ns = forward_ns, .input_grad_ns = input_grad_ns, .weight_grad_ns = weight_grad_ns}));
}

}  // namespace overtake
