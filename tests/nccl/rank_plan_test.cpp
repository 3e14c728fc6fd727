// Plans of a rank whose device is a GPU, with one rank: transfers inside the step's graph, and training with reductions
// over one member, which must have the weights of training without.

#include <gtest/gtest.h>

#include <cstring>

#include "comm/local/local_group.h"
#include "comm/nccl/nccl_group.h"
#include "comm/rank_groups.h"
#include "cuda/against_cpu.h"
#include "one_member_plan.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

// A backend that is the only rank of its job.
class OneRank {
 public:
  explicit OneRank(Precision precision, bool use_graph = true) {
    BackendOptions options{
        .precision = precision, .tune = false, .tuning_file = "", .use_graph = use_graph, .note = {}};
    alone = open_backend("cuda", options);
    options.groups = std::make_shared<RankGroups>();
    options.groups->world = std::move(make_local_groups(1)[0]);
    options.device_groups = groups;
    ranked = open_backend("cuda", options);
    FileStore store(folder_.path());
    groups->by_channel["0"] = make_nccl_group(store, {.rank = 0, .size = 1, .name = "0"});
  }

 private:
  TemporaryFolder folder_;

 public:
  std::shared_ptr<DeviceGroups> groups = std::make_shared<DeviceGroups>();
  std::unique_ptr<Backend> alone, ranked;
};

std::unique_ptr<Executor> connected(std::unique_ptr<Executor> executor) {
  executor->connect();
  return executor;
}

// x goes through a sum, a sum in parts, and is put together again.
struct ThroughAll {
  static constexpr std::int64_t kCount = 10007;

  explicit ThroughAll(DType dtype) {
    plan.schedule = "by hand";
    Graph& g = plan.graph;
    x = g.add_buffer("x", {kCount}, dtype, Role::input);
    const BufferId sum = g.add_buffer("sum", {kCount}, dtype, Role::activation),
                   part = g.add_buffer("part", {kCount}, dtype, Role::activation);
    y = g.add_buffer("y", {kCount}, dtype, Role::output);
    plan.lanes.push_back({.device = 0, .tasks = {}, .is_asynchronous = true});
    const auto add = [&](Kind kind, BufferId from, BufferId to) {
      const auto turn = static_cast<std::int64_t>(plan.lanes[0].tasks.size());
      const Attrs attrs{
          {"collective", turn}, {"members", std::vector<std::int64_t>{0}}, {"index", std::int64_t{0}}, {"turn", turn}};
      plan.lanes[0].tasks.push_back(
          g.add_task(kind, Op::transfer, g.add_layer("layer"), g.add_attrs(attrs), {from}, {to}));
    };
    add(Kind::all_reduce, x, sum);
    add(Kind::reduce_scatter, sum, part);
    add(Kind::all_gather, part, y);
    plan = place_memory(std::move(plan));
    verify(plan);
  }

  Plan plan;
  BufferId x = kNone, y = kNone;
};

template <class T>
void expect_through(OneRank& rank) {
  const ThroughAll through(std::is_same_v<T, float> ? DType::f32 : DType::bf16);
  const auto executor = connected(rank.ranked->make_executor({through.plan}));
  for (unsigned step = 0; step < 5; ++step) {
    const std::vector<T> given = random_values<T>(ThroughAll::kCount, step);
    std::memcpy(executor->bytes(through.x).data(), given.data(), given.size() * sizeof(T));
    if (step == 3)
      EXPECT_EQ(executor->run_traced(0, {.step = step}).spans.size(), 3u);
    else
      executor->run(0, {.step = step});
    std::vector<T> got(given.size());
    std::memcpy(got.data(), executor->bytes(through.y).data(), got.size() * sizeof(T));
    expect_same_bytes(got, given, "result");
  }
}

TEST(RankPlan, TransfersInsideTheGraph) {
  OVERTAKE_NEEDS_GPU();
  for (const bool use_graph : {true, false}) {
    OneRank rank(Precision::f32, use_graph);
    expect_through<float>(rank);
    expect_through<bf16>(rank);
  }
}

TEST(RankPlan, ReductionsOverOneMemberChangeNoWeights) {
  OVERTAKE_NEEDS_GPU();
  for (const auto& [model, settings] :
       {std::pair{"transformer", "batch=4,layers=2,width=64,heads=4,sequence=32,dropout=0.1"},
        std::pair{"cnn", "batch=8"}}) {
    OneRank rank(Precision::bf16);
    const Graph graph = small_training_graph(*rank.alone, model, settings);
    const Plan plain = place_memory(schedule_in_order(graph));
    const std::vector<std::byte> want = weights_after(*rank.alone->make_executor({plain}), 5);
    for (const OneMember way : {OneMember::all_reduce, OneMember::scatter_gather, OneMember::delayed}) {
      const OneMemberPlan reduced(graph, way);
      EXPECT_GT(reduced.transfers(), 5u);
      EXPECT_EQ(want, weights_after(*connected(rank.ranked->make_executor({reduced.placed()})), 5))
          << model << " " << static_cast<int>(way);
    }
  }
}

TEST(RankPlan, ACommunicatorThatIsGoneIsAnError) {
  OVERTAKE_NEEDS_GPU();
  OneRank rank(Precision::f32, false);
  const ThroughAll through(DType::f32);
  const auto executor = connected(rank.ranked->make_executor({through.plan}));
  executor->run(0, {});
  rank.groups->by_channel.at("0")->abort("given up by the test");
  EXPECT_THROW(executor->run(0, {}), CommError);
}

// A graph with calls of a communicator that is given up goes as others do. Where it does not, the test never ends.
TEST(RankPlan, GivingUpDoesNotHang) {
  OVERTAKE_NEEDS_GPU();
  OneRank rank(Precision::f32);
  const ThroughAll through(DType::f32);
  auto executor = connected(rank.ranked->make_executor({through.plan}));
  for (int i = 0; i < 3; ++i) executor->run(0, {});
  rank.groups->by_channel.at("0")->abort("given up by the test");
  executor.reset();
  rank.groups->by_channel.clear();
}

}  // namespace
}  // namespace overtake
