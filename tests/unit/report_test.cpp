// Timelines: what --trace writes, what is read back, and what it amounts to.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "graph/live_memory.h"
#include "report/figures.h"
#include "report/perfetto.h"
#include "report/timeline_page.h"
#include "temporary_folder.h"

namespace overtake {
namespace {

using nlohmann::json;

// x -> forward -> a -> forward -> b -> send on device 0; the second lane computes nothing but the send.
//   task 0 writes a [256] (1024 bytes) from x [64] (256), task 1 writes b [128] (512) from a, task 2 sends b.
Plan small_plan() {
  Plan plan;
  Graph& g = plan.graph;
  g.model = "tiny";
  const BufferId x = g.add_buffer("x", {64}, DType::f32, Role::input);
  const BufferId w = g.add_buffer("w", {1024}, DType::f32, Role::weight);  // 4096 bytes
  const BufferId a = g.add_buffer("a", {256}, DType::f32, Role::activation);
  const BufferId b = g.add_buffer("b", {128}, DType::f32, Role::gradient);
  const LayerId layer = g.add_layer("fc");
  g.add_task(Kind::forward, Op::linear, layer, 0, {x, w}, {a});
  g.add_task(Kind::input_grad, Op::linear, layer, 0, {a}, {b});
  g.add_task(Kind::send, Op::add, layer, 0, {b}, {});
  plan.schedule = "by hand";
  plan.lanes = {{0, {0, 1}}, {0, {2}}};
  plan.arena_bytes = 8192;
  return plan;
}

Trace small_trace() { return {{{0, 0, 1000, 3000}, {1, 0, 4000, 6000}, {2, 1, 6000, 9000}}, 10000}; }

TEST(LiveMemory, IsFromTheWritersBeginToTheLastReadersEnd) {
  const auto devices = live_memory(small_plan(), small_trace());
  ASSERT_EQ(devices.size(), 1u);
  using Bytes = std::array<std::int64_t, 4>;
  const std::vector<std::pair<std::int64_t, Bytes>> expected = {{0, {4096, 0, 0, 256}},
                                                                {1000, {4096, 1024, 0, 256}},
                                                                {4000, {4096, 1024, 512, 256}},
                                                                {6000, {4096, 0, 512, 256}},
                                                                {9000, {4096, 0, 0, 256}}};
  ASSERT_EQ(devices[0].size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(devices[0][i].at_ns, expected[i].first);
    EXPECT_EQ(devices[0][i].bytes, expected[i].second) << "at " << expected[i].first;
  }
}

TEST(LiveMemory, CountsSharedBytesOnce) {
  Plan plan = small_plan();
  plan.shares = {{2, 3}};  // b lies on a
  const auto samples = live_memory(plan, small_trace())[0];
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[1].at_ns, 1000);
  EXPECT_EQ(samples[1].bytes[1] + samples[1].bytes[2], 1024);
  EXPECT_EQ(samples[2].at_ns, 9000);
}

TEST(Perfetto, IsReadBack) {
  const TemporaryFolder folder;
  const Plan plan = small_plan();
  const std::string path = folder.write(
      "trace.json",
      perfetto_json({{"one", &plan, {small_trace(), small_trace()}, "cpu"}, {"two", &plan, {small_trace()}, "cpu"}}));
  const TraceFile file = read_traces({path});
  ASSERT_EQ(file.runs.size(), 2u);
  const RecordedRun& run = file.runs[0];
  EXPECT_EQ(run.name, "one");
  EXPECT_EQ(run.model, "tiny");
  EXPECT_EQ(run.schedule, "by hand");
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.steps[1].begin_ns, 10000);
  EXPECT_EQ(run.steps[1].end_ns, 20000);
  EXPECT_EQ(run.end_ns, 20000);
  ASSERT_EQ(run.devices.size(), 1u);
  EXPECT_EQ(run.devices[0].name, "cpu");
  EXPECT_EQ(run.devices[0].arena_bytes, 8192);
  EXPECT_EQ(run.devices[0].memory.at_ns.size(), 10u);
  ASSERT_EQ(run.tracks.size(), 2u);
  EXPECT_EQ(run.tracks[0].name, "main lane");
  EXPECT_EQ(run.tracks[1].name, "communication lane 1");
  // By lane and time: tasks 0 1 0 1 of two steps, then 2 2.
  ASSERT_EQ(run.tasks.size(), 6u);
  const RecordedTask& second_send = run.tasks[5];
  EXPECT_EQ(file.texts[second_send.name], "fc.send");
  EXPECT_EQ(file.texts[second_send.kind], "send");
  EXPECT_EQ(second_send.step, 1u);
  EXPECT_EQ(second_send.begin_ns, 16000);
  EXPECT_EQ(second_send.end_ns, 19000);
  EXPECT_EQ(second_send.waits_for, (std::vector<std::uint32_t>{3}));  // of its own step
  EXPECT_EQ(run.tasks[0].waits_for.size(), 0u);
}

// x -> forward -> send on device 0, recv -> forward on device 1, twice: the sends of one lane overlap, as do the recvs.
struct Pipe {
  Plan plan;
  Trace trace;
};
Pipe small_pipe() {
  Pipe pipe;
  Graph& g = pipe.plan.graph;
  g.model = "pipe";
  pipe.plan.lanes = {{0, {}}, {0, {}, true}, {1, {}, true}, {1, {}}};
  for (int m = 0; m < 2; ++m) {
    const BufferId x = g.add_buffer("x", {64}, DType::f32, Role::input);
    const BufferId a = g.add_buffer("a", {64}, DType::f32, Role::activation);
    const BufferId message = g.add_buffer("message", {1}, DType::u8, Role::activation);
    const BufferId b = g.add_buffer("b", {64}, DType::f32, Role::activation);
    const BufferId c = g.add_buffer("c", {64}, DType::f32, Role::output);
    const LayerId layer = g.add_layer("fc");
    const TaskId first = g.add_task(Kind::forward, Op::linear, layer, 0, {x}, {a});
    g.add_task(Kind::send, Op::transfer, layer, 0, {a}, {message});
    g.add_task(Kind::recv, Op::transfer, layer, 0, {message}, {b});
    g.add_task(Kind::forward, Op::linear, layer, 0, {b}, {c});
    const std::int64_t at_ns = 1000 * m;
    for (std::uint32_t lane = 0; lane < 4; ++lane) pipe.plan.lanes[lane].tasks.push_back(first + lane);
    pipe.trace.spans.push_back({first, 0, at_ns, at_ns + 1000});
    pipe.trace.spans.push_back({first + 1, 1, at_ns + 1000, at_ns + 4000});
    pipe.trace.spans.push_back({first + 2, 2, at_ns + 1000, at_ns + 4500});
    pipe.trace.spans.push_back({first + 3, 3, at_ns + 4500, at_ns + 5500});
  }
  pipe.trace.step_ns = 5000;  // a step begins before the one before it has ended
  return pipe;
}

TEST(Perfetto, TasksOfOneThreadDoNotOverlap) {
  const Pipe pipe = small_pipe();
  const json file = json::parse(perfetto_json({{"pipe", &pipe.plan, {pipe.trace, pipe.trace}, "gpu"}}));
  std::map<std::pair<int, int>, double> end_of;
  std::map<std::pair<int, int>, std::string> name_of;
  std::set<std::pair<int, int>> send_threads;
  for (const json& e : file.at("traceEvents")) {
    const std::pair<int, int> thread(e.at("pid"), e.at("tid"));
    if (e.at("name") == "thread_name") name_of[thread] = e.at("args").at("name");
    if (e.at("ph") != "X") continue;
    EXPECT_GE(e.at("ts").get<double>(), end_of[thread]) << e;
    end_of[thread] = e.at("ts").get<double>() + e.at("dur").get<double>();
    if (e.at("args").at("kind") == "send") send_threads.insert(thread);
  }
  EXPECT_EQ(send_threads.size(), 2u);
  for (const auto& thread : send_threads) EXPECT_EQ(name_of[thread], "communication lane 1");
  // Read back, they are rows of one lane.
  const TemporaryFolder folder;
  const TraceFile read = read_traces({folder.write("pipe.json", file.dump())});
  EXPECT_EQ(read.runs.at(0).tracks.size(), 4u);
}

TEST(Perfetto, FlowsLeadFromSendsToTheirRecvs) {
  const Pipe pipe = small_pipe();
  const json file = json::parse(perfetto_json(
      {{"pipe", &pipe.plan, {pipe.trace, pipe.trace}, "gpu"}, {"again", &pipe.plan, {pipe.trace}, "gpu"}}));
  struct Task {
    double from, to;
    std::pair<int, int> thread;
    std::string kind;
  };
  std::vector<Task> tasks;
  for (const json& e : file.at("traceEvents"))
    if (e.at("ph") == "X")
      tasks.push_back({e.at("ts"),
                       e.at("ts").get<double>() + e.at("dur").get<double>(),
                       {e.at("pid"), e.at("tid")},
                       e.at("args").at("kind")});
  const auto kind_at = [&](const json& flow) {
    const double at = flow.at("ts");
    for (const Task& t : tasks)
      if (t.thread == std::pair<int, int>(flow.at("pid"), flow.at("tid")) && at >= t.from && at < t.to) return t.kind;
    return std::string("nothing");
  };
  std::map<std::string, int> begins, ends;
  for (const json& e : file.at("traceEvents")) {
    const bool is_begin = e.at("ph") == "s", is_end = e.at("ph") == "f";
    if (!is_begin && !is_end) continue;
    EXPECT_EQ(kind_at(e), is_begin ? "send" : "recv");
    ++(is_begin ? begins : ends)[e.at("id")];
  }
  EXPECT_EQ(begins.size(), 6u) << "two in each of three steps, each by a name of its own";
  EXPECT_EQ(begins, ends);
}

TEST(Perfetto, GivesEachDeviceAProcess) {
  Plan plan = small_plan();
  plan.lanes[1].device = 1;
  const json file = json::parse(perfetto_json({{"pair", &plan, {small_trace()}, "gpu"}}));
  std::map<int, std::string> names;
  std::map<std::string, int> process_of;
  for (const json& e : file.at("traceEvents")) {
    if (e.at("name") == "process_name") names[e.at("pid")] = e.at("args").at("name");
    if (e.at("ph") == "X") process_of[e.at("name")] = e.at("pid").get<int>();
  }
  EXPECT_EQ(names, (std::map<int, std::string>{{0, "pair, gpu 0"}, {1, "pair, gpu 1"}}));
  EXPECT_EQ(process_of, (std::map<std::string, int>{{"fc.forward", 0}, {"fc.input_grad", 0}, {"fc.send", 1}}));
}

TEST(Figures, OfAHandMadeRun) {
  const TemporaryFolder folder;
  const Plan plan = small_plan();
  Trace fast = small_trace();
  fast.step_ns = 9000;
  fast.spans[2] = {2, 1, 5000, 8000};  // the send overlaps the second task by 1 us
  const std::string path = folder.write(
      "trace.json", perfetto_json({{"base", &plan, {small_trace()}, "cpu"}, {"fast", &plan, {fast}, "cpu"}}));
  const std::vector<RunFigures> figures = figures_of(read_traces({path}));
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_EQ(figures[0].step_ns, 10000);
  EXPECT_EQ(figures[0].devices[0].busy_ns, 7000);
  EXPECT_EQ(figures[0].devices[0].idle_ns, 3000);
  EXPECT_EQ(figures[0].devices[0].overlap_ns, 0);
  EXPECT_EQ(figures[0].devices[0].communication_ns, 3000);
  EXPECT_EQ(figures[0].devices[0].exposed_ns, 3000);
  EXPECT_EQ(figures[0].devices[0].peak_bytes, 4096 + 1024 + 512 + 256);
  EXPECT_EQ(figures[1].devices[0].busy_ns, 6000);
  EXPECT_EQ(figures[1].devices[0].idle_ns, 3000);
  EXPECT_EQ(figures[1].devices[0].overlap_ns, 1000);
  EXPECT_EQ(figures[1].devices[0].exposed_ns, 2000);
  EXPECT_DOUBLE_EQ(figures[1].speed_up.value(), 10.0 / 9);
  ASSERT_EQ(figures[0].kinds.size(), 3u);
  EXPECT_EQ(figures[0].kinds[0].name, "send");
  EXPECT_EQ(figures[0].kinds[0].time_ns, 3000);
  EXPECT_EQ(to_json(figures)[0].at("devices")[0].at("idle_share"), 0.3);
}

// What a command measured goes before the few steps that are shown.
TEST(Figures, StepTimeIsTheOneOfTheCommand) {
  const TemporaryFolder folder;
  const Plan plan = small_plan();
  Trace slow = small_trace();
  slow.step_ns = 30000;
  const std::string path =
      folder.write("trace.json", perfetto_json({{"base", &plan, {small_trace()}, "cpu", StepTime{12000, "median of 9"}},
                                                {"next", &plan, {slow, small_trace(), slow}, "cpu"}}));
  const std::vector<RunFigures> figures = figures_of(read_traces({path}));
  EXPECT_EQ(figures[0].step_ns, 12000);
  EXPECT_EQ(figures[0].step_time, "median of 9");
  EXPECT_EQ(figures[1].step_ns, 30000);
  EXPECT_EQ(figures[1].step_time, "median of 3 traced steps");
  EXPECT_DOUBLE_EQ(figures[1].speed_up.value(), 12.0 / 30);
}

TEST(Figures, RunsWithAndWithoutStepsAreNotCompared) {
  const TemporaryFolder folder;
  const Plan plan = small_plan();
  const std::string steps = folder.write("steps.json", perfetto_json({{"base", &plan, {small_trace()}, "cpu"}}));
  const std::string whole = folder.write("whole.json", R"([{"ph": "X", "name": "a", "ts": 0, "dur": 2},
                                                           {"ph": "X", "name": "a", "ts": 90, "dur": 198}])");
  const std::vector<RunFigures> figures = figures_of(read_traces({steps, whole}));
  EXPECT_EQ(figures[0].speed_up, 1.0);
  EXPECT_FALSE(figures[1].speed_up);
  EXPECT_TRUE(to_json(figures)[1].at("speed_up").is_null());
  EXPECT_EQ(figures_of(read_traces({whole, whole}))[1].speed_up, 1.0);
}

TEST(Figures, RunsWithoutTasksAreThere) {
  const TemporaryFolder folder;
  const Plan plan = small_plan();
  const std::string path = folder.write(
      "trace.json", perfetto_json({{"ran", &plan, {small_trace()}, "cpu"}, {"did not", &plan, {}, "cpu"}}));
  for (const std::vector<std::string>& paths :
       {std::vector{path}, {folder.write("none.json", perfetto_json({{"none", &plan, {}, "cpu"}})), path}}) {
    const TraceFile file = read_traces(paths);
    const std::vector<RunFigures> figures = figures_of(file);
    ASSERT_EQ(figures.size(), paths.size() + 1);
    EXPECT_EQ(figures.back().name.substr(figures.back().name.size() - 7), "did not");
    EXPECT_EQ(figures.back().tasks, 0);
    EXPECT_FALSE(figures.back().speed_up);
    EXPECT_EQ(figures.back().devices.size(), 1u);
    EXPECT_NE(timeline_page(file, figures).find("did not"), std::string::npos);
  }
}

// As PyTorch's profiler writes: pids of both sorts, times since 1970, nested CPU ops, annotations over kernels.
constexpr std::string_view kTorchTrace = R"json({"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": [
  {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}},
  {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}},
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 7, "tid": 7, "ts": 1700000000000000.0,
   "dur": 100},
  {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 7, "tid": 7, "ts": 1700000000000010.0, "dur": 50},
  {"ph": "B", "cat": "cpu_op", "name": "aten::addmm", "pid": 7, "tid": 7, "ts": 1700000000000020.0},
  {"ph": "E", "pid": 7, "tid": 7, "ts": 1700000000000040.0},
  {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#2", "pid": 0, "tid": "stream 7",
   "ts": 1700000000000030.0, "dur": 60},
  {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": "stream 7", "ts": 1700000000000040.0, "dur": 30},
  {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": "stream 9",
   "ts": 1700000000000060.0, "dur": 30},
  {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler",
   "ts": 1700000000000000.0, "dur": 500},
  {"ph": "s", "id": 1, "pid": 7, "tid": 7, "ts": 1700000000000020.0},
  {"ph": "i", "name": "note", "pid": 7, "tid": 7, "ts": 1700000000000020.0}]})json";

TEST(TraceFile, ReadsThoseOfOthers) {
  const TemporaryFolder folder;
  const std::string path = folder.write("torch.json", kTorchTrace);
  const TraceFile file = read_traces({path});
  ASSERT_EQ(file.runs.size(), 1u);
  const RecordedRun& run = file.runs[0];
  EXPECT_EQ(run.name, "torch");
  ASSERT_EQ(run.devices.size(), 2u);
  EXPECT_EQ(run.devices[0].name, "python");
  EXPECT_EQ(run.devices[1].name, "GPU 0");
  EXPECT_EQ(run.tracks[0].rows, 3u);  // annotation over op over op
  EXPECT_EQ(run.end_ns, 100'000);

  const RunFigures figures = figures_of(file)[0];
  EXPECT_EQ(figures.steps, 1);
  EXPECT_EQ(figures.step_ns, 100'000);
  EXPECT_EQ(figures.tasks, 4);
  EXPECT_EQ(figures.devices[0].busy_ns, 50'000);  // nested tasks count once
  const DeviceFigures& gpu = figures.devices[1];
  EXPECT_EQ(gpu.busy_ns, 50'000);
  EXPECT_EQ(gpu.overlap_ns, 10'000);
  EXPECT_EQ(gpu.communication_ns, 30'000);
  EXPECT_EQ(gpu.exposed_ns, 20'000);
}

TEST(TraceFile, ClosesWhatHadNotEnded) {
  const TemporaryFolder folder;
  const std::string path = folder.write("cut.json", R"([{"ph": "E", "pid": 1, "tid": 1, "ts": 1},
    {"ph": "B", "name": "long", "pid": 1, "tid": 1, "ts": 2},
    {"ph": "X", "name": "short", "pid": 1, "tid": 2, "ts": 4, "dur": 5}])");
  const RecordedRun run = read_traces({path}).runs.at(0);
  ASSERT_EQ(run.tasks.size(), 2u);
  EXPECT_EQ(run.end_ns, 7000);  // from the first begin on
  for (const RecordedTask& task : run.tasks) EXPECT_EQ(task.end_ns, 7000);
}

TEST(TraceFile, ErrorsNameFileAndEvent) {
  const TemporaryFolder folder;
  const auto error_of = [&](std::string_view text) {
    const std::string path = folder.write("bad.json", text);
    return user_error([&] { read_traces({path}); });
  };
  EXPECT_TRUE(says(user_error([] { read_traces({"no/such.json"}); }), {"no/such.json"}));
  EXPECT_TRUE(says(error_of("{\"traceEvents\": ["), {"bad.json", "not JSON", "byte", "`trace`"}));
  EXPECT_TRUE(says(error_of("\x1f\x8b zipped"), {"bad.json", "gunzip"}));
  EXPECT_TRUE(says(error_of("42"), {"bad.json", "without tasks"}));
  EXPECT_TRUE(says(error_of(R"({"traceEvents": [{"ph": "M", "name": "x"}]})"), {"without tasks", "1 events"}));
  EXPECT_TRUE(
      says(error_of(R"([{"ph": "X", "name": "a", "ts": 1, "dur": 2}, {"ph": "X", "name": "b", "ts": 1, "dur": -3}])"),
           {"bad.json", "event 1 ('b')", "negative duration: -3 us"}));
  EXPECT_TRUE(says(error_of(R"([{"ph": "X", "name": "a", "dur": 2}])"), {"event 0 ('a')", "'ts'", "microseconds"}));
  EXPECT_TRUE(says(error_of(R"([{"ph": "X", "name": "a", "ts": 1e300, "dur": 2}])"), {"event 0 ('a')", "bounds"}));
  EXPECT_TRUE(says(error_of(R"([{"ph": "X", "name": "a", "ts": 0, "dur": 1728e9}])"), {"bad.json", "20 days"}));
  EXPECT_TRUE(says(error_of(R"([{"ph": "C", "name": "live bytes", "ts": 0, "args": {"other": 1e300}}])"),
                   {"event 0 ('live bytes')", "'other'", "bytes"}));
  EXPECT_TRUE(says(error_of(R"([{"ph": "X", "name": "a", "ts": 1, "args": {"waits_for": "b"}}])"),
                   {"event 0 ('a')", "wrong type"}));
}

TEST(Page, HoldsItsDataAndNothingElse) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "odd.json", R"([{"ph": "X", "name": "</script><b>", "cat": "forward", "pid": 1, "tid": 1, "ts": 5, "dur": 2}])");
  const TraceFile file = read_traces({path});
  const std::string page = timeline_page(file, figures_of(file));
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
  const std::string open = "id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  const json data = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  const json& tasks = data.at("runs")[0].at("tasks");
  EXPECT_EQ(data.at("texts").at(tasks.at("name")[0].get<std::size_t>()), "</script><b>");
  EXPECT_EQ(tasks.at("duration")[0], 2000);
}

}  // namespace
}  // namespace overtake
