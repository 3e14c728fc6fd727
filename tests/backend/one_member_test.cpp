// A rank without others: reductions over one member change nothing.

#include "one_member_plan.h"

#include <gtest/gtest.h>

#include "comm/local/local_group.h"
#include "comm/rank_groups.h"

namespace overtake {
namespace {

TEST(OneMember, ReductionsChangeNothing) {
  BackendOptions options{.precision = Precision::f32, .threads = 2, .note = {}};
  const auto alone = open_backend("cpu", options);
  options.groups = std::make_shared<RankGroups>();
  options.groups->world = std::move(make_local_groups(1)[0]);
  const auto ranked = open_backend("cpu", options);
  const Graph graph = small_training_graph(*alone, "transformer",
                                           "batch=2,layers=1,width=16,heads=2,sequence=8,vocabulary=32,dropout=0.1");
  Plan plain = place_memory(schedule_in_order(graph));
  const std::vector<std::byte> want = weights_after(*alone->make_executor({plain}), 4);
  for (const OneMember way : {OneMember::all_reduce, OneMember::scatter_gather, OneMember::delayed}) {
    const OneMemberPlan reduced(graph, way);
    EXPECT_GT(reduced.transfers(), 5u);
    EXPECT_EQ(want, weights_after(*ranked->make_executor({reduced.placed()}), 4)) << static_cast<int>(way);
  }
}

}  // namespace
}  // namespace overtake
