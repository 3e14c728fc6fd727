// Traces of several ranks, whose clocks differ, as one file: by hand, so that every number is known.

#include "report/rank_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "report/figures.h"
#include "report/perfetto.h"
#include "report/trace_writer.h"
#include "temporary_folder.h"

namespace overtake {
namespace {

using nlohmann::json;

constexpr TaskId kForward = 0, kMessage = 1, kSum = 2, kOtherSum = 3, kUpdate = 4;

// Compute: a forward, and an update that the step delays. Transfers: a message from rank 0 to rank 1, and two sums of
// which the update reads the first.
Plan plan_of(int rank) {
  Plan plan;
  Graph& g = plan.graph;
  g.model = "pair";
  const BufferId w = g.add_buffer("w", {64}, DType::f32, Role::weight);
  const BufferId x = g.add_buffer("x", {16}, DType::f32, Role::activation);
  const BufferId gradient = g.add_buffer("gradient", {64}, DType::f32, Role::weight_gradient);
  const BufferId sum = g.add_buffer("sum", {64}, DType::f32, Role::weight_gradient);
  const BufferId other = g.add_buffer("other", {64}, DType::f32, Role::weight_gradient);
  const BufferId other_sum = g.add_buffer("other_sum", {64}, DType::f32, Role::weight_gradient);
  const BufferId message = g.add_buffer("message", {0}, DType::u8, Role::activation);
  const LayerId layer = g.add_layer("fc");
  const auto collective = [&](std::int64_t number) {
    return g.add_attrs({{"collective", number}, {"members", std::vector<std::int64_t>{0, 1}}});
  };
  const AttrsId to_other = g.add_attrs({{"message", std::int64_t{7}}, {"peer", std::int64_t{1 - rank}}});
  if (rank == 0) {
    g.add_task(Kind::forward, Op::linear, layer, 0, {w}, {x, gradient, other});
    g.add_task(Kind::send, Op::transfer, layer, to_other, {x}, {message});
  } else {
    g.add_task(Kind::forward, Op::linear, layer, 0, {w, x}, {gradient, other});
    g.add_task(Kind::recv, Op::transfer, layer, to_other, {}, {x});
  }
  g.add_task(Kind::all_reduce, Op::transfer, layer, collective(3), {gradient}, {sum});
  g.add_task(Kind::all_reduce, Op::transfer, layer, collective(4), {other}, {other_sum});
  g.add_task(Kind::update, Op::sgd, layer, 0, {sum, w}, {w});
  g.tasks[kUpdate].is_delayed = true;
  plan.schedule = "by hand";
  plan.lanes = {{0, {kUpdate, kForward}}, {0, {kMessage}, true}, {0, {kSum, kOtherSum}, true}};
  return plan;
}

// In microseconds of rank 0. Two steps of 100 from 1000 and 1100 on, and what they leave to do from 1200 on.
// Rank 1 comes to every transfer but the message later than rank 0.
std::vector<Trace> traces_of(int rank, std::int64_t ahead_ns) {
  const auto us = [](TaskId task, std::uint32_t lane, std::int64_t begin, std::int64_t end) {
    return Span{task, lane, begin * 1000, end * 1000};
  };
  std::vector<Trace> traces;
  if (rank == 0) {
    traces.push_back(
        {{us(kSum, 2, -20, 4),  // of the step before
          us(kUpdate, 0, 5, 8), us(kForward, 0, 10, 40), us(kMessage, 1, 40, 60), us(kOtherSum, 2, 44, 90)},
         100'000,
         1'000'000});
    traces.push_back(
        {{us(kSum, 2, -58, 30),  // began at 42 of the first step
          us(kUpdate, 0, 30, 35), us(kForward, 0, 40, 60), us(kMessage, 1, 60, 70), us(kOtherSum, 2, 62, 95)},
         100'000,
         1'100'000});
    traces.push_back({{us(kSum, 2, -39, 10), us(kUpdate, 0, 10, 14)}, 0, 1'200'000});
  } else {
    traces.push_back({{us(kSum, 2, -10, 4), us(kUpdate, 0, 5, 8), us(kMessage, 1, 5, 60), us(kForward, 0, 60, 80),
                       us(kOtherSum, 2, 82, 90)},
                      99'000,
                      1'000'000});
    traces.push_back({{us(kSum, 2, -19, 30), us(kUpdate, 0, 30, 35), us(kMessage, 1, 5, 70), us(kForward, 0, 70, 80),
                       us(kOtherSum, 2, 82, 95)},
                      99'000,
                      1'100'000});
    traces.push_back({{us(kSum, 2, -19, 10), us(kUpdate, 0, 10, 14)}, 0, 1'200'000});
  }
  for (Trace& t : traces) t.start_ns += ahead_ns;
  return traces;
}

class RankTraces : public testing::Test {
 protected:
  RankTraces() {
    std::vector<RankTrace> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      const std::int64_t ahead_ns = rank == 0 ? 0 : 5'000'000'000;
      ranks.push_back({rank, "pair", "rank " + std::to_string(rank) + ": replica", &plans_[rank],
                       traces_of(rank, ahead_ns), -ahead_ns, rank == 0 ? 0 : 2'000});
    }
    const std::int64_t origin_ns = std::min(first_begin_ns(ranks[0]), first_begin_ns(ranks[1]));
    EXPECT_EQ(origin_ns, 980'000);  // where the first sum began
    text_ = file_of_events({rank_events(ranks[0], origin_ns), rank_events(ranks[1], origin_ns)});
    file_ = read_traces({folder_.write("ranks.json", text_)});
  }

  // Times in the file are from 980 us on.
  const RecordedTask& find(std::uint32_t rank, const std::string& kind, std::int64_t begin_us) const {
    for (const RecordedTask& t : file_.runs[0].tasks)
      if (run().devices[run().tracks[t.track].device].rank == rank && file_.texts[t.kind] == kind &&
          t.begin_ns == (begin_us - 980) * 1000)
        return t;
    ADD_FAILURE() << "no " << kind << " of rank " << rank << " begins at " << begin_us;
    return run().tasks[0];
  }
  const RecordedRun& run() const { return file_.runs.at(0); }
  std::set<const RecordedTask*> waits(const RecordedTask& t) const {
    std::set<const RecordedTask*> all;
    for (const std::uint32_t i : t.waits_for) all.insert(&run().tasks[i]);
    return all;
  }

  const TemporaryFolder folder_;
  const Plan plans_[2] = {plan_of(0), plan_of(1)};
  std::string text_;
  TraceFile file_;
};

TEST_F(RankTraces, LieOnOneClock) {
  ASSERT_EQ(file_.runs.size(), 1u);
  ASSERT_EQ(run().devices.size(), 2u);
  EXPECT_EQ(run().devices[1].name, "rank 1: replica");
  EXPECT_EQ(run().devices[1].rank, 1u);
  EXPECT_EQ(run().devices[1].clock_error_ns, 2'000);
  ASSERT_EQ(run().steps.size(), 2u);
  EXPECT_EQ(run().steps[0].begin_ns, 20'000);
  EXPECT_EQ(run().steps[0].end_ns, 120'000);  // the longer of the two
  EXPECT_EQ(run().steps[1].begin_ns, 120'000);
  EXPECT_EQ(find(0, "send", 1040).end_ns, 80'000);
  EXPECT_EQ(find(1, "recv", 1005).end_ns, 80'000);
}

TEST_F(RankTraces, ShowTransfersWholeAndUnderTheirStep) {
  const RecordedTask& sum = find(0, "all_reduce", 1042);
  EXPECT_EQ(sum.end_ns - sum.begin_ns, 88'000);
  EXPECT_EQ(sum.step, 0u);
  EXPECT_EQ(find(0, "all_reduce", 1044).step, 0u);
  EXPECT_EQ(find(0, "all_reduce", 980).step, RecordedTask::kNoStep);
  EXPECT_EQ(find(0, "all_reduce", 1161).step, 1u);
  EXPECT_EQ(find(0, "all_reduce", 1161).end_ns, 230'000);
  // A delayed update has the number of its own step.
  EXPECT_EQ(find(0, "update", 1005).step, RecordedTask::kNoStep);
  EXPECT_EQ(find(0, "update", 1130).step, 0u);
  EXPECT_EQ(find(0, "update", 1210).step, 1u);
}

TEST_F(RankTraces, SayWhatWaitsForWhat) {
  EXPECT_EQ(waits(find(1, "recv", 1005)), std::set{&find(0, "send", 1040)});
  EXPECT_EQ(waits(find(0, "update", 1130)), std::set{&find(0, "all_reduce", 1042)});
  EXPECT_TRUE(waits(find(0, "forward", 1140)).contains(&find(0, "update", 1130)));
  // Of a collective, for the last to come. (And the update of the step before must have read where it writes.)
  EXPECT_EQ(waits(find(0, "all_reduce", 1042)),
            (std::set{&find(0, "update", 1005), &find(0, "forward", 1010), &find(1, "all_reduce", 1081)}));
  EXPECT_EQ(waits(find(1, "all_reduce", 1081)), (std::set{&find(1, "update", 1005), &find(1, "forward", 1060)}));
}

TEST_F(RankTraces, CountTransfersFromWhenAllHaveCome) {
  EXPECT_EQ(find(1, "recv", 1005).moves_ns, 60'000);
  EXPECT_EQ(find(0, "send", 1040).moves_ns, 60'000);
  EXPECT_EQ(find(0, "all_reduce", 1044).moves_ns, 102'000);
  const RunFigures figures = figures_of(file_)[0];
  EXPECT_EQ(figures.steps, 2);
  EXPECT_EQ(figures.step_ns, 100'000);
  EXPECT_EQ(figures.run_ns, 200'000);  // the steps, not what was before and after them
  // Rank 0. Compute: 5-8, 10-40; 130-135, 140-160. Transfers: 0-4, 40-60, 81-130; 160-170, 181-200.
  const DeviceFigures& first = figures.devices[0];
  EXPECT_EQ(first.rank, 0u);
  EXPECT_EQ(first.compute_ns, 58'000);
  EXPECT_EQ(first.communication_ns, 102'000);
  EXPECT_EQ(first.exposed_ns, 102'000);
  EXPECT_EQ(first.idle_ns, 40'000);
  // Rank 1. Compute: 5-8, 60-80; 130-135, 170-180. Transfers: 0-4, 40-60, 81-130; 160-170, 181-200.
  const DeviceFigures& second = figures.devices[1];
  EXPECT_EQ(second.compute_ns, 38'000);
  EXPECT_EQ(second.communication_ns, 102'000);
  EXPECT_EQ(second.exposed_ns, 102'000);
  EXPECT_EQ(second.idle_ns, 60'000);
  EXPECT_DOUBLE_EQ(figures.idle_share, 100.0 / 400);
  const json out = to_json({figures})[0];
  EXPECT_EQ(out.at("devices")[1].at("rank"), 1);
  EXPECT_EQ(out.at("devices")[1].at("clock_error_us"), 2.0);
}

TEST_F(RankTraces, DoNotOverlapOnAThreadButAreOneLane) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
  std::set<std::string> sent, received;
  const json file = json::parse(text_);
  for (const json& e : file.at("traceEvents")) {
    if (e.at("ph") == "X")
      threads[{e.at("pid"), e.at("tid")}].emplace_back(e.at("ts").get<double>(),
                                                       e.at("ts").get<double>() + e.at("dur").get<double>());
    if (e.at("ph") == "s") sent.insert(e.at("id"));
    if (e.at("ph") == "f") received.insert(e.at("id"));
  }
  for (auto& [thread, spans] : threads) {
    std::ranges::sort(spans);
    for (std::size_t i = 1; i < spans.size(); ++i) EXPECT_GE(spans[i].first, spans[i - 1].second);
  }
  EXPECT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent, received);
  std::vector<std::string> names;
  for (const RecordedTrack& track : run().tracks) names.push_back(track.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"compute", "sends", "collectives", "compute", "receives from 0", "collectives"}));
}

TEST(RankTrace, WithoutStepsHasNoBegin) {
  const Plan plan = plan_of(0);
  EXPECT_EQ(first_begin_ns({.rank = 0, .run = "", .place = "", .plan = &plan, .traces = {}}),
            std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace overtake
