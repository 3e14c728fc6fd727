// Images inside wider ones: which places the pass gives, that files keep them, and that no plan lets anyone write what
// another still reads.

#include "passes/share_concats.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "graph/place.h"
#include "plan/memory.h"
#include "random_plan.h"
#include "unit/symbolic_run.h"

namespace overtake {
namespace {

// Takes any pitch, but for softmax, reshape and sum.
class PitchedTarget final : public Target {
 public:
  bool fuses_linear(std::string_view) const override { return false; }
  ImageLayout image_layout(const Graph&, const Task&) const override { return ImageLayout::channels_last; }
  std::optional<OperandFormat> weight_format(const Graph&, const Task&, std::size_t) const override { return {}; }
  std::int64_t scratch_bytes(const Graph&, const Task&) const override { return 0; }
  bool shares_concats() const override { return true; }
  bool takes_pitch(const Graph&, const Task& t, std::size_t, std::int64_t) const override {
    return t.op != Op::softmax && t.op != Op::reshape && t.op != Op::sum;
  }
};

// Builds graphs of channels-last images [2, channels, 2, 3].
class Images {
 public:
  Images() { layer_ = graph.add_layer("layer"); }

  BufferId image(std::int64_t channels, Role role = Role::activation) {
    const BufferId b =
        graph.add_buffer("b" + std::to_string(graph.buffers.size()), {2, channels, 2, 3}, DType::f32, role);
    graph.buffers[b].layout = channels_last_layout();
    return b;
  }
  std::int64_t channels(BufferId b) const { return graph.buffers[b].shape[1]; }

  BufferId compute(Op op, const std::vector<BufferId>& reads, BufferId write) {
    graph.add_task(Kind::forward, op, layer_, 0, reads, std::vector{write});
    return write;
  }
  BufferId concat(const std::vector<BufferId>& parts, Role role = Role::activation) {
    std::int64_t sum = 0;
    for (const BufferId b : parts) sum += channels(b);
    const AttrsId attrs = graph.add_attrs({{"axis", std::int64_t{1}}});
    const BufferId y = image(sum, role);
    graph.add_task(Kind::forward, Op::concat, layer_, attrs, parts, std::vector{y});
    return y;
  }
  std::vector<BufferId> split(BufferId whole, const std::vector<std::int64_t>& extents) {
    std::vector<BufferId> parts;
    for (const std::int64_t extent : extents) parts.push_back(image(extent, Role::gradient));
    const AttrsId attrs = graph.add_attrs({{"axis", std::int64_t{1}}, {"extents", extents}});
    graph.add_task(Kind::input_grad, Op::concat, layer_, attrs, std::vector{whole}, parts);
    return parts;
  }
  BufferId norm_grad(BufferId dy, BufferId add) {
    const BufferId dx = image(channels(add), Role::gradient);
    graph.add_task(Kind::input_grad, Op::batch_norm, layer_, 0, {dy, dy, kNone, kNone, kNone, kNone, kNone, kNone, add},
                   {dx});
    return dx;
  }

  Graph graph;

 private:
  LayerId layer_;
};

Place place_of(const Graph& g, BufferId b) { return g.buffers[b].inside; }

TEST(ShareConcats, AChainBecomesOneImage) {
  Images m;
  const BufferId x = m.image(8, Role::input), first = m.compute(Op::conv2d, {x}, m.image(16));
  std::vector<BufferId> wholes = {first}, added;
  for (int i = 0; i < 3; ++i) {
    added.push_back(m.compute(Op::conv2d, {wholes.back()}, m.image(4)));
    wholes.push_back(m.concat({wholes.back(), added.back()}));
  }
  m.compute(Op::softmax, {wholes.back()}, m.image(4, Role::output));
  const Graph g = share_concats(m.graph, PitchedTarget());
  verify(g);
  const BufferId holder = wholes.back();
  EXPECT_EQ(place_of(g, holder), Place{});
  EXPECT_EQ(place_of(g, x), Place{});  // the host writes it
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(place_of(g, wholes[i]), (Place{holder, 0})) << i;
    EXPECT_EQ(place_of(g, added[i]), (Place{holder, 16 + 4 * static_cast<std::int64_t>(i)})) << i;
    EXPECT_EQ(to_string(g.buffers[wholes[i]].layout), "acdb/28");
  }
  EXPECT_EQ(g.bytes(added[2]), (11 * 28 + 4) * 4);  // from its first to its last
  EXPECT_EQ(print(load_graph_json(save_json(g))), print(g));
  EXPECT_NE(print(g).find("acdb/28@16 of %"), std::string::npos) << print(g);
  // One slot for all of them, beside what the host sees.
  const Plan plan = place_memory(random_plan(g, 1, *std::make_unique<std::mt19937>(1)));
  verify(plan);
  EXPECT_EQ(plan.arena_bytes, 512u + 256u + 1536u);  // x, the result, 12 pixels of 28 floats
  const Plan loaded = load_plan_json(save_json(plan));
  EXPECT_EQ(loaded.offsets, plan.offsets);
  Plan moved = plan;
  moved.offsets[added[1]] += 16;
  EXPECT_THROW(verify(moved), InternalError);
}

TEST(ShareConcats, WhatCannotLieThereIsCopied) {
  Images m;
  const BufferId x = m.image(8, Role::input);
  const BufferId plain = m.compute(Op::conv2d, {x}, m.image(8)), odd = m.compute(Op::conv2d, {x}, m.image(6));
  const BufferId behind_odd = m.compute(Op::conv2d, {x}, m.image(8)),
                 kept = m.compute(Op::conv2d, {x}, m.image(2, Role::output));
  const BufferId read_dense = m.compute(Op::conv2d, {x}, m.image(8));
  m.compute(Op::softmax, {read_dense}, m.image(8, Role::output));
  const BufferId whole = m.concat({plain, read_dense, plain, odd, behind_odd, kept});
  const BufferId other = m.concat({odd, behind_odd, kept});  // the later concat has them, as far as they fit
  m.compute(Op::softmax, {whole, other}, m.image(8, Role::output));
  const Graph g = share_concats(m.graph, PitchedTarget());
  verify(g);
  EXPECT_EQ(place_of(g, plain), (Place{whole, 0}));  // not at 16 as well
  EXPECT_EQ(place_of(g, read_dense), Place{});
  EXPECT_EQ(place_of(g, odd), (Place{other, 0}));
  EXPECT_EQ(place_of(g, behind_odd), Place{});  // 24 bytes from the start, no boundary of 16
  EXPECT_EQ(place_of(g, kept), Place{});
}

TEST(ShareConcats, GradientsAreReadAndSummedInPlace) {
  Images m;
  const BufferId x = m.image(16, Role::input), whole = m.compute(Op::conv2d, {x}, m.image(24, Role::gradient));
  const auto outer = m.split(whole, {16, 8});
  const BufferId sum = m.norm_grad(x, outer[0]);
  const auto inner = m.split(sum, {12, 4});
  const BufferId twice = m.norm_grad(x, inner[0]);
  m.compute(Op::softmax, {inner[0], twice, outer[1], inner[1]}, m.image(4, Role::output));
  const Graph g = share_concats(m.graph, PitchedTarget());
  verify(g);
  // softmax reads dense images
  EXPECT_EQ(place_of(g, outer[0]), (Place{whole, 0}));
  EXPECT_EQ(place_of(g, sum), (Place{whole, 0}));
  EXPECT_EQ(place_of(g, outer[1]), Place{});
  EXPECT_EQ(place_of(g, inner[0]), Place{});
  EXPECT_EQ(place_of(g, twice), Place{});
}

TEST(ShareConcats, NoSumWhereSomebodyStillReads) {
  Images m;
  const BufferId x = m.image(16, Role::input), whole = m.compute(Op::conv2d, {x}, m.image(24, Role::gradient));
  const auto parts = m.split(whole, {16, 8});
  const BufferId sum = m.norm_grad(x, parts[0]);
  m.compute(Op::conv2d, {whole, sum, parts[1]}, m.image(4, Role::output));
  const Graph g = share_concats(m.graph, PitchedTarget());
  EXPECT_EQ(place_of(g, parts[0]), (Place{whole, 0}));
  EXPECT_EQ(place_of(g, parts[1]), (Place{whole, 16}));
  EXPECT_EQ(place_of(g, sum), Place{});
}

// Concats, splits, norms that add, in-place functions and views, with results for the host.
Graph random_graph(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::size_t below) { return random() % below; };
  Images m;
  std::vector<BufferId> made;
  const auto any = [&] {
    const std::size_t back = pick(4) == 0 ? pick(made.size()) : pick(std::min<std::size_t>(made.size(), 3));
    return made[made.size() - 1 - back];
  };
  const auto role = [&] {
    const std::size_t dice = pick(12);
    return dice == 0 ? Role::output : dice < 6 ? Role::gradient : Role::activation;
  };
  const auto some_channels = [&] { return std::int64_t{4} << pick(2); };
  for (std::size_t i = 0; i < 1 + pick(2); ++i) made.push_back(m.image(some_channels(), Role::input));
  for (std::size_t i = 0; i < 5 + pick(30); ++i) {
    const BufferId x = any();
    const std::int64_t channels = m.channels(x);
    switch (pick(9)) {
      case 0:
      case 1:
        made.push_back(m.compute(Op::conv2d, {x}, m.image(pick(8) == 0 ? 6 : some_channels(), role())));
        break;
      case 2:
      case 3: {
        std::vector<BufferId> parts = {x};
        while (parts.size() < 4 && pick(3) != 0) parts.push_back(any());
        if (channels < 100) made.push_back(m.concat(parts, role()));
        break;
      }
      case 4:
      case 5:
        if (channels >= 8) {
          const std::int64_t first = 4 * static_cast<std::int64_t>(1 + pick(static_cast<std::size_t>(channels / 8)));
          const auto parts = m.split(x, {first, channels - first});
          made.insert(made.end(), parts.begin(), parts.end());
          if (pick(2) == 0) made.push_back(m.norm_grad(any(), parts[0]));
        }
        break;
      case 6:
        made.push_back(m.norm_grad(any(), x));
        break;
      default:
        made.push_back(m.compute(pick(2) == 0   ? Op::activation
                                 : pick(2) == 0 ? Op::reshape
                                                : Op::softmax,
                                 {x}, m.image(channels, role())));
    }
  }
  return m.graph;
}

TEST(ShareConcats, RandomGraphsRunWellOnRandomLanes) {
  std::mt19937 random(3);
  std::size_t inside = 0, sums = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    const Graph g = share_concats(random_graph(seed), PitchedTarget());
    for (const Buffer& b : g.buffers) inside += b.inside.buffer != kNone;
    for (const Task& t : g.tasks)
      sums += t.op == Op::batch_norm && g.buffers[g.writes(t)[0]].inside.buffer != kNone &&
              g.buffers[g.writes(t)[0]].inside == g.buffers[g.reads(t)[8]].inside;
    const Plan plan = place_memory(random_plan(g, 1 + seed % 4, random));
    ASSERT_NO_THROW(verify(plan)) << print(g);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(runs_well(plan, random)) << print(g);
  }
  EXPECT_GT(inside, 5000u);  // the cases in question did occur
  EXPECT_GT(sums, 50u);
}

// Where a run goes wrong, verify() had refused the plan.
TEST(ShareConcats, PlansThatRunBadlyAreRefused) {
  std::mt19937 random(4);
  int bad = 0;
  for (std::uint32_t seed = 0; seed < 1500; ++seed) {
    Graph g = share_concats(random_graph(seed), PitchedTarget());
    // Somebody else's place.
    std::vector<BufferId> placed;
    for (BufferId b = 0; b < g.buffers.size(); ++b)
      if (g.buffers[b].inside.buffer != kNone) placed.push_back(b);
    if (placed.empty()) continue;
    Buffer& moved = g.buffers[placed[random() % placed.size()]];
    moved.inside = g.buffers[placed[random() % placed.size()]].inside;
    if (g.buffers[moved.inside.buffer].shape[1] < moved.shape[1]) continue;
    moved.layout.pitch = g.buffers[moved.inside.buffer].shape[1];
    Plan plan;
    bool is_refused = false;
    try {
      plan = place_memory(random_plan(g, 1 + seed % 3, random));
      verify(plan);
    } catch (const InternalError&) {
      is_refused = true;
    }
    if (plan.offsets.empty()) continue;
    bool is_well = true;
    for (int i = 0; i < 3 && is_well; ++i) is_well = runs_well(plan, random);
    EXPECT_TRUE(is_well || is_refused) << seed << "\n" << print(g);
    bad += !is_well;
  }
  EXPECT_GT(bad, 150);
}

}  // namespace
}  // namespace overtake
