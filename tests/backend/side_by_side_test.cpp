// The step on several devices at once: each has a whole copy that computes the same, at a place of its own; and what is
// measured with it is the first device's.

#include "plan/divide/side_by_side.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "one_member_plan.h"
#include "plan/divide/detail.h"
#include "plan/divide/micro_batch_sums.h"
#include "train/profiling.h"

namespace overtake {
namespace {

Graph small_step(const Backend& backend) {
  return small_training_graph(backend, "transformer", "batch=2,layers=2,width=16,heads=2,sequence=4,vocabulary=11");
}

std::size_t size_before(std::size_t all, std::uint32_t d, std::uint32_t devices) {
  return all * (devices - 1 - d) / devices;
}

TEST(SideBySide, EveryDeviceHasAWholeStepAtAPlaceOfItsOwn) {
  const auto backend = open_backend("null", {});
  const Graph step = small_step(*backend);
  const std::size_t all = step.tasks.size();
  for (std::uint32_t devices = 1; devices <= 5; ++devices) {
    SCOPED_TRACE(devices);
    const Plan plan = place_memory(side_by_side(step, devices));
    verify(plan);
    ASSERT_EQ(plan.lanes.size(), devices);
    std::vector<std::vector<TaskId>> places;  // by lane: which task of the step each is a copy of
    for (std::uint32_t d = 0; d < devices; ++d) {
      const Lane& lane = plan.lanes[d];
      EXPECT_EQ(lane.device, d);
      const std::size_t before = size_before(all, d, devices), after = all * d / devices;
      ASSERT_EQ(lane.tasks.size(), before + all + after);
      places.emplace_back();
      for (std::size_t i = 0; i < lane.tasks.size(); ++i) {
        const auto place = static_cast<TaskId>(i < before ? i : (i - before) % all);
        places[d].push_back(place);
        const Task &like = step.tasks[place], &mine = plan.graph.tasks[lane.tasks[i]];
        ASSERT_TRUE(like.kind == mine.kind && like.op == mine.op && like.layer == mine.layer &&
                    like.attrs == mine.attrs && like.reads == mine.reads && like.writes == mine.writes)
            << d << ' ' << i;
        for (const BufferId b : plan.graph.reads(mine)) EXPECT_TRUE(b == kNone || plan.graph.buffers[b].device == d);
      }
    }
    // While the first device does the step itself, which has its own ids.
    const std::size_t begin = size_before(all, 0, devices);
    for (std::size_t i = begin; i < begin + all; ++i) {
      EXPECT_EQ(plan.lanes[0].tasks[i], i - begin);
      std::set<TaskId> at_once;
      for (const auto& lane : places)
        if (i < lane.size()) at_once.insert(lane[i]);
      EXPECT_GE(at_once.size() + (i + devices >= begin + all ? devices - 1 : 0), devices) << i;
    }
  }
}

// As many as there are weights, of the gradients as they are made; and they cost nothing where there is nothing to add.
TEST(MicroBatchSums, AreMeasuredAndCountWithTheirGradients) {
  const auto backend = open_backend("cpu", {.threads = 1});
  const Graph step = small_step(*backend), with_sums = with_micro_batch_sums(step, backend->target());
  const std::size_t all = step.tasks.size(), sums = with_sums.tasks.size() - all;
  std::size_t weights = 0;
  for (const Parameter& p : step.parameters) weights += step.buffers[p.buffer].role == Role::weight;
  EXPECT_EQ(sums, 2 * weights);
  const Plan plan = place_memory(schedule_in_order(with_sums));
  verify(plan);
  // On a busy machine nothing may be left of the shortest, less what tracing adds: then they are measured again.
  std::vector<std::int64_t> most_ns(sums, 0);
  for (int again = 0; again < 10 && std::ranges::count(most_ns, 0) > 0; ++again) {
    const Profile profile = measure_alone(with_sums, *backend);
    for (std::size_t i = 0; i < sums; ++i) most_ns[i] = std::max(most_ns[i], profile.alone_ns.at(all + i));
  }
  for (std::size_t i = 0; i < sums; ++i) EXPECT_GT(most_ns[i], 0) << i;

  std::vector<std::int64_t> ns(all + sums, 1000);
  EXPECT_EQ(with_sums_counted(step, ns, 1, backend->target()), std::vector<std::int64_t>(all, 1000));
  std::int64_t more = 0;
  for (const std::int64_t n : with_sums_counted(step, ns, 4, backend->target())) {
    EXPECT_TRUE(n >= 1000 && (n - 1000) % 750 == 0) << n;
    more += n - 1000;
  }
  EXPECT_EQ(more, 750 * static_cast<std::int64_t>(weights));
}

std::vector<float> plain_values(Executor& executor, BufferId b) {
  std::vector<float> values(static_cast<std::size_t>(executor.plan(0).graph.buffers[b].shape.elements()));
  executor.read_plain(b, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST(SideBySide, AllCopiesComputeTheSame) {
  const auto backend = open_backend("cpu", {.threads = 2});
  const Graph step = small_step(*backend);
  constexpr std::uint32_t kDevices = 3;
  const auto one = backend->make_executor({place_memory(schedule_in_order(step))});
  for (const bool is_one_lane : {true, false}) {
    Plan plan = side_by_side(step, kDevices);
    if (is_one_lane) plan = in_one_lane(std::move(plan));
    const auto several = backend->make_executor({place_memory(std::move(plan))});
    for (Executor* executor : {one.get(), several.get()}) {
      fill_initial_parameters(*executor, 1);
      fill_random_inputs(*executor, 1);
    }
    for (std::uint64_t i = 0; i < 3; ++i) {
      const StepArgs args{.step = i, .seed = 1, .learning_rate = 0.1f};
      one->start(0, args);
      several->start(0, args);
      const std::vector<float> want = one->finish().metrics, metrics = several->finish().metrics;
      ASSERT_EQ(want.size(), 3u);
      ASSERT_GE(metrics.size(), 3u * kDevices);
      EXPECT_GT(want[0], 0.1f);
      // Those that are only a part of a step do not train, but begin as the others do.
      for (std::size_t m = 0; m < metrics.size() && i == 0; ++m) EXPECT_EQ(metrics[m], want[m % 3]) << m;
      EXPECT_EQ(metrics[0], want[0]);
    }
    const Graph& g = several->plan(0).graph;
    std::size_t compared = 0;
    for (const Parameter& p : step.parameters) {
      const std::vector<float> want = plain_values(*one, p.buffer);
      for (TaskId t = 0; t < g.tasks.size(); ++t) {
        if (g.tasks[t].kind != Kind::update || g.buffer_name(g.writes(t)[0]) != step.buffer_name(p.buffer)) continue;
        EXPECT_EQ(plain_values(*several, g.writes(t)[0]), want) << step.buffer_name(p.buffer);
        ++compared;
      }
    }
    EXPECT_GE(compared, kDevices * step.parameters.size() / 2);
  }
}

// Of the null backend's, one whose task t takes 100 + t ns, and 7 more where they are traced. Other devices' take ten
// times as long.
class SlowExecutor final : public Executor {
 public:
  explicit SlowExecutor(std::vector<Plan> plans) : null_(make_null_executor(std::move(plans))) {}
  const Plan& plan(std::size_t program) const override { return null_->plan(program); }
  void start(std::size_t program, const StepArgs& args) override { null_->start(program, args); }
  FinishedStep finish() override { return null_->finish(); }
  std::size_t most_under_way() const override { return 1; }
  Trace settle() override { return {}; }
  std::shared_ptr<PersistentMemory> persistent_memory() const override { return null_->persistent_memory(); }
  Trace run_traced(std::size_t program, const StepArgs& args) override {
    Trace trace = null_->run_traced(program, args);
    for (Span& s : trace.spans) s.end_ns = s.begin_ns + ns_of(s.task) + 7;
    return trace;
  }
  std::vector<std::int64_t> time_lanes(std::size_t, const std::vector<std::vector<TaskId>>& lanes, int) override {
    std::vector<std::int64_t> ends(lanes.size(), 0);
    for (std::size_t l = 0; l < lanes.size(); ++l)
      for (const TaskId t : lanes[l]) ends[l] += ns_of(t);
    return ends;
  }
  std::span<std::byte> bytes(BufferId b) override { return null_->bytes(b); }
  void read_plain(BufferId b, std::span<std::byte> to) override { null_->read_plain(b, to); }
  void write_plain(BufferId b, std::span<const std::byte> from) override { null_->write_plain(b, from); }
  std::string find_non_finite(std::size_t, const StepArgs&) override { return ""; }

 private:
  std::int64_t ns_of(TaskId t) const {
    return (100 + std::int64_t{t}) * (null_->plan(0).graph.tasks[t].device == 0 ? 1 : 10);
  }
  std::unique_ptr<Executor> null_;
};

class SmallBackend final : public Backend {
 public:
  explicit SmallBackend(std::uint64_t most_bytes) : most_bytes_(most_bytes) {}
  const Target& target() const override { return null_->target(); }
  DeviceTarget kernels() const override { return null_->kernels(); }
  Precision precision() const override { return Precision::f32; }
  std::unique_ptr<Executor> make_executor(std::vector<Plan> plans, std::shared_ptr<PersistentMemory>) override {
    devices = plans[0].lanes.size();
    return std::make_unique<SlowExecutor>(std::move(plans));
  }
  std::string identity() const override { return "small"; }
  std::size_t most_lanes() const override { return 1; }
  bool has_room_for(std::uint64_t bytes) const override { return bytes <= most_bytes_; }

  std::size_t devices = 0;  // of the last executor

 private:
  std::uint64_t most_bytes_;
  std::unique_ptr<Backend> null_ = open_backend("null", {});
};

TEST(SideBySide, MeasuresTheFirstDevicesStep) {
  const auto null = open_backend("null", {});
  const Graph step = small_step(*null);
  const std::uint64_t two = place_memory(side_by_side(step, 2)).arena_bytes;
  for (const auto& [most_bytes, devices] :
       std::map<std::uint64_t, std::size_t>{{0, 1}, {two + two / 4, 2}, {100 * two, 4}}) {
    SmallBackend backend(most_bytes);
    std::string note;
    const Profile profile = measure_beside_others(step, backend, 4, [&](const std::string& text) { note += text; });
    EXPECT_EQ(backend.devices, devices);
    EXPECT_EQ(note.empty(), devices == 4) << note;
    ASSERT_EQ(profile.alone_ns.size(), step.tasks.size());
    std::int64_t sum = 0;
    for (TaskId t = 0; t < step.tasks.size(); ++t) {
      EXPECT_NEAR(static_cast<double>(profile.alone_ns[t]), 100.0 + t, 1) << t;
      sum += profile.alone_ns[t];
    }
    EXPECT_EQ(profile.in_order_ns, sum);
  }
}

}  // namespace
}  // namespace overtake
