// Transfers of several devices in one order: for every schedule of a pipeline and every way to bring gradients
// together, the calls of all devices fit together and none waits for ever.

#include "plan/divide/transfer_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.h"
#include "exec/transfer_calls.h"
#include "machine/kernel_times/kernel_times.h"
#include "plan/divide/detail.h"
#include "plan/pipeline/named.h"
#include "train/own_part.h"
#include "unit/gpu_step.h"

namespace overtake {
namespace {

struct Way {
  const char* name;
  ReductionOrder order;
  FirstK first_k = {};
};
const Way kWays[] = {{"buckets", ReductionOrder::buckets},
                     {"by-layer", ReductionOrder::by_layer},
                     {"scatter-gather", ReductionOrder::scatter_gather},
                     {"first-k", ReductionOrder::by_layer, {2}},
                     {"first-k further up", ReductionOrder::by_layer, {2, 1}}};

struct Layout {
  std::uint32_t replicas, stages, micro_batches;
};

// A step made into blocks once, and plans of it.
class Planner {
 public:
  Planner(const std::string& model, const std::string& settings)
      : step_(gpu_step(model, settings)),
        blocks_(make_blocks(step_, kernel_times(step_, load_cluster("h200").devices[0]), 24)) {}

  Detail plan(const Layout& layout, std::string_view schedule, const Way& way) const {
    const PipelineProblem problem{.devices = layout.stages,
                                  .micro_batches = layout.micro_batches,
                                  .blocks = block_costs(blocks_),
                                  .memory_cap = {}};
    const Outline cluster = make_outline(blocks_, problem, make_schedule(schedule, problem),
                                         {.replicas = layout.replicas,
                                          .order = way.order,
                                          .bucket_bytes = 40'000,
                                          .least_bytes = 10'000,
                                          .first_k = way.first_k});
    return make_detail(step_, blocks_, cluster, {});
  }

 private:
  Graph step_;
  BlockGraph blocks_;
};

Planner small_gpt_planner() {
  return {"gpt2", "layers=3,width=32,heads=2,sequence=8,positions=8,vocabulary=64,batch=2,dropout=0"};
}
Planner small_resnet_planner() { return {"resnet-18", "image=32,batch=2,classes=10"}; }

std::vector<Plan> parts_of(const Detail& whole) {
  std::uint32_t devices = 0;
  for (const Lane& lane : whole.plan.lanes) devices = std::max<std::uint32_t>(devices, lane.device + 1u);
  std::vector<Plan> parts;
  for (std::uint32_t d = 0; d < devices; ++d) parts.push_back(part_of(whole, d).plan);
  return parts;
}

std::vector<std::vector<TransferCall>> calls_of(const std::vector<Plan>& parts, Portion portion) {
  std::vector<std::vector<TransferCall>> calls;
  for (std::size_t d = 0; d < parts.size(); ++d)
    calls.push_back(transfer_calls(parts[d], static_cast<std::int64_t>(d), portion));
  return calls;
}

std::size_t count_of(const std::vector<std::vector<TransferCall>>& calls) {
  std::size_t count = 0;
  for (const auto& of_device : calls) count += of_device.size();
  return count;
}

// All portions, evaluation, and one device that does what was delayed before the others do.
void check_all(const Detail& whole, std::mt19937& random) {
  const std::vector<Plan> parts = parts_of(whole);
  const auto all = calls_of(parts, Portion::step_and_delayed), step = calls_of(parts, Portion::step),
             delayed = calls_of(parts, Portion::delayed);
  check_calls(all);
  check_calls(step);
  check_calls(delayed);
  EXPECT_EQ(count_of(all), count_of(step) + count_of(delayed));
  std::vector<Plan> forward;
  for (const Plan& part : parts) forward.push_back(forward_part(part));
  check_calls(calls_of(forward, Portion::step_and_delayed));
  auto mixed = all;
  for (std::size_t d = 0; d < mixed.size(); ++d) {
    if (random() % 2 == 0) continue;
    mixed[d] = delayed[d];
    mixed[d].insert(mixed[d].end(), step[d].begin(), step[d].end());
  }
  check_calls(mixed);
}

TEST(Turns, EveryPipelineScheduleWithEveryReduction) {
  std::mt19937 random(11);
  std::size_t plans = 0, calls = 0;
  const Planner gpt = small_gpt_planner(), resnet = small_resnet_planner();
  for (const Planner* planner : {&gpt, &resnet})
    for (const NamedSchedule& named : named_schedules())
      for (const Layout& layout : {Layout{2, 2, 4}, Layout{1, 2, 4}, Layout{1, 4, 8}, Layout{2, 4, 8}, Layout{3, 2, 5}})
        for (const Way& way : kWays) {
          if (layout.replicas == 1 && way.order != ReductionOrder::buckets) continue;  // the same
          if (planner == &resnet && layout.micro_batches != 4) continue;               // large
          SCOPED_TRACE(fmt::format("{} {} dp {} pp {} x {}", named.name, way.name, layout.replicas, layout.stages,
                                   layout.micro_batches));
          Detail whole;
          try {
            whole = planner->plan(layout, named.name, way);
          } catch (const UserError&) {
            continue;  // not a schedule for so many micro-batches
          }
          whole.plan = with_transfer_turns(std::move(whole.plan));
          verify(whole.plan);
          ASSERT_NO_FATAL_FAILURE(check_all(whole, random));
          calls += count_of(calls_of(parts_of(whole), Portion::step_and_delayed));
          ++plans;
        }
  EXPECT_GT(plans, 100u);
  EXPECT_GT(calls, 20'000u);
}

TEST(Turns, ReplicasWithoutAPipeline) {
  std::mt19937 random(12);
  const Planner planner = small_gpt_planner();
  for (const Way& way : kWays)
    for (const std::uint32_t replicas : {2u, 4u}) {
      SCOPED_TRACE(way.name);
      Detail whole = planner.plan({replicas, 1, 2}, "1f1b", way);
      whole.plan = with_transfer_turns(std::move(whole.plan));
      check_all(whole, random);
      const std::vector<Channel> channels = channels_of(whole.plan);
      ASSERT_EQ(channels.size(), 1u);
      EXPECT_EQ(to_string(channels[0]), replicas == 2 ? "0+1" : "0+1+2+3");
    }
}

// What the turns are for: any order that a device could take for itself does not fit the others'.
TEST(Turns, WithoutThemDevicesWaitForEachOther) {
  const Planner planner = small_gpt_planner();
  std::size_t stuck = 0;
  for (const NamedSchedule& named : named_schedules()) {
    const auto parts = parts_of(planner.plan({2, 2, 8}, named.name, kWays[0]));
    try {
      check_calls(calls_of(parts, Portion::step_and_delayed));
    } catch (const InternalError&) {
      ++stuck;
    }
  }
  EXPECT_GT(stuck, 0u);
}

TEST(Turns, BothEndsHaveTheSameAndNothingElseHas) {
  Detail whole = small_gpt_planner().plan({2, 2, 4}, "1f1b", kWays[2]);
  whole.plan = with_transfer_turns(std::move(whole.plan));
  const Graph& g = whole.plan.graph;
  std::map<std::int64_t, std::vector<TaskId>> by_turn;
  for (TaskId t = 0; t < g.tasks.size(); ++t)
    if (g.tasks[t].op == Op::transfer) by_turn[g.attrs_of(g.tasks[t]).integer("turn")].push_back(t);
  std::int64_t next = 0;
  bool has_others = false;
  for (const auto& [turn, tasks] : by_turn) {
    EXPECT_EQ(turn, next++);
    ASSERT_EQ(tasks.size(), 2u);  // two replicas, or two ends
    const Task &a = g.tasks[tasks[0]], &b = g.tasks[tasks[1]];
    EXPECT_NE(a.device, b.device);
    EXPECT_EQ(channel_of(g, a, a.device), channel_of(g, b, b.device));
    EXPECT_FALSE(a.is_delayed && has_others) << "delayed ones come first";
    has_others = has_others || !a.is_delayed;
  }
}

// --- what does not fit is found ---

std::vector<std::vector<TransferCall>> good_calls() {
  Detail whole = small_gpt_planner().plan({2, 2, 4}, "1f1b", kWays[0]);
  whole.plan = with_transfer_turns(std::move(whole.plan));
  auto calls = calls_of(parts_of(whole), Portion::step_and_delayed);
  check_calls(calls);
  return calls;
}

std::string error_of(const std::vector<std::vector<TransferCall>>& calls) {
  try {
    check_calls(calls);
  } catch (const InternalError& e) {
    return e.what();
  }
  return "";
}

TEST(TransferCalls, AnotherOrderOnOneChannelIsFound) {
  auto calls = good_calls();
  std::vector<std::size_t> sums;
  for (std::size_t i = 0; i < calls[1].size(); ++i)
    if (calls[1][i].kind == Kind::all_reduce) sums.push_back(i);
  ASSERT_GE(sums.size(), 2u);
  std::swap(calls[1][sums[0]], calls[1][sums[1]]);
  EXPECT_NE(error_of(calls).find("channel 1+3, call 0"), std::string::npos) << error_of(calls);
}

TEST(TransferCalls, OneTooFewIsFound) {
  auto calls = good_calls();
  calls[2].pop_back();
  EXPECT_NE(error_of(calls), "");
}

TEST(TransferCalls, AnotherSizeIsFound) {
  auto calls = good_calls();
  calls[0][0].moved[0].count += 1;
  EXPECT_NE(error_of(calls).find("call 0"), std::string::npos) << error_of(calls);
}

TEST(TransferCalls, TwoThatSendToEachOtherFirstAreFound) {
  const auto message = [](Kind kind, std::int64_t from, std::int64_t to) {
    return TransferCall{
        .channel = {Channel::Use::messages, {from, to}}, .kind = kind, .number = from, .moved = {{0, 8, DType::u8}}};
  };
  const TransferCall there = message(Kind::send, 0, 1), gets = message(Kind::recv, 0, 1),
                     back = message(Kind::send, 1, 0), got = message(Kind::recv, 1, 0);
  EXPECT_EQ(error_of({{there, got}, {gets, back}}), "");
  const std::string error = error_of({{there, got}, {back, gets}});
  EXPECT_NE(error.find("wait for each other"), std::string::npos) << error;
  EXPECT_NE(error.find("device 0 at send 0"), std::string::npos) << error;
  EXPECT_NE(error.find("device 1 at send 1"), std::string::npos) << error;
}

TEST(Turns, APlanThatHasNoOrderIsRefused) {
  Detail whole = small_gpt_planner().plan({1, 2, 4}, "gpipe", kWays[0]);
  // Device 1 wants what comes to it in another order than device 0 sends it.
  for (Lane& lane : whole.plan.lanes)
    if (lane.device == 1 && lane.is_asynchronous && whole.plan.graph.tasks[lane.tasks[0]].kind == Kind::recv)
      std::ranges::reverse(lane.tasks);
  EXPECT_THROW(with_transfer_turns(whole.plan), InternalError);
}

}  // namespace
}  // namespace overtake
